"""`PrefixTree`: pages by the tokens that lead to them, so that what was computed is computed once.

A radix tree whose edges are whole pages (compare RadixAttention, arXiv:2312.07104, and hashed
blocks, vLLM): keys and values depend on all tokens before them, so a page may be shared exactly
where the whole path to it is the same. Rejected: edges of many pages, which save nodes, of which
there are at most as many as pages, and cost a split at each branch.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from attrs import define, field

from trioserve.core import CacheNamespace, StepNumber
from trioserve.kv.lease import PageLease
from trioserve.kv.node import NO_PAGE, PageNode
from trioserve.kv.pool import PagePool, PageState

_Leaf = tuple[int, int, PageNode]
"""When it was used, a number that tells equal ones apart, and the node."""


@define(eq=False)
class PrefixTree:
    """All cached pages of a pool. Used by the scheduler and the engine on one thread; no locks.

    Only pages enter it whose tokens were all computed in steps that are committed, and their
    contents never change while they are in it. Namespaces share nothing. Unused leaves are evicted,
    those whose last user left first. No method is a checkpoint.
    """

    pool: PagePool
    page_size: int
    num_unused: int = field(init=False, default=0)
    """Pages without a user: all of them can be evicted, leaf by leaf."""
    num_evicted: int = field(init=False, default=0)
    _roots: dict[CacheNamespace | None, PageNode] = field(init=False, factory=dict)
    _clock: int = field(init=False, default=0)
    _leaves: list[_Leaf] = field(init=False, factory=list)
    """A heap of evictable leaves; entries that have become void are skipped when they come up."""
    _num_pushed: int = field(init=False, default=0)

    @property
    def num_pages(self) -> int:
        """Pages in the tree."""
        return self.pool.statistics().cached

    def find(
        self, namespace: CacheNamespace | None, token_ids: Sequence[int], max_tokens: int
    ) -> PageNode | None:
        """The node of the longest cached prefix of at most `max_tokens` tokens; perhaps a root.

        None if nothing at all is cached in the namespace. Locks nothing.
        """
        node = self._roots.get(namespace)
        if node is None:
            return None
        for page in _whole_pages(token_ids, max_tokens, self.page_size):
            child = node.children.get(page)
            if child is None:
                break
            node = child
        return node

    def lease(
        self, namespace: CacheNamespace | None, token_ids: Sequence[int] = (), max_tokens: int = 0
    ) -> PageLease:
        """A lease that begins with the longest cached prefix of at most `max_tokens` tokens.

        The namespace None is for leases that share nothing: nothing is published in it.
        """
        tip = self.find(namespace, token_ids, max_tokens)
        if tip is None:
            tip = self._roots[namespace] = PageNode(NO_PAGE, (), None, namespace, depth=0)
        for node in tip.path():
            self._lock(node)
        _root_of(tip).num_users += 1
        return PageLease(self.pool, tip, self._unlock)

    def publish(
        self,
        lease: PageLease,
        token_ids: Sequence[int],
        num_computed: int,
        fence: StepNumber | None,
    ) -> list[PageNode]:
        """Take in the lease's pages that lie within its first `num_computed` tokens.

        Those must have been computed by steps that are committed. `fence` is the last step that
        names pages of the lease. Returns the nodes that are new, parents first.
        """
        assert lease.tip.namespace is not None, "a page was published that is nobody else's"
        begin = lease.num_shared * self.page_size
        new: list[PageNode] = []
        for page in _whole_pages(token_ids, num_computed, self.page_size, begin):
            tip = lease.tip
            node = tip.children.get(page)
            if node is None:
                own = lease.page_ids[lease.num_shared]
                self.pool.keep(own)
                node = tip.children[page] = PageNode(own, page, tip, tip.namespace, tip.depth + 1)
                self.num_unused += 1
                new.append(node)
            self._lock(node)
            lease.advance(node, fence)
        return new

    def evict(self, num_pages: int) -> int:
        """Evict up to `num_pages` unused pages, the least recently used first; how many it did."""
        num_left = num_pages
        while num_left > 0 and self._leaves:
            used_at, _, leaf = heappop(self._leaves)
            if leaf.is_evictable_leaf and leaf.used_at == used_at:
                self._remove(leaf)
                num_left -= 1
        self.num_evicted += num_pages - num_left
        return num_pages - num_left

    def flush(self) -> int:
        """Evict all pages without a user; how many there were."""
        return self.evict(self.num_unused)

    def nodes(self) -> Iterator[PageNode]:
        """All pages, parents first."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if not node.is_root:
                yield node
            stack.extend(node.children.values())

    def check(self) -> None:
        """Assert that the books agree. Costs a pass over the tree and one over the pool."""
        nodes = list(self.nodes())
        pages = [node.page_id for node in nodes]
        assert len(set(pages)) == len(pages), "a page is in the tree twice"
        assert set(pages) == self.pool.pages_in(PageState.CACHED), "the pool caches other pages"
        num_unused = sum(node.num_users == 0 for node in nodes)
        assert num_unused == self.num_unused, f"{num_unused} unused, counted {self.num_unused}"
        queued = {id(leaf) for used_at, _, leaf in self._leaves if leaf.used_at == used_at}
        for node in nodes:
            assert node.parent is not None
            assert node.parent.children.get(node.token_ids) is node, "a node is under another key"
            assert node.depth == node.parent.depth + 1, "a node at a wrong depth"
            assert node.namespace == node.parent.namespace, "namespaces share a page"
            assert len(node.token_ids) == self.page_size, f"a page of {len(node.token_ids)} tokens"
            assert 0 <= node.num_users <= node.parent.num_users, (
                f"{node.num_users} users below {node.parent.num_users}"
            )
            assert not node.is_evictable_leaf or id(node) in queued, "a leaf that is never evicted"
        for root in self._roots.values():
            assert root.children or root.num_users, "an empty namespace was kept"

    def _lock(self, node: PageNode) -> None:
        self.num_unused -= node.num_users == 0
        node.num_users += 1

    def _unlock(self, tip: PageNode, fence: StepNumber | None) -> None:
        """A lease that ended in `tip` is over; `fence` is the last step that read its pages."""
        self._clock += 1
        for node in tip.path():
            node.num_users -= 1
            node.used_at = self._clock
            self.num_unused += node.num_users == 0
            if fence is not None:
                node.fence = max(fence, node.fence or fence)
        root = _root_of(tip)
        root.num_users -= 1
        self._queue(tip)
        self._forget_if_empty(root)

    def _remove(self, leaf: PageNode) -> None:
        parent = leaf.parent
        assert parent is not None, "a root was evicted"
        del parent.children[leaf.token_ids]
        self.pool.evict(leaf.page_id, leaf.fence)
        self.num_unused -= 1
        self._queue(parent)
        if parent.is_root:
            self._forget_if_empty(parent)

    def _queue(self, node: PageNode) -> None:
        if not node.is_evictable_leaf:
            return
        self._num_pushed += 1
        heappush(self._leaves, (node.used_at, self._num_pushed, node))
        if len(self._leaves) > 2 * self.num_unused + 64:
            # Void entries would pile up for ever where nothing needs to be evicted.
            self._leaves = [
                (node.used_at, number, node)
                for number, node in enumerate(self.nodes())
                if node.is_evictable_leaf
            ]
            heapify(self._leaves)

    def _forget_if_empty(self, root: PageNode) -> None:
        if not root.children and root.num_users == 0:
            del self._roots[root.namespace]


def _whole_pages(
    token_ids: Sequence[int], num_tokens: int, page_size: int, begin: int = 0
) -> Iterator[tuple[int, ...]]:
    """The tokens of each page that lies within the first `num_tokens`, from `begin` on."""
    for start in range(begin, num_tokens - page_size + 1, page_size):
        yield tuple(token_ids[start : start + page_size])


def _root_of(node: PageNode) -> PageNode:
    while node.parent is not None:
        node = node.parent
    return node

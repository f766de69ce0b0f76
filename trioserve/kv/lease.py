"""`PageLease`: the pages of one sequence, a shared prefix first and then its own."""

from collections.abc import Callable, Sequence

from trioserve.core import PageId, StepNumber
from trioserve.kv.node import PageNode
from trioserve.kv.pool import PagePool

Unlock = Callable[[PageNode, StepNumber | None], None]


class PageLease:
    """Made by `PrefixTree.lease`, ended by one `release`. No method is a checkpoint.

    The first `num_shared` pages are the tree's, and others may read them too; the rest are this
    lease's alone. `page_ids` stay valid on the device until the fence given to `release` retires.
    """

    def __init__(self, pool: PagePool, tip: PageNode, unlock: Unlock) -> None:
        """`tip`, the node of the last shared page or a root, is locked until `unlock` is called."""
        self._pool = pool
        self._tip = tip
        self._unlock = unlock
        self._page_ids = [node.page_id for node in tip.path()]
        self._num_shared = len(self._page_ids)
        self._is_released = False

    @property
    def page_ids(self) -> Sequence[PageId]:
        """The pages in the order of the positions they hold."""
        return self._page_ids

    @property
    def num_shared(self) -> int:
        """Leading pages that are the tree's."""
        return self._num_shared

    @property
    def tip(self) -> PageNode:
        """The node of the last shared page; a root if there is none."""
        return self._tip

    @property
    def own_page_ids(self) -> Sequence[PageId]:
        """The pages that are this lease's alone."""
        return self._page_ids[self._num_shared :]

    def extend(self, num_pages: int) -> None:
        """Add `num_pages` free pages. Raises OutOfPages, changing nothing, if there are fewer."""
        assert not self._is_released, "a released lease was extended"
        self._page_ids.extend(self._pool.take(num_pages))

    def advance(self, node: PageNode, fence: StepNumber | None) -> None:
        """The first page of its own becomes `node`'s, a child of the tip. For the tree alone.

        Where the tree has the page from another sequence already, the own copy is given back;
        `fence` is the last step that names it.
        """
        assert not self._is_released, "a released lease was advanced"
        assert node.parent is self._tip, "a page was shared out of order"
        own = self._page_ids[self._num_shared]
        if node.page_id != own:
            self._pool.give_back((own,), fence)
            self._page_ids[self._num_shared] = node.page_id
        self._tip = node
        self._num_shared += 1

    def release(self, fence: StepNumber | None) -> None:
        """End the lease. `fence` is the last step that names its pages, None if none ever did."""
        assert not self._is_released, f"pages {self._page_ids} were released twice"
        self._is_released = True
        self._pool.give_back(self.own_page_ids, fence)
        self._unlock(self._tip, fence)

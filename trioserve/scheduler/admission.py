"""`AdmissionOrder`: which of the waiting sequences comes next."""

from collections.abc import Iterator
from collections.abc import Sequence as ReadOnlyList

from attrs import define, field

from trioserve.kv.node import PageNode
from trioserve.kv.tree import PrefixTree
from trioserve.scheduler.loads import PageLoad
from trioserve.scheduler.sequence import Sequence

WINDOW = 32
"""Waiting sequences that are looked at in one plan: finding a prefix costs time for each page."""

MAX_OVERTAKEN = 32
"""A sequence that was overtaken so often comes next, whatever is cached for others."""

_Page = tuple[PageNode, tuple[int, ...]]
"""A page that is not there yet: the node before it, and its tokens."""


@define(eq=False)
class AdmissionOrder:
    """Made for one plan.

    The longest cached prefix comes first (compare RadixAttention, arXiv:2312.07104): its pages may
    be evicted while it waits. Equal ones come in order of rank, and nobody passes a sequence of
    higher priority. A sequence whose next page a running one is computing, or a tier is bringing
    back, is passed over until that page is there, so that the samples of a prompt, or a hundred
    requests that begin alike and come at once, have it computed once.
    """

    tree: PrefixTree
    _coming: set[_Page] = field(init=False, factory=set)

    def note_running(self, sequence: Sequence) -> None:
        """The sequence is in the batch: what its tokens lack will be there soon."""
        if sequence.namespace is not None and sequence.lease is not None:
            self._note(sequence.lease.tip, sequence.known_ids, sequence.num_tokens)

    def note_load(self, load: PageLoad) -> None:
        """The same of what a tier is bringing back."""
        self._note(load.lease.tip, load.token_ids, len(load.token_ids))

    def _note(self, tip: PageNode, token_ids: ReadOnlyList[int], num_tokens: int) -> None:
        page = self._page_after(tip, token_ids, num_tokens)
        if page is not None:
            self._coming.add(page)

    def order(self, ready: list[Sequence]) -> Iterator[Sequence]:
        """The sequences of `ready`, which are in order of rank, as they are to be admitted.

        Counts who is overtaken once the next one is asked for, so whoever was given was admitted.
        """
        found = {sequence: self._find(sequence) for sequence in ready}
        while ready:
            priority = ready[0].priority
            equals = [held for held in ready if held.priority == priority]
            candidates = [held for held in equals if not self._is_coming(held, found[held])]
            if not candidates:
                ready = ready[len(equals) :]
                continue
            chosen = _choose(candidates, found)
            yield chosen
            for overtaken in candidates:
                overtaken.num_overtaken += overtaken.rank < chosen.rank
            ready = [held for held in ready if held is not chosen]

    def _find(self, sequence: Sequence) -> PageNode | None:
        if sequence.namespace is None:
            return None
        return self.tree.find(sequence.namespace, sequence.known_ids, sequence.num_reusable)

    def _is_coming(self, sequence: Sequence, found: PageNode | None) -> bool:
        if sequence.namespace is None or not self._coming:
            return False
        # A namespace has no root until its first sequence runs, perhaps since a moment ago.
        found = found or self.tree.find(sequence.namespace, (), 0)
        if found is None:
            return False
        page = self._page_after(found, sequence.known_ids, sequence.num_reusable)
        return page is not None and page in self._coming

    def _page_after(
        self, node: PageNode, token_ids: ReadOnlyList[int], num_tokens: int
    ) -> _Page | None:
        """The page that comes after `node`'s if it lies within the first `num_tokens`."""
        begin = node.depth * self.tree.page_size
        end = begin + self.tree.page_size
        return None if end > num_tokens else (node, tuple(token_ids[begin:end]))


def _choose(candidates: list[Sequence], found: dict[Sequence, PageNode | None]) -> Sequence:
    for sequence in candidates:
        if sequence.num_overtaken >= MAX_OVERTAKEN:
            return sequence

    def depth(sequence: Sequence) -> int:
        node = found[sequence]
        return 0 if node is None else node.depth

    return max(candidates, key=depth)  # of equal ones the first

"""`PageSupply`: how many pages there are for whom, counting those that can be had."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import define

from trioserve.kv.lease import PageLease
from trioserve.kv.pool import PagePool
from trioserve.kv.tree import PrefixTree
from trioserve.scheduler.sequence import Sequence

if TYPE_CHECKING:
    from trioserve.kv.node import PageNode


@define(eq=False)
class PageSupply:
    """The scheduler's view of pool and tree. Preempting is the scheduler's; evicting is here."""

    pool: PagePool
    tree: PrefixTree
    page_size: int

    def pages_for(self, num_tokens: int) -> int:
        """Pages that so many positions take."""
        return -(-num_tokens // self.page_size)

    def lacks(self, needed: int) -> bool:
        """Whether fewer than `needed` pages are free, come free by themselves or are unused."""
        pool = self.pool
        return pool.num_free + pool.num_coming_free + self.tree.num_unused < needed

    def set_free(self, needed: int) -> bool:
        """Evict until `needed` pages are free; False if one has to wait for the step in flight.

        An eviction that is not enough by itself is not made.
        """
        if self.lacks(needed):
            return False
        pool = self.pool
        self.tree.evict(needed - pool.num_free - pool.num_coming_free)
        return pool.num_free >= needed

    def promised(self, sequence: Sequence, lease: PageLease, num_more: int = 0) -> int:
        """Pages that the sequence needs beyond its lease for all its tokens and `num_more` more.

        Not for more than it can come to have.
        """
        num_tokens = sequence.num_tokens + sequence.num_in_flight + num_more
        needed = self.pages_for(min(num_tokens, sequence.final_len))
        return max(0, needed - len(lease.page_ids))

    def num_used_tokens(self, sequences: Iterable[Sequence]) -> int:
        """Tokens whose keys and values stand in pages that these use, shared ones once."""
        num_own = sum(
            sequence.num_planned - sequence.lease.num_shared * self.page_size
            for sequence in sequences
            if sequence.lease is not None
        )
        return num_own + (self.tree.num_pages - self.tree.num_unused) * self.page_size

    def num_held_only_by(self, sequences: Iterable[Sequence]) -> int:
        """Pages that would be free or unused without these sequences."""
        num_own = 0
        num_users: Counter[PageNode] = Counter()
        for sequence in sequences:
            if sequence.lease is not None:
                num_own += len(sequence.lease.own_page_ids)
                num_users.update(sequence.lease.tip.path())
        return num_own + sum(node.num_users == users for node, users in num_users.items())

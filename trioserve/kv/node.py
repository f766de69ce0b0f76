"""`PageNode`: one page of the prefix tree."""

from typing import TYPE_CHECKING

from attrs import define, field

from trioserve.core import CacheNamespace, PageId, StepNumber

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_PAGE = PageId(-1)


@define(eq=False)
class PageNode:
    """A page whose tokens follow those of its parent's page. Written by the tree alone."""

    page_id: PageId
    """`NO_PAGE` for a root."""
    token_ids: tuple[int, ...]
    """Those whose keys and values the page holds; none for a root."""
    parent: "PageNode | None"
    namespace: CacheNamespace | None
    depth: int
    """Pages from the first one to this: 0 for a root."""
    children: "dict[tuple[int, ...], PageNode]" = field(init=False, factory=dict)
    tier_key: bytes | None = field(init=False, default=None)
    """Its name in the tiers below, once it was asked for there."""
    num_users: int = field(init=False, default=0)
    """Leases that go through this page. A parent has at least as many as its children."""
    fence: StepNumber | None = field(init=False, default=None)
    """The newest step that a past user read the page in."""
    used_at: int = field(init=False, default=0)
    """When the last user left, on the tree's clock."""

    @property
    def is_root(self) -> bool:
        """Whether it stands for the beginning of all prefixes of its namespace."""
        return self.parent is None

    @property
    def is_evictable_leaf(self) -> bool:
        """Whether it may be evicted now."""
        return not self.is_root and not self.children and self.num_users == 0

    def path(self) -> "list[PageNode]":
        """The nodes from the first page down to this one, without the root."""
        return list(self._upwards())[::-1]

    def _upwards(self) -> "Iterator[PageNode]":
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

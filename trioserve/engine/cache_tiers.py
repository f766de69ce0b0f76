"""`CacheTiers`: pages kept below the device's pool, and brought back for who waits for them."""

from collections import deque
from collections.abc import Callable

from attrs import define, field, frozen

from trioserve.core import CacheNamespace, PageId
from trioserve.engine.served import PageMemory
from trioserve.kv.node import PageNode
from trioserve.scheduler.loads import PageLoad
from trioserve.scheduler.scheduler import Scheduler
from trioserve.scheduler.sequence import Sequence
from trioserve.tiers.host import HostTier
from trioserve.tiers.page_key import KeySpace, PageKey
from trioserve.tiers.storage import StorageTier

LOAD_PAGES = 8
"""Pages brought back between two looks at whether they are still wanted: a few milliseconds."""
WRITE_PAGES = 8
"""Pages written in one go: reads wait for it."""
MAX_UNWRITTEN_BYTES = 64 << 20
"""Of pages that wait to be written. What comes while there are more is not kept."""


@frozen
class LoadBatch:
    """Some pages of a load: where they come from is found, and what they go into is taken."""

    load: PageLoad
    keys: tuple[PageKey, ...]
    page_ids: tuple[PageId, ...]
    before: tuple[PageKey, ...]
    """The keys of the prefix's pages before these."""


@frozen
class UnwrittenPage:
    """A copy on its way to storage."""

    key: PageKey
    block: bytes
    path: tuple[PageKey, ...]
    """The keys of the prefix that it is part of: used, too, however long it has been there."""


@frozen
class Filled:
    """The first pages of a batch, which are filled now, by tier."""

    num_host: int
    num_storage: int

    @property
    def num_pages(self) -> int:
        """All of them."""
        return self.num_host + self.num_storage


@define(eq=False)
class CacheTiers:
    """One for each scheduler that has any. `TierWorker` runs what blocks.

    All but `fill`, `write` and `clear` belongs to the event loop's thread, and no method is a
    checkpoint. A page is written behind: copied when the step that filled it is committed, for the
    device may use its pages again as it likes. A prefix is read ahead: when its sequence comes up
    in the queue, which then waits for it.
    """

    scheduler: Scheduler
    memory: PageMemory
    keys: KeySpace
    host: HostTier | None
    storage: StorageTier | None
    on_work: Callable[[], None] = field(init=False, default=lambda: None)
    """Called when there is a load or something to write."""
    loads: deque[PageLoad] = field(init=False, factory=deque)
    """Those that nobody serves yet."""
    num_dropped: int = field(init=False, default=0)
    """Pages that were not written because writing did not keep up."""
    _unwritten: deque[UnwrittenPage] = field(init=False, factory=deque)
    _unwritten_keys: set[PageKey] = field(init=False, factory=set)
    """Those, and what is being written."""
    _num_unwritten_bytes: int = field(init=False, default=0)
    _load_keys: dict[PageLoad, list[PageKey]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.scheduler.seek = self.seek

    def seek(self, sequence: Sequence) -> None:
        """Begin a load if a tier has what comes after the sequence's cached prefix."""
        if sequence.namespace is None:
            return
        num_tokens, page_size = sequence.num_reusable, self.keys.page_size
        found = self.scheduler.tree.find(sequence.namespace, sequence.known_ids, num_tokens)
        depth = 0 if found is None else found.depth
        key = _root_key(self.keys, sequence.namespace) if found is None else self._key_of(found)
        keys: list[PageKey] = []
        for begin in range(depth * page_size, num_tokens - page_size + 1, page_size):
            key = self.keys.following(key, sequence.known_ids[begin : begin + page_size])
            if not self._has(key):
                break
            keys.append(key)
        if keys:
            load = self.scheduler.loads.begin(sequence, (depth + len(keys)) * page_size)
            self._load_keys[load] = [*self._path_of(load.lease.tip), *keys]
            self.loads.append(load)
            self.on_work()

    def keep(self, nodes: list[PageNode]) -> None:
        """Take copies of pages that have just entered the tree, parents first."""
        path = self._path_of(nodes[-1])
        for node in nodes:
            key = self._key_of(node)
            is_for_host = self.host is not None and not self.host.contains(key)
            is_for_storage = self._is_to_be_written(node, key)
            if not (is_for_host or is_for_storage):
                continue
            block = self.memory.read(node.page_id)
            if self.host is not None and is_for_host:
                self.host.put(key, block)
            if is_for_storage:
                self._unwritten.append(UnwrittenPage(key, block, path))
                self._unwritten_keys.add(key)
                self._num_unwritten_bytes += len(block)
        if self.host is not None:
            self.host.touch(path)
        if self._unwritten:
            self.on_work()

    def take_batch(self, load: PageLoad) -> LoadBatch | None:
        """The next pages of the load, or None if it is over or there are no pages to fill."""
        begin = load.lease.num_shared
        keys = self._load_keys[load][begin : begin + LOAD_PAGES]
        if not keys or not load.is_wanted:
            return None
        page_ids = self.scheduler.loads.take(load, len(keys))
        if not page_ids:
            return None
        before = tuple(self._load_keys[load][:begin])
        return LoadBatch(load, tuple(keys[: len(page_ids)]), tuple(page_ids), before)

    def fill(self, batch: LoadBatch) -> Filled:
        """Bring the contents back, up to the first page that is not there any more. Blocks."""
        blocks = [None if self.host is None else self.host.get(key) for key in batch.keys]
        num_host = blocks.index(None) if None in blocks else len(blocks)
        read = [] if self.storage is None else self.storage.read(batch.keys[num_host:])
        num_storage = read.index(None) if None in read else len(read)
        filled = (*blocks[:num_host], *read[:num_storage])
        for page_id, key, block in zip(batch.page_ids, batch.keys, filled, strict=False):
            assert block is not None, "a page was not there"
            self.memory.write(page_id, block)
            if self.host is not None:
                self.host.put(key, block)
        # All of it: pages that came from above, or in an earlier batch, would else be evicted
        # before those that are of no use without them.
        for tier in (self.host, self.storage):
            if tier is not None:
                tier.touch((*batch.before, *batch.keys))
        return Filled(num_host, num_storage)

    def finish_batch(self, batch: LoadBatch, filled: Filled) -> bool:
        """Publish what was filled; whether the load may go on."""
        self.scheduler.loads.publish(batch.load, filled.num_host, filled.num_storage)
        return filled.num_pages == len(batch.page_ids)

    def end_load(self, load: PageLoad) -> None:
        """The load is over, whatever came of it."""
        del self._load_keys[load]
        self.scheduler.loads.end(load)

    def take_unwritten(self) -> list[UnwrittenPage]:
        """Some pages to write, parents first; none if all are on their way."""
        taken = [self._unwritten.popleft() for _ in range(min(WRITE_PAGES, len(self._unwritten)))]
        self._num_unwritten_bytes -= sum(len(page.block) for page in taken)
        return taken

    def write(self, pages: list[UnwrittenPage]) -> None:
        """Write pages that `take_unwritten` gave. Blocks."""
        assert self.storage is not None, "nothing is written without storage"
        self.storage.write([(page.key, page.block) for page in pages])
        for path in dict.fromkeys(page.path for page in pages):
            self.storage.touch(path)

    def note_written(self, pages: list[UnwrittenPage]) -> None:
        """`write` is over."""
        self._unwritten_keys.difference_update(page.key for page in pages)

    def drop_unwritten(self) -> None:
        """Write nothing of what waits for it. Nothing may be being written."""
        self._unwritten.clear()
        self._unwritten_keys.clear()
        self._num_unwritten_bytes = 0

    def clear(self) -> None:
        """Empty the tiers. What is being loaded then finds nothing. Blocks."""
        if self.host is not None:
            self.host.clear()
        if self.storage is not None:
            self.storage.clear()

    def _is_to_be_written(self, node: PageNode, key: PageKey) -> bool:
        if self.storage is None or self._is_kept(key):
            return False
        parent = node.parent
        assert parent is not None, "a root was published"
        is_reachable = parent.is_root or self._is_kept(self._key_of(parent))
        if is_reachable and self._num_unwritten_bytes < MAX_UNWRITTEN_BYTES:
            return True
        # Without the page before it nobody would ever find it.
        self.num_dropped += 1
        return False

    def _is_kept(self, key: PageKey) -> bool:
        return key in self._unwritten_keys or self._is_stored(key)

    def _path_of(self, node: PageNode) -> tuple[PageKey, ...]:
        """The keys from the first page to this one; none for a root."""
        return tuple(self._key_of(each) for each in node.path())

    def _has(self, key: PageKey) -> bool:
        return (self.host is not None and self.host.contains(key)) or self._is_stored(key)

    def _is_stored(self, key: PageKey) -> bool:
        return self.storage is not None and self.storage.contains_prefix([key]) == 1

    def _key_of(self, node: PageNode) -> PageKey:
        """The node's key; made once, from that of its parent."""
        unnamed: list[PageNode] = []
        while node.tier_key is None and node.parent is not None:
            unnamed.append(node)
            node = node.parent
        if node.tier_key is None:
            assert node.namespace is not None, "nothing is kept without a namespace"
            node.tier_key = _root_key(self.keys, node.namespace)
        key = PageKey(node.tier_key)
        for child in reversed(unnamed):
            key = self.keys.following(key, child.token_ids)
            child.tier_key = key
        return key


def _root_key(keys: KeySpace, namespace: CacheNamespace) -> PageKey:
    # Tagged, so that a salt is never taken for anything else that a namespace comes to have.
    return keys.root(() if namespace.salt is None else ("salt", namespace.salt))

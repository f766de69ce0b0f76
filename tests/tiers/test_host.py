"""The host tier against a list, and its bound to the byte."""

from concurrent.futures import ThreadPoolExecutor

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.tiers.kit import key, keys
from trioserve.tiers.host import HostTier
from trioserve.tiers.page_key import PageKey

LIMIT = 100


class HostTierMachine(RuleBasedStateMachine):
    """Lockstep with a list of pairs, the least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = HostTier(LIMIT)
        self.model: list[tuple[PageKey, bytes]] = []
        self.evicted = 0

    @rule(number=st.integers(0, 9))
    def put(self, number: int) -> None:
        payload = bytes([number]) * (number * 12)
        kept = self.tier.put(key(number), payload)
        assert kept is (len(payload) <= LIMIT)
        if kept:
            is_new = not self.take(number)
            self.model.append((key(number), payload))
            while is_new and sum(len(held) for _, held in self.model) > LIMIT:
                self.model.pop(0)
                self.evicted += 1

    @rule(number=st.integers(0, 9))
    def get(self, number: int) -> None:
        pairs = self.take(number)
        self.model += pairs
        assert self.tier.get(key(number)) == (pairs[0][1] if pairs else None)

    @rule(numbers=st.lists(st.integers(0, 9), max_size=4))
    def touch(self, numbers: list[int]) -> None:
        self.tier.touch(keys(*numbers))
        for number in reversed(numbers):
            pairs = self.take(number)
            self.model += pairs

    @rule(number=st.integers(0, 9))
    def discard(self, number: int) -> None:
        self.tier.discard(key(number))
        self.take(number)

    @rule()
    def clear(self) -> None:
        self.tier.clear()
        self.model.clear()

    @rule(numbers=st.lists(st.integers(0, 9), max_size=5))
    def contains(self, numbers: list[int]) -> None:
        held = [any(key(number) == name for name, _ in self.model) for number in numbers]
        assert [self.tier.contains(key(number)) for number in numbers] == held
        expected = held.index(False) if False in held else len(held)
        assert self.tier.contains_prefix(keys(*numbers)) == expected

    @invariant()
    def counts_are_right(self) -> None:
        self.tier.check()
        statistics = self.tier.statistics()
        assert statistics.num_pages == len(self.model)
        assert statistics.held_bytes == sum(len(payload) for _, payload in self.model)
        assert statistics.evicted == self.evicted

    def take(self, number: int) -> list[tuple[PageKey, bytes]]:
        """Take a page out of the model."""
        taken = [pair for pair in self.model if pair[0] == key(number)]
        self.model = [pair for pair in self.model if pair[0] != key(number)]
        return taken


TestHostTier = HostTierMachine.TestCase


def test_the_bound_holds_to_the_byte() -> None:
    tier = HostTier(10)
    assert tier.put(key(1), b"12345")
    assert tier.put(key(2), b"67890")
    assert tier.contains_prefix(keys(1, 2)) == 2
    assert tier.put(key(3), b"1")
    assert not tier.contains(key(1))
    assert tier.statistics().held_bytes == 6
    assert not tier.put(key(4), b"12345678901")
    assert tier.statistics().num_pages == 2


def test_the_end_of_a_touched_prefix_is_dropped_before_its_beginning() -> None:
    tier = HostTier(4)
    for number in range(4):
        tier.put(key(number), b"1")
    tier.touch(keys(0, 1, 2, 3))
    tier.put(key(8), b"12")
    assert tier.contains_prefix(keys(0, 1, 2, 3)) == 2


def test_a_tier_of_no_bytes_holds_nothing() -> None:
    tier = HostTier(0)
    assert not tier.put(key(1), b"1")
    assert tier.get(key(1)) is None
    assert tier.statistics().misses == 1


def test_what_is_held_does_not_change_with_the_buffer_it_came_from() -> None:
    tier, buffer = HostTier(100), bytearray(b"before")
    tier.put(key(1), memoryview(buffer))
    buffer[:] = b"after!"
    assert tier.get(key(1)) == b"before"
    # Items of another size than a byte are counted in bytes.
    tier.put(key(2), memoryview(bytes(16)).cast("f"))
    assert tier.statistics().held_bytes == 6 + 16


def test_threads_do_not_lose_count_of_the_bytes() -> None:
    tier = HostTier(1000)

    def work(thread: int) -> None:
        for number in range(2000):
            tier.put(key((thread + number) % 40), bytes(50 + number % 40 * 0))
            tier.get(key(number % 40))
            tier.discard(key((thread * 7 + number) % 40))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    tier.check()

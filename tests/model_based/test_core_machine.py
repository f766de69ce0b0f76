"""Pool, tree, tiers, scheduler, streams and commit, through any history that hypothesis finds.

The device, the driver and the clients are played by `Core`, which asserts what must hold after
every rule: the census, that no page of a step in flight is free or leased again, that no plan names
an ended sequence, that nothing is billed after an abort, that the counters agree with the requests,
and that every text is the one that the model gives to a sequence alone. At the end everything is
read to its end: nothing may wedge, differ or be left behind.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.model_based.client import Client
from tests.model_based.kit import Core
from tests.model_based.reference import POISON
from trioserve.core import READ_NOTHING, SHARED, CacheNamespace, ReadoutParams, StopParams
from trioserve.engine import choice
from trioserve.engine.abort_reason import AbortReason
from trioserve.errors import EngineDead

CAPACITY_TOKENS = 5
"""A small bound of the streams, so that readers stall within the length of a history."""

tokens = st.sampled_from(tuple(b"abcdef"))
openings = st.sampled_from([b"", b"abc", b"abcdeabcde", b"abcdeabcdabc"]).map(tuple)
prompts = st.builds(
    lambda opening, rest: (*opening, *rest),
    openings,  # so that many begin alike
    st.lists(tokens, min_size=1, max_size=8),
)
strings = st.lists(st.sampled_from(["a", "m", "zz", "eo"]), max_size=2, unique=True).map(tuple)
stops = st.one_of(
    st.builds(
        StopParams,
        strings=strings,
        token_ids=st.sampled_from([frozenset(), frozenset(b"xy")]),
        is_eos_ignored=st.booleans(),
        is_kept=st.booleans(),
        min_tokens=st.sampled_from([0, 0, 3, 9]),
    ),
    st.builds(
        StopParams,
        strings=strings,
        regexes=st.sampled_from([("[aeiou]{2}",), ("z.?[a-m]", "q")]),
        is_kept=st.booleans(),
    ),
)
# Mostly nothing: reading is slow with the fake model.
readouts = st.sampled_from(
    [READ_NOTHING] * 12 + [ReadoutParams(num_top=1, prompt_from=first) for first in (0, 4)]
)
positions = st.integers(0, 1 << 16)


class CoreMachine(RuleBasedStateMachine):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.core: Core | None = None
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(choice, "STREAM_CAPACITY_TOKENS", CAPACITY_TOKENS)

    @initialize(
        num_pages=st.integers(3, 16),
        page_size=st.sampled_from([1, 2, 4]),
        max_running=st.integers(1, 6),
        max_step_tokens=st.integers(1, 24),
        host_pages=st.sampled_from([0, 0, 4, 100]),
        has_storage=st.booleans(),
    )
    def start(
        self,
        num_pages: int,
        page_size: int,
        max_running: int,
        max_step_tokens: int,
        host_pages: int,
        has_storage: bool,
    ) -> None:
        self.core = Core(
            self.depth,
            num_pages,
            page_size,
            max_running,
            max_step_tokens,
            CAPACITY_TOKENS,
            host_pages,
            has_storage,
        )

    @rule(
        asked=st.lists(prompts, min_size=1, max_size=3),
        num_samples=st.integers(1, 3),
        max_tokens=st.integers(0, 20),
        stop=stops,
        readout=readouts,
        namespace=st.sampled_from([SHARED, SHARED, SHARED, CacheNamespace(salt="a"), None]),
        priority=st.sampled_from([0, 0, 0, 1]),
        is_poisoned=st.integers(0, 9).map(lambda number: number == 9),
        is_reading=st.booleans(),
    )
    def submit(
        self,
        asked: list[tuple[int, ...]],
        num_samples: int,
        max_tokens: int,
        stop: StopParams,
        readout: ReadoutParams,
        namespace: CacheNamespace | None,
        priority: int,
        is_poisoned: bool,
        is_reading: bool,
    ) -> None:
        core = self.started()
        fitting = tuple(prompt[: core.capacity] for prompt in asked)
        if is_poisoned:
            fitting = (*fitting[:-1], (*fitting[-1][:-1], POISON))
        client = core.submit(
            fitting,
            # The last token is never fed back, so it needs no slot.
            tuple(min(max_tokens, core.capacity - len(prompt) + 1) for prompt in fitting),
            num_samples,
            stop,
            readout,
            namespace,
            priority,
        )
        client.is_reading = is_reading

    @precondition(lambda self: len(self.started().in_flight) < self.depth)
    @rule()
    def launch(self) -> None:
        self.started().launch()

    @precondition(lambda self: self.started().in_flight)
    @rule()
    def finish(self) -> None:
        self.started().finish()

    @rule(num_rounds=st.integers(1, 20), is_worker_slow=st.booleans())
    def run(self, num_rounds: int, is_worker_slow: bool) -> None:
        core = self.started()
        for _ in range(num_rounds):
            core.round(is_worker_slow=is_worker_slow)
            core.check()

    @precondition(lambda self: self.started().clients)
    @rule(position=positions)
    def read(self, position: int) -> None:
        self.client(position).read()

    @precondition(lambda self: self.started().clients)
    @rule(position=positions)
    def stall_or_read_on(self, position: int) -> None:
        client = self.client(position)
        client.is_reading = not client.is_reading

    @precondition(lambda self: self.started().batch.scheduler.tree.num_unused > 0)
    @rule(num_pages=st.integers(1, 4))
    def evict(self, num_pages: int) -> None:
        self.started().batch.scheduler.tree.evict(num_pages)

    @precondition(lambda self: self.started().worker.is_busy)
    @rule()
    def load(self) -> None:
        self.started().worker.step()

    @precondition(
        lambda self: self.started().worker.is_busy and self.started().worker.storage is not None
    )
    @rule(positions=st.lists(positions, min_size=1, max_size=8))
    def lose(self, positions: list[int]) -> None:
        storage = self.started().worker.storage
        assert storage is not None
        for position in positions:
            storage.lose(position)

    # One rule for all of them, so that most requests live long enough to get somewhere.
    @precondition(lambda self: self.started().clients)
    @rule(position=positions, how=st.sampled_from(["abort", "leave", "fail", "finish and leave"]))
    def end_one(self, position: int, how: str) -> None:
        core, client = self.started(), self.client(position)
        if how == "abort":
            core.abort(client)
        elif how == "fail":
            core.batch.fail(client.stream, EngineDead("of its own"), "failed")
            core.note_abort(client)
        else:
            # A request may finish in the very step whose end its client does not wait for.
            if how == "finish and leave" and core.in_flight:
                core.finish()
            core.close(client)
            assert client.stream not in core.batch.streams

    @precondition(lambda self: len(self.started().clients) > 6)
    @rule()
    def drain(self) -> None:
        core = self.started()
        for client in core.clients:
            core.abort(client, AbortReason.SHUTDOWN)
        while core.in_flight or core.worker.is_busy:
            core.check()
            if core.in_flight:
                core.finish()
            core.worker.step()
        assert not core.launch()
        assert core.batch.pool.num_free + core.batch.scheduler.tree.num_unused == core.num_pages

    @invariant()
    def everything_holds(self) -> None:
        if self.core is not None:
            self.core.check()

    def teardown(self) -> None:
        try:
            if self.core is not None:
                self.core.end()
        finally:
            self.patch.undo()

    def started(self) -> Core:
        assert self.core is not None, "hypothesis starts with the initializing rule"
        return self.core

    def client(self, position: int) -> Client:
        """Any of the clients; new ones are as likely as old ones."""
        clients = self.started().clients
        return clients[position % len(clients)]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2], ids=["depth1", "depth2"])
def test_the_core_keeps_its_promises_in_any_history(depth: int) -> None:
    run_state_machine_as_test(
        lambda: CoreMachine(depth),
        settings=settings(
            # The same histories every time: a red run is about the change under test.
            derandomize=True,
            database=None,
            max_examples=100,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

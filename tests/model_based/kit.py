"""A batch driven by hand, one call at a time, with what must hold between any two."""

from collections import deque
from functools import cache

from attrs import define, evolve, field
from prometheus_client import Counter

from tests.model_based.client import Client
from tests.model_based.reference import POISON, VOCABULARY
from tests.model_based.tiers import Worker
from trioserve.core import (
    SHARED,
    CacheNamespace,
    FinishReason,
    PageId,
    ReadoutParams,
    SamplingParams,
    StopParams,
)
from trioserve.engine.batch import Batch
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.served import ServedModel
from trioserve.engine.statistics import EngineStatistics
from trioserve.engine.stream import RequestStream
from trioserve.kv.pool import PageState
from trioserve.scheduler.plan import StepPlan
from trioserve.scheduler.sequence import Sequence, SequenceState
from trioserve.testing.fake_model import FakeRunner, fake_model


@cache
def any_model() -> ServedModel:
    """A fake model with its tokenizer, which takes longer to make than a history to play."""
    return fake_model(FakeRunner(1, 1))


@define(eq=False)
class Core:
    """Plays driver, device and clients over a real `Batch`; asserts as it goes."""

    depth: int
    num_pages: int
    page_size: int
    max_running: int
    max_step_tokens: int
    capacity_tokens: int
    """The bound of a stream, for the checks: the batch has its own."""
    host_pages: int = 0
    has_storage: bool = False
    worker: Worker = field(init=False)
    batch: Batch = field(init=False)
    runner: FakeRunner = field(init=False)
    statistics: EngineStatistics = field(init=False, factory=EngineStatistics)
    clients: list[Client] = field(init=False, factory=list)
    in_flight: deque[StepPlan] = field(init=False, factory=deque)
    now: float = field(init=False, default=0.0)
    num_sampled: int = field(init=False, default=0)
    num_aborted: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.runner = FakeRunner(self.num_pages, self.page_size, VOCABULARY, poison=POISON)
        model = evolve(
            any_model(),
            runner=self.runner,
            num_pages=self.num_pages,
            page_size=self.page_size,
            max_step_tokens=self.max_step_tokens,
        )
        self.batch = Batch(model, self.max_running, self.statistics, lambda: self.now)
        self.worker = Worker.beside(
            self.batch, self.runner, host_pages=self.host_pages, has_storage=self.has_storage
        )

    @property
    def capacity(self) -> int:
        return self.batch.scheduler.capacity_tokens()

    def submit(
        self,
        prompts: tuple[tuple[int, ...], ...],
        max_tokens: tuple[int, ...],
        num_samples: int,
        stop: StopParams,
        readout: ReadoutParams,
        namespace: CacheNamespace | None = SHARED,
        priority: int = 0,
    ) -> Client:
        """Admit a request as `Engine.open_stream` does; it must fit in the pool."""
        stream = RequestStream(
            request=GenerateRequest(
                "test",
                tuple(
                    Generation(
                        prompt,
                        limit,
                        SamplingParams(temperature=0.0),
                        stop,
                        readout,
                        namespace=namespace,
                        priority=priority,
                    )
                    for prompt, limit in zip(prompts, max_tokens, strict=True)
                ),
                num_samples,
            ),
            deadline=float("inf"),
            on_taken=lambda: None,
            on_deadline=lambda _stream: None,
            opened_at=self.now,
        )
        self.batch.add(stream)
        self.clients.append(Client(stream))
        return self.clients[-1]

    def launch(self) -> bool:
        """Plan and launch one step; False if there is nothing to compute now."""
        assert len(self.in_flight) < self.depth
        running = [held for held in self.batch.scheduler._places.running if held.has_credit]
        before = {held: held.num_preemptions for held in running}
        plan = self.batch.plan()
        for held in running:
            if held.num_preemptions > before[held]:
                oldest = min(other.rank for other in running)
                assert held.rank > oldest, "the oldest sequence was preempted for a newer one"
        if plan is None:
            if not self.in_flight and not self.worker.is_busy:
                self._check_nothing_to_do()
            return False
        self._check_plan(plan)
        self.in_flight.append(plan)
        return True

    def finish(self) -> None:
        """The device is done with the oldest step: only now does it read and write pages."""
        plan = self.in_flight.popleft()
        self.now += 1.0
        result = self.runner.compute(plan)
        self.num_sampled += sum(token is not None for token in result.token_ids)
        self.batch.commit(plan, result)
        self.batch.retire(plan)
        for client in self.clients:
            if client.stream.error is not None:
                self.note_abort(client)

    def round(self, *, is_worker_slow: bool = False) -> bool:
        """What the driver does in one round; then readers that read take what there is."""
        while len(self.in_flight) < self.depth and self.launch():
            pass
        is_busy = bool(self.in_flight) or self.worker.is_busy
        if self.in_flight:
            self.finish()
        if not is_worker_slow:
            self.worker.step()
        for client in self.clients:
            if client.is_reading:
                client.read()
        return is_busy

    def abort(self, client: Client, reason: str = "cancelled") -> None:
        """End the request and remember what it may be billed for."""
        self.batch.abort(client.stream, reason)
        self.note_abort(client)

    def close(self, client: Client) -> None:
        """Leave the request's scope."""
        self.batch.close(client.stream)
        self.note_abort(client)

    def note_abort(self, client: Client) -> None:
        is_cut_short = any(
            choice.finish is not None and choice.finish.reason is FinishReason.ABORT
            for choice in client.stream.choices
        )
        self.num_aborted += is_cut_short and not client.is_aborted
        client.is_aborted = client.is_aborted or is_cut_short
        if client.num_billed_at_abort is None:
            client.num_billed_at_abort = client.stream.num_output_tokens

    def check(self) -> None:
        """Everything that must hold between any two calls."""
        self.batch.check()
        census = self.batch.pool.statistics()
        assert census.total == self.num_pages
        assert census.free + census.leased + census.cached + census.quarantined == census.total
        assert self.batch.scheduler.num_running <= self.max_running
        self._check_pages_in_flight()
        self._check_cache()
        for client in self.clients:
            client.check()
            for choice in client.stream.choices:
                assert choice.num_untaken <= self.capacity_tokens, "ahead of its reader"
                assert (choice.finish is not None) == (choice.sequence.state is SequenceState.ENDED)
        self._check_counters()

    def end(self) -> None:
        """Let all be read to its end and leave; nothing may be left behind."""
        for client in self.clients:
            client.is_reading = True
            client.read()
        num_rounds = 0
        while self.round():
            self.check()
            num_rounds += 1
            assert num_rounds < 20_000, "a livelock"
        for client in self.clients:
            assert client.stream.is_finished
            client.check()
            if not client.is_aborted:
                for text, expected in zip(client.texts, client.expected, strict=True):
                    assert expected is not None, "a row that fails ends its request"
                    assert text == expected.text
            self.close(client)
        self.check()
        assert self.batch.pool.num_free + self.batch.scheduler.tree.num_unused == self.num_pages
        assert self.batch.is_idle
        assert not self.batch.streams
        assert self.batch.scheduler.num_running == self.batch.scheduler.num_waiting == 0

    def _check_plan(self, plan: StepPlan) -> None:
        assert plan.rows, "an empty plan was launched"
        sequences = [row.sequence for row in plan.rows]
        assert len(set(sequences)) == len(sequences), "two rows of one sequence"
        ended = {
            choice.sequence
            for client in self.clients
            for choice in client.stream.choices
            if choice.finish is not None
        }
        assert not ended & set(sequences), "a plan names a sequence that has ended"
        for row in plan.rows:
            assert row.sequence.lease is not None
            assert row.page_ids == tuple(row.sequence.lease.page_ids)
            assert len(row.page_ids) == -(-row.end // self.page_size)
            assert row.num_tokens > 0

    def _check_nothing_to_do(self) -> None:
        for client in self.clients:
            for choice in client.stream.choices:
                assert choice.finish is not None or not choice.sequence.has_credit, (
                    f"wedged: {choice.sequence} could go on and nothing is in flight"
                )

    def _check_pages_in_flight(self) -> None:
        pool = self.batch.pool
        free, leased = pool.pages_in(PageState.FREE), pool.pages_in(PageState.LEASED)
        filling = self.worker.filling
        owners: dict[PageId, Sequence | None] = {
            page: choice.sequence
            for client in self.clients
            for choice in client.stream.choices
            if choice.sequence.lease is not None
            for page in choice.sequence.lease.own_page_ids
        }
        owners |= dict.fromkeys(filling.page_ids if filling is not None else ())
        for plan in self.in_flight:
            for row in plan.rows:
                for page in row.page_ids:
                    assert page not in free, f"page {page} of step {plan.number} is free"
                    if page in leased:
                        # The same sequence must not get it back either, once it was preempted.
                        owner = owners[page]
                        assert owner is row.sequence, f"page {page} was leased again"
                        assert row.sequence.epoch == row.epoch, f"page {page} was leased again"

    def _check_cache(self) -> None:
        """Every cached page holds the tokens that it is found by, and nobody writes to it."""
        cached = {}
        for node in self.batch.scheduler.tree.nodes():
            begin = node.page_id * self.page_size
            held = tuple(self.runner._slots[begin : begin + self.page_size])
            assert held == node.token_ids, f"page {node.page_id} has {held} for {node.token_ids}"
            cached[node.page_id] = node
        for plan in self.in_flight:
            for row in plan.rows:
                for page in row.page_ids[row.start // self.page_size :]:
                    assert page not in cached, f"step {plan.number} writes to a cached page"

    def _check_counters(self) -> None:
        billed = sum(client.stream.num_output_tokens for client in self.clients)
        assert value(self.statistics.generation_tokens) == billed
        assert value(self.statistics.wasted_tokens) == self.num_sampled - billed
        prompts = sum(client.stream.num_prompt_tokens for client in self.clients)
        assert value(self.statistics.prompt_tokens) == prompts
        assert value(self.statistics.steps) == self.batch.last_launched
        assert value(self.statistics.aborted) == self.num_aborted


def value(counter: Counter) -> float:
    """A counter's value, over all its labels."""
    samples = [sample for metric in counter.collect() for sample in metric.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))

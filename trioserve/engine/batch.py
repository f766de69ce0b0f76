"""`Batch`: the serving state, pool, scheduler and open streams, and every change of it.

No method is a checkpoint. The driver calls `plan`, `commit` and `retire`; requests call `add` and
`abort`, from whatever task they run in, cancelled ones included.
"""

from collections.abc import Callable
from math import inf

from attrs import define, field, frozen

from trioserve.core import Finish, FinishReason, SequenceId, StepNumber, TokenLogprobs
from trioserve.device.base import RowReadout, StepResult
from trioserve.engine.abort_reason import AbortReason
from trioserve.engine.cache_tiers import CacheTiers
from trioserve.engine.choice import Choice, Prompt
from trioserve.engine.handles import Handles
from trioserve.engine.served import ServedModel
from trioserve.engine.statistics import EngineStatistics
from trioserve.engine.stream import RequestStream
from trioserve.errors import RequestFailed, TrioserveError
from trioserve.kv.pool import PagePool
from trioserve.scheduler.plan import PlanRow, StepPlan
from trioserve.scheduler.scheduler import Scheduler, SchedulerLimits
from trioserve.scheduler.sequence import Sequence
from trioserve.text.regex_stops import SearchBudget


@frozen
class _FreeingPages:
    """An abort whose pages wait for `fence`."""

    fence: StepNumber
    aborted_at: float
    retired_before: StepNumber


@define(eq=False)
class Batch:
    """One per model and device."""

    model: ServedModel
    max_running: int
    statistics: EngineStatistics
    clock: Callable[[], float]
    pool: PagePool = field(init=False)
    scheduler: Scheduler = field(init=False)
    streams: set[RequestStream] = field(init=False, factory=set)
    last_launched: StepNumber = field(init=False, default=StepNumber(0))
    last_retired: StepNumber = field(init=False, default=StepNumber(0))
    handles: Handles = field(init=False, factory=Handles)
    """Open streams by the names that clients know them by."""
    tiers: CacheTiers | None = field(init=False, default=None)
    """Set once, before the first request."""
    _live: dict[Sequence, tuple[RequestStream, Choice]] = field(init=False, factory=dict)
    _num_generated: int = field(init=False, default=0)
    _next_sequence: int = field(init=False, default=1)
    _freeing: list[_FreeingPages] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.pool = PagePool(self.model.num_pages)
        self.scheduler = Scheduler(
            self.pool,
            SchedulerLimits(
                page_size=self.model.page_size,
                max_running=self.max_running,
                max_step_tokens=self.model.max_step_tokens,
            ),
        )

    @property
    def is_idle(self) -> bool:
        """Nothing running, waiting or in flight."""
        return not self._live and self.last_launched == self.last_retired

    def add(self, stream: RequestStream) -> None:
        """Enqueue every choice of the request, whole."""
        stream.choices = self._new_choices(stream)
        self.streams.add(stream)
        self.handles.add(stream)
        self.statistics.prompt_tokens.inc(stream.num_prompt_tokens)
        for choice in stream.choices:
            self._live[choice.sequence] = (stream, choice)
            self.scheduler.add(choice.sequence)
            if choice.grammar is not None and choice.grammar.is_finished:
                # Only the empty text is allowed: there is nothing to compute.
                self._end(choice, Finish(FinishReason.STOP))
                stream.notify(choice)
                if stream.is_finished:
                    stream.mark_started()

    def abort(self, stream: RequestStream, reason: AbortReason) -> None:
        """End what is left of the request. Idempotent: an ended choice stays as it ended.

        From here no further step includes it, no token is appended or billed; its pages are free
        when the steps in flight that name them have retired.
        """
        self._abort(stream, stream.choices, reason)

    def abort_generation(
        self, stream: RequestStream, generation_index: int, reason: AbortReason
    ) -> None:
        """The same for the samples of one of the request's prompts; the others go on."""
        num_samples = stream.request.num_samples
        first = generation_index * num_samples
        self._abort(stream, stream.choices[first : first + num_samples], reason)

    def abort_expired(self) -> float:
        """Abort requests past their deadline, and return the next deadline that comes up.

        Readers look at their own deadline, but not while they are stuck in a write.
        """
        now, next_deadline = self.clock(), inf
        for stream in self.streams:
            if stream.deadline == inf or stream.is_finished:
                continue
            if stream.deadline <= now:
                self.abort(stream, AbortReason.TIMEOUT)
            else:
                next_deadline = min(next_deadline, stream.deadline)
        return next_deadline

    def close(self, stream: RequestStream) -> None:
        """The request's scope is left, for whatever reason: the one exit of every request."""
        if stream.is_closed:
            return
        stream.is_closed = True
        self.abort(stream, AbortReason.CANCELLED)
        self.streams.discard(stream)
        self.handles.remove(stream)
        self.statistics.e2e_s.observe(self.clock() - stream.opened_at)

    def fail(self, stream: RequestStream, error: TrioserveError, reason: AbortReason) -> None:
        """End the request with an error that its reader gets."""
        self.abort(stream, reason)
        stream.fail(error)

    def plan(self) -> StepPlan | None:
        """The next step, or None if there is nothing to compute now. Must be launched."""
        recomputed_before = self.scheduler.num_recomputed_tokens
        plan = self.scheduler.plan(StepNumber(self.last_launched + 1))
        if plan is None:
            return None
        self.last_launched = plan.number
        self.statistics.steps.inc()
        self.statistics.recomputed_tokens.inc(
            self.scheduler.num_recomputed_tokens - recomputed_before
        )
        for row in plan.rows:
            stream, choice = self._live[row.sequence]
            if not stream.is_started:
                self.statistics.queue_s.observe(self.clock() - stream.opened_at)
                stream.mark_started()
            if row.is_first and choice.index % stream.request.num_samples == 0:
                # Prompt tokens are counted once, whatever the number of samples.
                self.statistics.cached_tokens.inc(row.start)
                self.statistics.hits.add(row.num_prompt, row.start)
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> None:
        """Append the sampled tokens of rows that are still wanted, and end what they end.

        Commit comes before retire: a page that a commit keeps must not have been free meanwhile.
        """
        failures = {failure.row: failure.message for failure in result.failures}
        generated_before = self._num_generated
        for index, (row, token_id) in enumerate(zip(plan.rows, result.token_ids, strict=True)):
            # Aborted or preempted since it was planned: nobody may see what was computed.
            if row.sequence.epoch != row.epoch:
                self.statistics.wasted_tokens.inc(token_id is not None)
                continue
            stream, choice = self._live[row.sequence]
            if index in failures:
                self.fail(stream, RequestFailed(failures[index]), AbortReason.FAILED)
            else:
                self._commit_row(stream, choice, row, token_id, result.readouts.get(index))
        self.statistics.throughput.add(self._num_generated - generated_before, self.clock())

    def retire(self, plan: StepPlan) -> None:
        """The device is done with the step: pages that waited for it are free."""
        self.last_retired = plan.number
        self.pool.retire(plan.number)
        now = self.clock()
        for freeing in [freed for freed in self._freeing if freed.fence <= plan.number]:
            self._freeing.remove(freeing)
            self.statistics.cancel_to_free_s.observe(now - freeing.aborted_at)
            self.statistics.cancel_to_free_steps.observe(freeing.fence - freeing.retired_before)

    def flush_prefixes(self) -> bool:
        """Forget all cached prefixes; false, and nothing is done, while a sequence runs or waits.

        A step in flight for what has ended is no work: pages that it names are free when it
        retires.
        """
        if self._live:
            return False
        self.scheduler.tree.flush()
        return True

    def check(self) -> None:
        """Assert the page census and the scheduler's books."""
        self.pool.check()
        self.scheduler.check()

    def _commit_row(
        self,
        stream: RequestStream,
        choice: Choice,
        row: PlanRow,
        token_id: int | None,
        readout: RowReadout | None,
    ) -> None:
        published = self.scheduler.publish(row)
        if published and self.tiers is not None:
            self.tiers.keep(published)
        if readout is not None:
            choice.output.add_readout(row.target_start, readout)
        if token_id is not None:
            self._commit_token(stream, choice, token_id, readout.sampled if readout else None)
        elif choice.sequence.max_tokens == 0 and row.end == len(choice.sequence.prompt_ids):
            self._end(choice, Finish(FinishReason.LENGTH))
            stream.notify(choice)

    def _commit_token(
        self,
        stream: RequestStream,
        choice: Choice,
        token_id: int,
        logprobs: TokenLogprobs | None,
    ) -> None:
        now, num_before = self.clock(), choice.num_tokens
        if choice.num_tokens == 0:
            self.statistics.time_to_first_token_s.observe(now - stream.opened_at)
        else:
            self.statistics.inter_token_s.observe(now - choice.last_token_at)
        choice.last_token_at = now
        try:
            finish = choice.commit(token_id, logprobs)
            while finish is None and choice.forced:
                finish = choice.commit_forced()
        except TrioserveError as error:
            self.fail(stream, error, AbortReason.FAILED)
            return
        finally:
            self._num_generated += choice.num_tokens - num_before
            self.statistics.generation_tokens.inc(choice.num_tokens - num_before)
        if finish is not None:
            self._end(choice, finish)
        stream.notify(choice)

    def _abort(
        self, stream: RequestStream, choices: tuple[Choice, ...], reason: AbortReason
    ) -> None:
        # The newest first: taking a quarter of a million off the front of the queue, one by one,
        # holds everybody up for seconds.
        unfinished = [choice for choice in reversed(choices) if choice.finish is None]
        if not unfinished:
            return
        if not stream.is_cut_short:
            stream.is_cut_short = True
            self.statistics.aborted.labels(reason).inc()
        fences = [choice.sequence.last_step for choice in unfinished if choice.sequence.lease]
        for choice in unfinished:
            self._end(choice, Finish(FinishReason.ABORT))
            stream.notify(choice)
        self._time_freeing(max((fence for fence in fences if fence is not None), default=None))
        if stream.is_finished:
            stream.mark_started()

    def _end(self, choice: Choice, finish: Finish) -> None:
        """The one way out for a sequence: it leaves the batch and its lease ends."""
        self.scheduler.end(choice.sequence)
        del self._live[choice.sequence]
        choice.end(finish)

    def _time_freeing(self, fence: StepNumber | None) -> None:
        if fence is not None and fence > self.last_retired:
            self._freeing.append(_FreeingPages(fence, self.clock(), self.last_retired))
        else:
            self.statistics.cancel_to_free_s.observe(0.0)
            self.statistics.cancel_to_free_steps.observe(0)

    def _new_choices(self, stream: RequestStream) -> tuple[Choice, ...]:
        """Samples of a prompt stand together, in the order of the prompts."""
        budget = SearchBudget()
        choices: list[Choice] = []
        for generation in stream.request.generations:
            prompt = Prompt.of(generation, self.model.tokenizer, budget)
            for _ in range(stream.request.num_samples):
                sequence_id = SequenceId(self._next_sequence)
                self._next_sequence += 1
                choices.append(Choice.of(len(choices), prompt, sequence_id))
        return tuple(choices)

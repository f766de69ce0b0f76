"""`Sequence`: one sample of one prompt on its way through the batch."""

from collections.abc import Callable
from collections.abc import Sequence as ReadOnlyList
from enum import Enum, auto

from attrs import define, field

from trioserve.core import (
    NOTHING_CACHED,
    READ_NOTHING,
    CachedTokens,
    CacheNamespace,
    ReadoutParams,
    SamplingParams,
    SequenceId,
    StepNumber,
    TokenMask,
)
from trioserve.kv.lease import PageLease


class SequenceState(Enum):
    """Where the scheduler keeps a sequence."""

    WAITING = auto()
    """In the queue, without pages: new, or preempted."""
    RUNNING = auto()
    """In the batch, holding one of the running slots."""
    PAUSED = auto()
    """Holds pages but no slot: its reader has not taken what was produced."""
    ENDED = auto()
    """Finished or aborted; holds nothing."""


@define(eq=False)
class Sequence:
    """The scheduler's view of one sample: its tokens, its pages and how far both have come.

    Written by the scheduler (plan, preempt, end) and by the engine's commit (`append`), on one
    thread.

        token_ids   [ prompt ……………………… | output …………… ] (sampled, in flight: num_in_flight)
        num_planned [ computed or being computed ]

    A sequence needs computing while num_planned is short of all its tokens, the ones in flight
    included; when a step's rows reach that end the step samples the next token. One whose
    `max_tokens` is 0 has its prompt computed, for what is read from it, and samples nothing.
    """

    id: SequenceId
    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    sample_index: int
    credit: Callable[[], int]
    """Tokens that may still be produced before the reader has to take some; never negative."""
    readout: ReadoutParams = READ_NOTHING
    min_tokens: int = 0
    end_ids: frozenset[int] = frozenset()
    """Tokens that end it; masked until there are `min_tokens`."""
    mask: TokenMask | None = None
    """What may be drawn next depends on all tokens before: it is not planned while one is in
    flight."""
    namespace: CacheNamespace | None = None
    """Where its prefix may be found and is left for others; None shares nothing."""
    priority: int = 0
    """Higher ones are served first."""
    state: SequenceState = field(init=False, default=SequenceState.WAITING)
    lease: PageLease | None = field(init=False, default=None)
    num_planned: int = field(init=False, default=0)
    num_in_flight: int = field(init=False, default=0)
    """Tokens that launched steps will sample and that are not committed yet."""
    epoch: int = field(init=False, default=0)
    """Raised when results in flight become void (preemption, end)."""
    last_step: StepNumber | None = field(init=False, default=None)
    """The newest step that names its pages: the fence for releasing them."""
    num_preemptions: int = field(init=False, default=0)
    cached: CachedTokens | None = field(init=False, default=None)
    """Prompt tokens that its first admission found in the cache; None before that."""
    restored: CachedTokens = field(init=False, default=NOTHING_CACHED)
    """Tokens that were loaded for it from the tiers below, while it waited."""
    is_sought: bool = field(init=False, default=False)
    """Whether the tiers below were asked for its prefix since it came into the queue."""
    num_overtaken: int = field(init=False, default=0)
    """How often a newer sequence was admitted first, for its longer cached prefix."""
    num_computed_high: int = field(init=False, default=0)
    """The most tokens ever computed: what lies below it is computed again after preemption."""
    _token_ids: list[int] | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        assert self.prompt_ids, "a sequence needs at least one prompt token"

    @property
    def token_ids(self) -> list[int]:
        """The prompt and what was generated.

        Made when first computed: until then all samples of a prompt share it. 128 samples of 2048
        prompts wait in one request, and a copy for each is more memory than a machine has.
        """
        if self._token_ids is None:
            self._token_ids = list(self.prompt_ids)
        return self._token_ids

    @property
    def known_ids(self) -> ReadOnlyList[int]:
        """Like `token_ids`, for reading, and without making a copy for it."""
        return self.prompt_ids if self._token_ids is None else self._token_ids

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and generated, without those in flight."""
        return len(self.known_ids)

    @property
    def num_output(self) -> int:
        """Tokens generated and committed."""
        return self.num_tokens - len(self.prompt_ids)

    @property
    def num_missing(self) -> int:
        """Tokens that must be fed before the next one can be sampled; 0 if nothing is to do."""
        if self.mask is not None and self.num_in_flight > 0:
            return 0
        if self.num_output + self.num_in_flight >= self.max_tokens > 0:
            return 0
        return self.num_tokens + self.num_in_flight - self.num_planned

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller is served first: a higher priority, then an earlier arrival."""
        return (-self.priority, self.id)

    @property
    def num_reusable(self) -> int:
        """The most tokens that may be taken from the cache.

        The last one is always fed, for the logits after it; so is the one before each prompt token
        whose logprobs are read.
        """
        first_read = self.readout.prompt_from
        last = self.num_tokens - 1
        return last if first_read is None else min(last, max(0, first_read - 1))

    @property
    def final_len(self) -> int:
        """Positions that it can come to need: the last token is never fed."""
        return len(self.prompt_ids) + max(0, self.max_tokens - 1)

    @property
    def masked_ids(self) -> frozenset[int]:
        """What must not be drawn next."""
        is_early = self.num_output + self.num_in_flight < self.min_tokens
        return self.end_ids if is_early else frozenset()

    @property
    def has_credit(self) -> bool:
        """Whether the reader has room for one more token beyond those in flight."""
        return self.credit() > self.num_in_flight

    def append(self, token_id: int) -> None:
        """Commit a sampled token. Called by the engine's commit for live rows only."""
        assert self.num_in_flight > 0, "a token was committed that no step had sampled"
        self.num_in_flight -= 1
        self.token_ids.append(token_id)

    def append_forced(self, token_id: int) -> None:
        """Commit a token that no step has sampled: `mask` leaves no other. Nothing is in flight."""
        assert self.num_in_flight == 0, f"{self.num_in_flight} tokens are in flight before it"
        self.token_ids.append(token_id)

    def drop_computed(self) -> None:
        """Give the pages back and void what is in flight; the tokens stay. Not a checkpoint.

        The one place where a sequence's lease ends, whatever state it was in.
        """
        if self.lease is not None:
            self.lease.release(self.last_step)
            self.lease = None
        self.epoch += 1
        self.num_planned = 0
        self.num_in_flight = 0

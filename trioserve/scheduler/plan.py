"""What one step computes: frozen rows, made by the scheduler, read by runner and commit."""

from attrs import frozen

from trioserve.core import (
    READ_NOTHING,
    PageId,
    ReadoutParams,
    SamplingParams,
    StepNumber,
    TokenMask,
)
from trioserve.scheduler.sequence import Sequence


@frozen
class PlanRow:
    """One sequence's part of a step: a prefill chunk, or one token of decode.

    The tokens fed have the positions start … start + num_tokens - 1; `page_ids` are the
    sequence's pages in order and cover all of them. When `is_carried`, the one token fed is the
    token that this sequence samples in the step launched just before, which the host has not seen.
    """

    sequence: Sequence
    epoch: int
    """The sequence's epoch when planned; a result for an older epoch is dropped."""
    start: int
    token_ids: tuple[int, ...]
    is_carried: bool
    page_ids: tuple[PageId, ...]
    is_sampled: bool
    """Draw a token from the logits of the row's last position."""
    sampling: SamplingParams
    sample_index: int
    num_prompt: int = 0
    """Tokens of the prompt, for penalties: what comes after them was generated."""
    history: tuple[int, ...] = ()
    """All tokens that the host knows, prompt first; only where `sampling` has penalties. A carried
    token comes after them."""
    masked_ids: frozenset[int] = frozenset()
    """Must not be drawn: they would end the choice before its `min_tokens`."""
    mask: TokenMask | None = None
    """What may be drawn at all, where something is drawn; never with a carried token."""
    readout: ReadoutParams = READ_NOTHING
    target_start: int = 0
    """Position of the first of `target_ids`."""
    target_ids: tuple[int, ...] = ()
    """Prompt tokens whose logprobs are read; the logits for position p are those of p - 1, which
    this row feeds."""

    @property
    def num_tokens(self) -> int:
        """Tokens fed: the known ones, or the one carried over on the device."""
        return 1 if self.is_carried else len(self.token_ids)

    @property
    def end(self) -> int:
        """Position after the last token fed: where a sampled token will stand."""
        return self.start + self.num_tokens

    @property
    def is_first(self) -> bool:
        """Whether it is its sequence's first row of all: it begins where the cached prefix ends."""
        cached = self.sequence.cached
        return (
            self.sequence.num_preemptions == 0 and cached is not None and self.start == cached.total
        )

    @property
    def is_end_read(self) -> bool:
        """Whether something is read at the row's last position: a token is drawn from it, or its
        state is that of a prompt after which nothing is drawn."""
        return self.is_sampled or (
            self.readout.has_hidden_state
            and self.sequence.max_tokens == 0
            and self.end == self.num_prompt
        )


@frozen
class StepPlan:
    """All rows of one step."""

    number: StepNumber
    rows: tuple[PlanRow, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(row.num_tokens for row in self.rows)

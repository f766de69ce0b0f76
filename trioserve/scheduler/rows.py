"""`make_row`: one sequence's part of a step."""

from trioserve.scheduler.plan import PlanRow
from trioserve.scheduler.sequence import Sequence


def make_row(sequence: Sequence, num_fed: int) -> PlanRow:
    """A row that feeds the sequence's next `num_fed` tokens, for which its lease has pages."""
    start = sequence.num_planned
    known = tuple(sequence.token_ids[start : start + num_fed])
    is_carried = not known
    # Tokens in flight are sampled one at a time, so a row that feeds one feeds nothing else.
    assert is_carried or len(known) == num_fed, f"{num_fed} tokens from {start}: {known}"
    assert sequence.lease is not None, f"sequence {sequence.id} runs without a lease"
    is_sampled = num_fed == sequence.num_missing and sequence.max_tokens > 0
    has_penalties = sequence.sampling.has_penalties
    targets = _targets(sequence, start, num_fed)
    return PlanRow(
        sequence=sequence,
        epoch=sequence.epoch,
        start=start,
        token_ids=known,
        is_carried=is_carried,
        page_ids=tuple(sequence.lease.page_ids),
        is_sampled=is_sampled,
        sampling=sequence.sampling,
        sample_index=sequence.sample_index,
        num_prompt=len(sequence.prompt_ids),
        history=tuple(sequence.token_ids) if is_sampled and has_penalties else (),
        masked_ids=sequence.masked_ids if is_sampled else frozenset(),
        mask=sequence.mask if is_sampled else None,
        readout=sequence.readout,
        target_start=targets.start,
        target_ids=sequence.prompt_ids[targets.start : targets.stop],
    )


def _targets(sequence: Sequence, start: int, num_fed: int) -> range:
    """Positions of the prompt tokens whose logprobs a row from `start` on can be read for."""
    first = sequence.readout.prompt_from
    if first is None:
        return range(0)
    return range(max(first, start + 1), min(start + num_fed + 1, len(sequence.prompt_ids)))

"""`StepBudget`: how many tokens one step may compute, shared by decode and prefill."""

from attrs import define, field


@define
class StepBudget:
    """Counts the tokens of one plan. Each decoding sequence may always take its one token.

    Prefill takes what decode leaves of `max_step_tokens`, but never less than a quarter of it: a
    full batch of decoding sequences must not keep a new prompt waiting for ever, and a long prompt
    must not keep decoding sequences waiting for more than one chunk (Sarathi-Serve,
    arXiv:2403.02310).
    """

    max_step_tokens: int
    num_decoding: int
    num_prefill_left: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        reserve = max(1, self.max_step_tokens // 4)
        self.num_prefill_left = max(self.max_step_tokens - self.num_decoding, reserve)

    def grant(self, num_missing: int) -> int:
        """Tokens that a sequence short of `num_missing` may feed now; 0 if it has to wait."""
        return 1 if num_missing == 1 else min(num_missing, self.num_prefill_left)

    def spend(self, num_missing: int, num_fed: int) -> None:
        """Take `num_fed` tokens, granted for `num_missing`, off the budget."""
        if num_missing > 1:
            self.num_prefill_left -= num_fed

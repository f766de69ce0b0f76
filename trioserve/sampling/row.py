"""One row of logits, [vocab] float32, and what is asked of it."""

import numpy as np
import numpy.typing as npt
from attrs import frozen

from trioserve.core import SamplingParams
from trioserve.errors import RequestFailed

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

GREEDY_TEMPERATURE = 1e-6


@frozen
class Draw:
    """What is asked of one row: the parameters, and what the draw depends on beside them."""

    sampling: SamplingParams
    sample_index: int
    position: int
    """Where the drawn token will stand: its noise is that of the position."""
    num_prompt: int = 0
    """Tokens of the history that are the prompt's."""
    history: tuple[int, ...] = ()
    """All tokens before `position`; only where `sampling` has penalties."""
    masked_ids: frozenset[int] = frozenset()
    """Must not be drawn."""
    allowed: memoryview | None = None
    """Bits of the only tokens that may be drawn (see `TokenMask`); None: all."""

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken (the lowest id where several are)."""
        return self.sampling.temperature < GREEDY_TEMPERATURE or self.sampling.top_k == 1

    @property
    def is_adjusted(self) -> bool:
        """Whether the token is not drawn from the model's own logits."""
        return bool(
            self.sampling.logit_bias
            or self.masked_ids
            or self.allowed is not None
            or self.sampling.has_penalties
        )


def require_finite(row: Floats) -> None:
    """Raise RequestFailed for a row with a logit that is not a finite number."""
    # A sum is finite only if every term is, and costs one pass without a temporary.
    with np.errstate(invalid="ignore", over="ignore"):
        if not np.isfinite(row.sum()):
            raise RequestFailed("the model produced non-finite logits")


def most_likely(row: Floats, k: int) -> Ids:
    """Ids of the k largest logits, at most all, best first; of equal ones the lowest ids."""
    k = min(k, row.size)
    if k == 0:
        return np.empty(0, np.int64)
    boundary = np.partition(row, row.size - k)[row.size - k]
    ids = np.flatnonzero(row >= boundary)
    # A stable sort keeps equal ones in the order of their ids, so what is cut off is right too.
    return ids[np.argsort(-row[ids], kind="stable")[:k]]

"""`pool`: one vector of the vectors of a text's tokens, in every way that files can ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trioserve.model.embedder_spec import PoolingMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def pool(states: Tensor, lengths: Tensor, modes: Sequence[PoolingMode]) -> Tensor:
    """[rows, len(modes) * hidden]: the vectors of all modes, concatenated in their order.

    `states` are [rows, longest, hidden], each row's own tokens first; `lengths` [rows] says how
    many those are, at least one. What stands behind them is not looked at.
    """
    positions = torch.arange(states.shape[1])
    is_padding = (positions[None] >= lengths[:, None])[..., None]  # [rows, longest, 1]
    return torch.cat([_pool_one(states, lengths, is_padding, mode) for mode in modes], dim=-1)


def _pool_one(states: Tensor, lengths: Tensor, is_padding: Tensor, mode: PoolingMode) -> Tensor:
    match mode:
        case PoolingMode.CLS:
            return states[:, 0]
        case PoolingMode.LAST_TOKEN:
            return states[torch.arange(len(states)), lengths - 1]
        case PoolingMode.MAX:
            return states.masked_fill(is_padding, -torch.inf).amax(dim=1)
        case PoolingMode.MEAN:
            return _sum(states, is_padding) / lengths[:, None]
        case PoolingMode.MEAN_SQRT_LEN:
            return _sum(states, is_padding) / lengths[:, None].sqrt()
        case PoolingMode.WEIGHTED_MEAN:
            # The first token weighs 1, the second 2, and so on.
            weights = torch.arange(1, states.shape[1] + 1, dtype=states.dtype)[:, None]
            total = (lengths * (lengths + 1) / 2)[:, None]
            return _sum(states * weights, is_padding) / total


def _sum(states: Tensor, is_padding: Tensor) -> Tensor:
    return states.masked_fill(is_padding, 0.0).sum(dim=1)

"""Rotary position embedding: its parameters, and the cosine and sine tables of a context.

The formulas are those of transformers' `ROPE_INIT_FUNCTIONS`, in the same order of float32
operations; a test compares the two. Rejected: calling transformers for them, whose import costs a
start most of a second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attrs import frozen

from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

_DEFAULT_THETA = 10_000.0


@frozen
class RopeSpec:
    """Parameters of one rotary embedding shared by all layers."""

    kind: str  # default, linear or llama3
    theta: float
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_positions: int = 0

    @classmethod
    def from_config(cls, config: Mapping[str, Any], max_positions: int) -> RopeSpec:
        """Read `rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling` (4)."""
        field = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
        parameters = config.get(field) or {}
        if not isinstance(parameters, dict) or any(
            isinstance(value, dict) for value in parameters.values()
        ):
            raise ConfigError(f"model config: {field} must be one object for all layers")
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        if kind not in ("default", "linear", "llama3"):
            raise ConfigError(
                f"model config: {field}.rope_type {kind!r} is not supported; "
                "supported: default, linear, llama3"
            )
        partial = parameters.get("partial_rotary_factor", config.get("partial_rotary_factor"))
        if partial not in (None, 1, 1.0):
            raise ConfigError(f"model config: partial_rotary_factor {partial} is not supported")
        theta = _number(field, parameters, "rope_theta", config.get("rope_theta", _DEFAULT_THETA))
        if kind == "default":
            return cls(kind, theta)
        factor = _number(field, parameters, "factor")
        if kind == "linear":
            return cls(kind, theta, factor)
        return cls(
            kind,
            theta,
            factor,
            _number(field, parameters, "low_freq_factor"),
            _number(field, parameters, "high_freq_factor"),
            int(_number(field, parameters, "original_max_position_embeddings", max_positions)),
        )


def _number(field: str, parameters: Mapping[str, Any], name: str, default: Any = None) -> float:
    value = parameters.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"model config: {field}.{name} must be a positive number, got {value!r}")
    return float(value)


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> torch.Tensor:
    """Angle a position of each of the head_dim / 2 rotated pairs, float32 [head_dim / 2]."""
    import torch

    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    inv_freq = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return inv_freq / rope.factor
    if rope.kind != "llama3":
        return inv_freq
    # Long waves are slowed by the whole factor, short ones are kept, and those between the two
    # limits are mixed according to how often they turn within the original context.
    low, high, old_len = rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions
    wave_len = 2 * math.pi / inv_freq
    scaled = torch.where(wave_len > old_len / low, inv_freq / rope.factor, inv_freq)
    smooth = (old_len / wave_len - low) / (high - low)
    mixed = (1 - smooth) * scaled / rope.factor + smooth * scaled
    is_between = (wave_len >= old_len / high) & (wave_len <= old_len / low)
    return torch.where(is_between, mixed, scaled)


def rope_tables(
    rope: RopeSpec, head_dim: int, max_positions: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of positions 0 … max_positions - 1, each float32 [max_positions, d/2]."""
    import torch

    positions = torch.arange(max_positions, dtype=torch.float32)
    angles = positions[:, None] * inverse_frequencies(rope, head_dim)[None, :]
    return angles.cos().contiguous(), angles.sin().contiguous()

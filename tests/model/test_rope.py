"""Rotary tables against transformers' own."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from trioserve.model.rope import RopeSpec, rope_tables

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "default", "rope_theta": 10_000.0},
        {"rope_type": "default", "rope_theta": 100_000.0},
        {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
        LLAMA3,
        LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 512},
    ],
)
def test_rope_tables_are_those_of_transformers(parameters: dict[str, Any], head_dim: int) -> None:
    config = LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        max_position_embeddings=4096,
        rope_parameters=dict(parameters),
    )
    positions = torch.arange(4096)[None]
    expected_cos, expected_sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
    spec = RopeSpec.from_config({"rope_parameters": parameters}, 4096)
    cos, sin = rope_tables(spec, head_dim, 4096)
    torch.testing.assert_close(cos, expected_cos[0, :, : head_dim // 2], rtol=0, atol=1e-6)
    torch.testing.assert_close(sin, expected_sin[0, :, : head_dim // 2], rtol=0, atol=1e-6)

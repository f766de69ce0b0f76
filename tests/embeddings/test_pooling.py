"""Pooling, against what sentence-transformers makes of the same states."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from trioserve.model.embedder_pooling import pool
from trioserve.model.embedder_spec import PoolingMode

REFERENCE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "reference/pooling.json").read_text()
)


@pytest.mark.parametrize("name", REFERENCE["pooled"])
@pytest.mark.parametrize("padding", [0.0, 1e30, float("nan")])
def test_a_mode_pools_as_sentence_transformers_does_whatever_the_padding(
    name: str, padding: float
) -> None:
    lengths = torch.tensor(REFERENCE["lengths"])
    states = torch.tensor(REFERENCE["states"])
    for row, length in zip(states, lengths, strict=True):
        row[length:] = padding
    pooled = pool(states, lengths, [PoolingMode(mode) for mode in name.split("+")])
    torch.testing.assert_close(pooled, torch.tensor(REFERENCE["pooled"][name]))


def test_every_mode_has_a_reference() -> None:
    assert set(PoolingMode) <= REFERENCE["pooled"].keys()

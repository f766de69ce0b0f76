"""Reading safetensors folders: one file, several with an index, and what is wrong with others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from trioserve.errors import ConfigError
from trioserve.model.safetensors_writer import TensorLayout, write_safetensors
from trioserve.model.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

INDEX = "model.safetensors.index.json"


def test_one_file_is_read_by_name_and_shape(tmp_path: Path) -> None:
    values = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    save_file({"a.weight": values}, tmp_path / "model.safetensors")
    with Weights(tmp_path) as weights:
        assert torch.equal(weights.take("a.weight", 2, 3), values)
        assert "a.weight" in weights
        assert weights.num_elements() == 6
        with pytest.raises(ConfigError, match="no tensor b"):
            weights.take("b", 1)
        with pytest.raises(ConfigError, match=r"shape \[2, 3\], but config.json says \[3, 2\]"):
            weights.take("a.weight", 3, 2)


def test_names_without_the_model_prefix_are_found(tmp_path: Path) -> None:
    save_file({"norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with Weights(tmp_path) as weights:
        assert weights.take("model.norm.weight", 3).sum() == 3


def test_an_index_joins_several_files(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "part-1.safetensors")
    save_file({"b": torch.zeros(3)}, tmp_path / "part-2.safetensors")
    index = {"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    with Weights(tmp_path) as weights:
        assert weights.take("a", 2).sum() == 2
        assert weights.take("b", 3).sum() == 0
    (tmp_path / "part-2.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"part-2\.safetensors, named by .* is missing"):
        Weights(tmp_path)
    (tmp_path / INDEX).write_text("[]")
    with pytest.raises(ConfigError, match="not a safetensors index"):
        Weights(tmp_path)


def test_several_files_without_an_index_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    save_file({"b": torch.ones(2)}, tmp_path / "y.safetensors")
    with pytest.raises(ConfigError, match=r"found: x\.safetensors, y\.safetensors"):
        Weights(tmp_path)


def test_a_truncated_file_and_integer_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(2, dtype=torch.int8)}, path)
    with Weights(tmp_path) as weights, pytest.raises(ConfigError, match="dtype I8"):
        weights.take("a", 2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"cannot read the weights .*download the file again"):
        Weights(tmp_path)


def test_what_our_writer_writes_safetensors_reads(tmp_path: Path) -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.full(5, 0.1, np.float32)]
    layouts = [TensorLayout("m", (2, 3), "F16"), TensorLayout("v", (5,), "F32")]
    told: list[int] = []
    write_safetensors(tmp_path / "model.safetensors", layouts, arrays, told.append)
    assert told == [12, 20]
    with Weights(tmp_path) as weights:
        assert weights.take("m", 2, 3).dtype == torch.float16
        np.testing.assert_array_equal(weights.take("m", 2, 3).numpy(), arrays[0])
        np.testing.assert_array_equal(weights.take("v", 5).numpy(), arrays[1])

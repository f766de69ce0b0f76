"""ModelSpec: what the decoder must know of a model, read from its Hugging Face config.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen

from trioserve.errors import ConfigError
from trioserve.model.rope import RopeSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@frozen
class _Family:
    """Where one architecture of the Llama family differs from the others.

    The defaults are those of the architecture's own config class: an older config.json leaves
    fields out that its class fills in.
    """

    default_num_kv_heads: int | None = None  # None: as many as query heads
    default_head_dim: int | None = None  # None: hidden_size / num_heads
    default_sliding_window: int | None = None
    is_window_switched: bool = False  # the window needs `use_sliding_window: true`
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    has_bias_switch: bool = False  # `attention_bias` adds biases to q, k, v and o
    has_mlp_bias_switch: bool = False


_FAMILIES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family(has_bias_switch=True, has_mlp_bias_switch=True),
    "MistralForCausalLM": _Family(default_num_kv_heads=8, default_sliding_window=4096),
    "Qwen2ForCausalLM": _Family(
        default_num_kv_heads=32,
        default_sliding_window=4096,
        is_window_switched=True,
        has_qkv_bias=True,
    ),
    "Qwen3ForCausalLM": _Family(
        default_num_kv_heads=32,
        default_head_dim=128,
        default_sliding_window=4096,
        is_window_switched=True,
        has_qk_norm=True,
        has_bias_switch=True,
    ),
}
# A config written from a GGUF file has no `architectures`.
_ARCHITECTURE_OF_TYPE: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


@frozen
class ModelSpec:
    """A decoder of the Llama family: sizes, rotary embedding, and which optional parts exist."""

    architecture: str
    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeSpec
    max_position_embeddings: int
    is_embedding_tied: bool
    has_qkv_bias: bool
    has_output_bias: bool
    has_mlp_bias: bool
    has_qk_norm: bool
    sliding_window: int | None  # tokens; None where every token sees all before it
    eos_token_ids: frozenset[int]

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def num_kv_elements_per_token(self) -> int:
        """Numbers kept for one token in all layers, keys and values together."""
        return 2 * self.num_layers * self.kv_size


def read_spec(directory: Path) -> ModelSpec:
    """The spec of the model in `directory`; ConfigError names what cannot be served."""
    config = _read_json(directory / "config.json")
    generation_path = directory / "generation_config.json"
    generation = _read_json(generation_path) if generation_path.is_file() else {}
    return spec_from_config(config, generation)


def spec_from_config(
    config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
) -> ModelSpec:
    """The spec of a parsed config.json (and generation_config.json, for its end tokens)."""
    architecture = _architecture(config)
    family = _FAMILIES[architecture]
    for field in ("quantization_config", "compression_config"):
        if config.get(field):
            raise ConfigError(f"model config: {field} is not supported; use unquantized weights")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ConfigError(f"model config: hidden_act {activation!r} is not supported, only silu")

    hidden_size = _positive(config, "hidden_size")
    num_heads = _positive(config, "num_attention_heads")
    num_kv_heads = _positive(
        config, "num_key_value_heads", family.default_num_kv_heads or num_heads
    )
    head_dim = _positive(config, "head_dim", family.default_head_dim or hidden_size // num_heads)
    if num_heads % num_kv_heads:
        raise ConfigError(
            f"model config: num_attention_heads {num_heads} is not a multiple of "
            f"num_key_value_heads {num_kv_heads}"
        )
    if head_dim % 2:
        raise ConfigError(f"model config: head_dim {head_dim} is odd, rotary halves need it even")
    max_positions = _positive(config, "max_position_embeddings")
    has_attention_bias = family.has_bias_switch and bool(config.get("attention_bias"))
    return ModelSpec(
        architecture=architecture,
        model_type=str(config.get("model_type", "")),
        vocab_size=_positive(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_positive(config, "intermediate_size"),
        num_layers=_positive(config, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=RopeSpec.from_config(config, max_positions),
        max_position_embeddings=max_positions,
        is_embedding_tied=bool(config.get("tie_word_embeddings", False)),
        has_qkv_bias=family.has_qkv_bias or has_attention_bias,
        has_output_bias=has_attention_bias,
        has_mlp_bias=family.has_mlp_bias_switch and bool(config.get("mlp_bias")),
        has_qk_norm=family.has_qk_norm,
        sliding_window=_sliding_window(config, family),
        eos_token_ids=_eos_token_ids(config) | _eos_token_ids(generation_config or {}),
    )


def architecture_of_type(model_type: str) -> str:
    """The architecture that a config without `architectures` means."""
    return _ARCHITECTURE_OF_TYPE.get(model_type, f"of type {model_type!r}")


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures") or []
    if not isinstance(names, list):
        raise ConfigError(f"model config: architectures must be a list, got {names!r}")
    if not names:
        name = architecture_of_type(str(config.get("model_type")))
    else:
        name = str(names[0])
    if name not in _FAMILIES:
        raise ConfigError(
            f"model architecture {name} is not supported; supported: {', '.join(sorted(_FAMILIES))}"
        )
    return name


def _sliding_window(config: Mapping[str, Any], family: _Family) -> int | None:
    if family.is_window_switched and not config.get("use_sliding_window", False):
        return None
    window = config.get("sliding_window", family.default_sliding_window)
    if family.default_sliding_window is None or window is None:
        return None
    layer_types = config.get("layer_types")
    if layer_types and "sliding_attention" not in layer_types:
        return None
    return int(window)


def _eos_token_ids(config: Mapping[str, Any]) -> frozenset[int]:
    value = config.get("eos_token_id")
    if value is None:
        return frozenset()
    return frozenset(int(i) for i in (value if isinstance(value, list) else [value]))


def _positive(config: Mapping[str, Any], field: str, default: int | None = None) -> int:
    value = config.get(field)
    if value is None:
        value = default
    if value is None:
        raise ConfigError(f"model config: {field} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"model config: {field} must be a positive integer, got {value!r}")
    return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a JSON object")
    return value

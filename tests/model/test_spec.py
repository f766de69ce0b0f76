"""What is read from config.json, and what is refused, by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioserve.errors import ConfigError
from trioserve.model.pool_size import choose_max_model_len
from trioserve.model.spec import read_spec, spec_from_config

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


def of(architecture: str, **fields: Any) -> dict[str, Any]:
    return LLAMA | {"architectures": [architecture]} | fields


def test_llama_defaults_fill_what_an_old_config_leaves_out() -> None:
    spec = spec_from_config(LLAMA)
    assert (spec.num_kv_heads, spec.head_dim, spec.rms_norm_eps) == (4, 16, 1e-6)
    assert (spec.rope.kind, spec.rope.theta) == ("default", 10_000.0)
    assert not spec.is_embedding_tied
    assert not spec.has_qkv_bias
    assert spec.sliding_window is None


def test_architectures_that_are_no_list_are_refused() -> None:
    with pytest.raises(ConfigError, match="architectures must be a list, got 'Llama'"):
        spec_from_config(LLAMA | {"architectures": "Llama"})


def test_a_config_without_architectures_is_known_by_its_model_type() -> None:
    spec = spec_from_config({k: v for k, v in LLAMA.items() if k != "architectures"})
    assert spec.architecture == "LlamaForCausalLM"


def test_qwen2_has_biases_on_qkv_alone() -> None:
    spec = spec_from_config(of("Qwen2ForCausalLM", num_key_value_heads=2))
    assert spec.has_qkv_bias
    assert not spec.has_output_bias


def test_qwen3_has_head_norms_and_its_own_head_dim() -> None:
    spec = spec_from_config(of("Qwen3ForCausalLM", num_key_value_heads=2))
    assert spec.has_qk_norm
    assert spec.head_dim == 128
    assert (spec.q_size, spec.kv_size) == (512, 256)


def test_attention_bias_of_llama_covers_the_output_too() -> None:
    spec = spec_from_config(of("LlamaForCausalLM", attention_bias=True, mlp_bias=True))
    assert spec.has_qkv_bias
    assert spec.has_output_bias
    assert spec.has_mlp_bias


def test_end_tokens_are_joined_from_both_configs() -> None:
    spec = spec_from_config(LLAMA | {"eos_token_id": 2}, {"eos_token_id": [2, 7]})
    assert spec.eos_token_ids == {2, 7}
    assert spec_from_config(LLAMA).eos_token_ids == frozenset()


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}},
        {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 5e5},
        {"rope_scaling": {"rope_type": "linear", "factor": 4}, "rope_theta": 500000},
    ],
)
def test_both_spellings_of_rope_parameters_are_read(fields: dict[str, Any]) -> None:
    rope = spec_from_config(LLAMA | fields).rope
    assert (rope.kind, rope.theta, rope.factor) == ("linear", 5e5, 4.0)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (of("MambaForCausalLM"), "MambaForCausalLM"),
        ({k: v for k, v in LLAMA.items() if k != "architectures"} | {"model_type": "bert"}, "bert"),
        (LLAMA | {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        (LLAMA | {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "one object"),
        (LLAMA | {"rope_parameters": {"rope_type": "linear", "factor": "x"}}, "factor"),
        (LLAMA | {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (LLAMA | {"quantization_config": {"bits": 4}}, "quantization_config"),
        (LLAMA | {"hidden_act": "gelu"}, "gelu"),
        (LLAMA | {"hidden_size": None}, "hidden_size is missing"),
        (LLAMA | {"num_hidden_layers": "two"}, "num_hidden_layers"),
        (LLAMA | {"num_key_value_heads": 3}, "num_key_value_heads"),
        (LLAMA | {"head_dim": 15}, "head_dim"),
    ],
)
def test_what_cannot_be_served_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        spec_from_config(config)


def test_sliding_window_counts_only_where_it_is_active() -> None:
    def window(config: dict[str, Any]) -> int | None:
        return spec_from_config(config).sliding_window

    assert window(of("MistralForCausalLM", num_key_value_heads=4, sliding_window=128)) == 128
    assert window(of("MistralForCausalLM", num_key_value_heads=4, sliding_window=None)) is None
    assert window(of("LlamaForCausalLM", sliding_window=128)) is None
    assert window(of("Qwen2ForCausalLM", num_key_value_heads=4, sliding_window=128)) is None
    used = of(
        "Qwen2ForCausalLM", num_key_value_heads=4, sliding_window=128, use_sliding_window=True
    )
    assert window(used) == 128
    assert window(used | {"layer_types": ["full_attention"] * 2}) is None


def test_sliding_window_shorter_than_the_context_is_refused_with_the_remedy() -> None:
    spec = spec_from_config(of("MistralForCausalLM", num_key_value_heads=4, sliding_window=128))
    with pytest.raises(ConfigError, match="--context-length 128"):
        choose_max_model_len(spec, None)
    assert choose_max_model_len(spec, 128) == 128


def test_context_length_only_lowers_the_limit() -> None:
    spec = spec_from_config(LLAMA)
    assert choose_max_model_len(spec, None) == 512
    assert choose_max_model_len(spec, 100) == 100
    assert choose_max_model_len(spec, 4096) == 512


def test_broken_or_missing_config_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*config\.json"):
        read_spec(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        read_spec(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="JSON object"):
        read_spec(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_spec(tmp_path).num_layers == 2

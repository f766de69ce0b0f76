"""A tiny GGUF file with known tensors, and a cache directory that belongs to one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from attrs import frozen
from gguf import GGUFWriter
from tokenizers import pre_tokenizers

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 32, 48, 4, 2, 2
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


@frozen(eq=False)
class TinyGguf:
    """The file, and its tensors by Hugging Face names in Hugging Face order."""

    path: Path
    tensors: dict[str, np.ndarray]


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> TinyGguf:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tokens = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ"]
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(50_000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)))
    writer.add_token_merges(["Ċ Ċ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)

    generator = np.random.default_rng(5)
    tensors: dict[str, np.ndarray] = {}

    def add(gguf_name: str, hf_name: str, *shape: int, num_heads: int = 0) -> None:
        values = generator.normal(0, 0.1, shape).astype(np.float32)
        tensors[hf_name] = values
        if num_heads:  # rows as llama.cpp keeps them: the halves of a head interleaved
            halves = values.reshape(num_heads, 2, shape[0] // num_heads // 2, *shape[1:])
            values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(shape)
        writer.add_tensor(gguf_name, values)

    kv_size = HIDDEN // HEADS * KV_HEADS
    add("token_embd.weight", "model.embed_tokens.weight", len(tokens), HIDDEN)
    add("output_norm.weight", "model.norm.weight", HIDDEN)
    for index in range(LAYERS):
        there, here = f"blk.{index}", f"model.layers.{index}"
        q, k = f"{here}.self_attn.q_proj.weight", f"{here}.self_attn.k_proj.weight"
        add(f"{there}.attn_q.weight", q, HIDDEN, HIDDEN, num_heads=HEADS)
        add(f"{there}.attn_k.weight", k, kv_size, HIDDEN, num_heads=KV_HEADS)
        add(f"{there}.attn_v.weight", f"{here}.self_attn.v_proj.weight", kv_size, HIDDEN)
        add(f"{there}.attn_output.weight", f"{here}.self_attn.o_proj.weight", HIDDEN, HIDDEN)
        add(f"{there}.attn_norm.weight", f"{here}.input_layernorm.weight", HIDDEN)
        add(f"{there}.ffn_norm.weight", f"{here}.post_attention_layernorm.weight", HIDDEN)
        add(f"{there}.ffn_gate.weight", f"{here}.mlp.gate_proj.weight", INNER, HIDDEN)
        add(f"{there}.ffn_up.weight", f"{here}.mlp.up_proj.weight", INNER, HIDDEN)
        add(f"{there}.ffn_down.weight", f"{here}.mlp.down_proj.weight", HIDDEN, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return TinyGguf(path, tensors)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory in use, empty."""
    path = tmp_path / "cache"
    monkeypatch.setenv("TRIOSERVE_CACHE", str(path))
    return path

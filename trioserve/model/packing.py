"""From a model folder's tensors to the packed weights of the decoder.

Tensors are taken one by one and packed at once, so the peak is the packed model plus the largest
fused layer in float32, never two whole models.

Norm weights are not folded into the matrices behind them: with weights of 16 bits the product
would be rounded once more, which is not exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import frozen
from torch import Tensor

from trioserve.device.ops import PackedLinear
from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trioserve.model.spec import ModelSpec
    from trioserve.model.weights import Weights


@frozen(eq=False)
class PackedLayer:
    """One layer; norms are float32 vectors."""

    input_norm: Tensor
    qkv: PackedLinear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: PackedLinear
    mlp_norm: Tensor
    gate_up: PackedLinear
    down: PackedLinear


@frozen(eq=False)
class PackedModel:
    """All weights, in the form in which steps use them."""

    embedding: Tensor  # [V, H], in the file's dtype: a row is widened when it is looked up
    layers: tuple[PackedLayer, ...]
    final_norm: Tensor
    head: PackedLinear


def pack_model(
    spec: ModelSpec, weights: Weights, on_layer: Callable[[], None] = lambda: None
) -> PackedModel:
    """Pack everything; `on_layer` is called before each layer and may raise to stop."""
    vocab, hidden = spec.vocab_size, spec.hidden_size
    # Cloned out of the mapped file, whose pages the system may drop and read again in a step.
    embedding = weights.take("model.embed_tokens.weight", vocab, hidden).clone()
    layers = []
    for index in range(spec.num_layers):
        on_layer()
        layers.append(_pack_layer(spec, weights, f"model.layers.{index}"))
    is_tied = spec.is_embedding_tied
    head = embedding if is_tied else weights.take("lm_head.weight", vocab, hidden)
    return PackedModel(
        embedding=embedding,
        layers=tuple(layers),
        final_norm=_vector(weights, "model.norm", hidden),
        head=_pack("lm_head", head, None),
    )


def packed_bytes(spec: ModelSpec, weights: Weights) -> int:
    """Memory that `pack_model` will hold when done, about; known before anything is read.

    A tied embedding is held twice: as a table and packed as the head.
    """
    num_elements = weights.num_elements()
    if spec.is_embedding_tied:
        num_elements += spec.vocab_size * spec.hidden_size
    return 2 * num_elements


def _pack_layer(spec: ModelSpec, weights: Weights, prefix: str) -> PackedLayer:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"

    def fused(rows: dict[str, int], columns: int, has_bias: bool) -> PackedLinear:
        weight = torch.cat([weights.take(f"{n}.weight", r, columns) for n, r in rows.items()])
        bias = None
        if has_bias:
            bias = torch.cat([weights.take(f"{n}.bias", r) for n, r in rows.items()])
        return _pack(next(iter(rows)), weight, bias)

    q_rows = {f"{attention}.q_proj": spec.q_size}
    kv_rows = {f"{attention}.k_proj": spec.kv_size, f"{attention}.v_proj": spec.kv_size}
    gate_up_rows = {f"{mlp}.gate_proj": inner, f"{mlp}.up_proj": inner}
    q_norm = k_norm = None
    if spec.has_qk_norm:
        q_norm = _vector(weights, f"{attention}.q_norm", spec.head_dim)
        k_norm = _vector(weights, f"{attention}.k_norm", spec.head_dim)
    return PackedLayer(
        input_norm=_vector(weights, f"{prefix}.input_layernorm", hidden),
        qkv=fused({**q_rows, **kv_rows}, hidden, spec.has_qkv_bias),
        q_norm=q_norm,
        k_norm=k_norm,
        output=fused({f"{attention}.o_proj": hidden}, spec.q_size, spec.has_output_bias),
        mlp_norm=_vector(weights, f"{prefix}.post_attention_layernorm", hidden),
        gate_up=fused(gate_up_rows, hidden, spec.has_mlp_bias),
        down=fused({f"{mlp}.down_proj": hidden}, inner, spec.has_mlp_bias),
    )


def _vector(weights: Weights, name: str, length: int) -> Tensor:
    return weights.take(f"{name}.weight", length).float().clone()


def _pack(name: str, weight: Tensor, bias: Tensor | None) -> PackedLinear:
    try:
        return PackedLinear.from_weight(weight, bias)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error

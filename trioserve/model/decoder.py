"""The decoder of the Llama family: token ids and pages in, hidden states and logits out.

Shape letters: R rows (tokens fed in this step, of all sequences), S output rows, P pages,
H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import frozen
from torch import Tensor

from trioserve.device import ops
from trioserve.model.kv_pages import KvPages
from trioserve.model.packing import PackedModel, pack_model
from trioserve.model.rope import rope_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from trioserve.model.spec import ModelSpec
    from trioserve.model.weights import Weights

# What FBGEMM takes as one block: fewer would read the head's weights more often, more would not
# read them less often.
HEAD_ROWS = 120


@frozen(eq=False)
class DecoderInput:
    """One step. Row r is the token at `positions[r]` of sequence `row_sequence[r]`."""

    token_ids: Tensor  # [R] int64
    positions: Tensor  # [R] int32
    slots: Tensor  # [R] int64: page * page_size + place in the page, where its KV goes
    row_sequence: Tensor  # [R] int32: a row of page_table
    page_table: Tensor  # [sequences, max_pages] int32
    output_rows: Tensor  # [S] int64, ascending: whose final state is of use


class Decoder:
    """Weights and KV pages of one model, and the forward pass over them.

    Not thread-safe: all calls belong to the device's thread. A row's logits depend on its own
    sequence alone, bit for bit, because each operation of `ops` has that property.
    """

    def __init__(self, spec: ModelSpec, model: PackedModel, pages: KvPages, max_len: int) -> None:
        """`max_len`: the longest sequence in tokens; the rotary tables are made for it."""
        self.spec = spec
        self.pages = pages
        self._model = model
        self._cos, self._sin = rope_tables(spec.rope, spec.head_dim, max_len)
        self._scale = spec.head_dim**-0.5

    @classmethod
    def load(
        cls,
        spec: ModelSpec,
        weights: Weights,
        *,
        num_pages: int,
        page_size: int,
        max_len: int,
        on_layer: Callable[[], None] = lambda: None,
    ) -> Decoder:
        """Pack the weights and allocate the pages; for tests, which need no memory plan."""
        pages = KvPages(spec, num_pages, page_size)
        return cls(spec, pack_model(spec, weights, on_layer), pages, max_len)

    @torch.inference_mode()
    def forward(self, batch: DecoderInput) -> Tensor:
        """Write the KV of all rows and give the final state of the output rows, float32 [S, H].

        The state is that after the last norm; `head` turns it into logits.
        """
        eps, model = self.spec.rms_norm_eps, self._model
        # The residual stream is float32 throughout: [R, H].
        residual = model.embedding[batch.token_ids].float()
        x = ops.rms_norm(residual, model.layers[0].input_norm, eps)
        row_sequence, positions = batch.row_sequence, batch.positions
        for index, layer in enumerate(model.layers):
            is_last = index == self.spec.num_layers - 1
            k_pages, v_pages = self.pages.of_layer(index)
            q = ops.rope_write_kv(
                layer.qkv(x),
                batch.positions,
                batch.slots,
                self._cos,
                self._sin,
                k_pages,
                v_pages,
                layer.q_norm,
                layer.k_norm,
                eps,
            )
            if is_last:
                # Once the last keys and values are written, only output rows are of use.
                if not batch.output_rows.numel():
                    return torch.empty(0, self.spec.hidden_size)
                q, residual = q[batch.output_rows], residual[batch.output_rows]
                row_sequence = row_sequence[batch.output_rows]
                positions = positions[batch.output_rows]
            attended = ops.paged_attention(
                q, k_pages, v_pages, batch.page_table, row_sequence, positions, self._scale
            )
            x = layer.output(attended.reshape(attended.shape[0], -1))
            x = ops.add_rms_norm(x, residual, layer.mlp_norm, eps)
            x = layer.down(ops.silu_mul(layer.gate_up(x)))
            next_norm = model.final_norm if is_last else model.layers[index + 1].input_norm
            x = ops.add_rms_norm(x, residual, next_norm, eps)
        return x

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """The logits of some of the states that `forward` gave, [S, H] -> float32 [S, V].

        Give it at most `HEAD_ROWS` at a time: a step may read every position of a prompt, whose
        logits at once would take gigabytes with a large vocabulary.
        """
        return self._model.head(hidden)

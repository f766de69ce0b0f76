"""`Embedder`: an encoder with its pooling, from token ids to vectors.

The encoder is transformers' own module in float32: its files name hundreds of architectures, and
the whole of a text is computed at once, so there is no cache that would need one of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from trioserve.errors import ConfigError
from trioserve.model.embedder_pooling import pool
from trioserve.model.embedder_spec import Dense, EmbedderSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from torch import Tensor

DEFAULT_MAX_LEN = 512
"""Where neither the files nor the positions say how long a text may be."""
# The head on top of the first token that BERT was trained with. Many published encoders come
# without its weights; nothing here reads it.
_UNUSED_WEIGHTS = ("pooler.",)


class Embedder:
    """One model; its methods run on the device's thread, after `load`.

    `size` is the number of components of a vector, `max_len` the most tokens of a text.
    """

    def __init__(self, spec: EmbedderSpec, encoder: Any) -> None:
        self.spec = spec
        self._encoder = encoder
        config = encoder.config
        # Padding is masked, yet a few architectures derive positions from where it stands.
        self.pad_id = int(config.pad_token_id or 0)
        self.vocab_size = int(config.vocab_size)
        self.max_len = _max_len(spec, encoder)
        self._layers = [_layer(layer) for layer in spec.layers]
        self.size = self.embed([(self.pad_id,) * min(2, self.max_len)]).shape[1]

    @classmethod
    def load(cls, spec: EmbedderSpec) -> Embedder:
        """Read the weights; takes seconds. Raises ConfigError."""
        from transformers import AutoModel
        from transformers.utils import logging

        # What the library prints about its own doings is not for the user of a server.
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            encoder, loading = AutoModel.from_pretrained(
                str(spec.directory),
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
        except Exception as error:  # anything: the code of one architecture of hundreds
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ConfigError(f"cannot load the model in {spec.directory}: {reason}") from error
        if encoder.config.is_encoder_decoder:
            raise ConfigError(f"{spec.directory}: encoder-decoder models are not supported")
        missing = [name for name in loading["missing_keys"] if not name.startswith(_UNUSED_WEIGHTS)]
        if missing:
            raise ConfigError(f"{spec.directory}: no weights for {min(missing)}")
        return cls(spec, encoder.eval())

    def embed(self, inputs: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """[len(inputs), size]: the vector of each text. A text is one token id or more.

        Costs as much as if all were as long as the longest.
        """
        longest = max(map(len, inputs))
        token_ids = np.full((len(inputs), longest), self.pad_id, dtype=np.int64)
        lengths = np.array([len(ids) for ids in inputs])
        for row, ids in zip(token_ids, inputs, strict=True):
            row[: len(ids)] = ids
        mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
        with torch.inference_mode():
            states = self._encoder(
                input_ids=torch.from_numpy(token_ids), attention_mask=torch.from_numpy(mask)
            ).last_hidden_state
            vectors: Tensor = pool(states, torch.from_numpy(lengths), self.spec.pooling)
            for layer in self._layers:
                vectors = layer(vectors)
        result: npt.NDArray[np.float32] = vectors.numpy()
        return result


def _layer(layer: Any) -> Callable[[Tensor], Tensor]:
    if not isinstance(layer, Dense):
        return lambda vectors: nn.functional.normalize(vectors, dim=-1)
    path = layer.folder / "model.safetensors"
    try:
        weights = {name: tensor.float() for name, tensor in load_file(path).items()}
        weight, bias = weights["linear.weight"], weights.get("linear.bias")
    except Exception as error:  # the library's own, an OSError, or a missing name
        raise ConfigError(f"cannot read {path}: {error}") from error
    activation: Callable[[Tensor], Tensor] = getattr(nn, layer.activation)()
    return lambda vectors: activation(nn.functional.linear(vectors, weight, bias))


def _max_len(spec: EmbedderSpec, encoder: Any) -> int:
    num_positions = getattr(encoder.config, "max_position_embeddings", None)
    limits = [spec.max_len]
    if num_positions is not None and num_positions > 0:
        limits.append(num_positions - _position_offset(encoder))
    return min((limit for limit in limits if limit is not None), default=DEFAULT_MAX_LEN)


def _position_offset(encoder: Any) -> int:
    """Positions that no token has: RoBERTa and its relatives count from their padding's id on."""
    for module in encoder.modules():
        padding_id = getattr(module, "padding_idx", None)
        positions = getattr(module, "position_embeddings", None)
        if isinstance(padding_id, int) and isinstance(positions, nn.Embedding):
            return padding_id + 1
    return 0

"""`load_embedder`: from a model path to an embedding model that is ready for its first step.

Called once, on the thread that will run the steps (`Device.run`), like `load_model`.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from attrs import frozen
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence

from trioserve.config import DEFAULT_MODEL
from trioserve.core import ModelInfo
from trioserve.device.memory import ProcessLimits
from trioserve.device.threads import prepare_threads
from trioserve.errors import ConfigError
from trioserve.model.cache import LoadStopped
from trioserve.model.embedder_spec import EmbedderSpec, is_embedder, read_embedder_spec
from trioserve.model.loader import resolve_model
from trioserve.model.pool_size import require_weights_fit
from trioserve.text.tokenizer import Tokenizer
from trioserve.text.tokenizer_files import TokenizerFiles

if TYPE_CHECKING:
    from pathlib import Path

    from trioserve.runner.embedding import EmbeddingRunner

logger = logging.getLogger(__name__)


@frozen(eq=False)
class LoadedEmbedder:
    """An embedding model that is ready."""

    info: ModelInfo
    runner: EmbeddingRunner
    tokenizer: Tokenizer
    spec: EmbedderSpec
    size: int
    """Components of a vector."""
    max_step_tokens: int
    """Tokens of one step, padding included, that keep it below about 100 ms."""


def is_embedding_model(model_path: str, stop: threading.Event | None = None) -> bool:
    """Whether the model is made for embeddings alone, by its files. Raises ConfigError."""
    # Resolving the default model means checking all of its bytes, which its load does anyway.
    return model_path != DEFAULT_MODEL and is_embedder(resolve_model(model_path, stop))


def load_embedder(
    model_path: str,
    *,
    context_length: int | None = None,
    stop: threading.Event | None = None,
    limits: ProcessLimits | None = None,
) -> LoadedEmbedder:
    """Find, load and warm up the model. `context_length` caps the tokens of a text.

    Setting `stop` from another thread ends the load with LoadStopped between two of its parts,
    which take a second or two each. Everything that is wrong with the model, its path or the
    memory is a ConfigError.
    """
    stop = stop or threading.Event()
    limits = limits or ProcessLimits()
    started = time.perf_counter()
    directory = resolve_model(model_path, stop)
    spec = read_embedder_spec(directory)
    require_weights_fit(_weight_bytes(directory), limits.available_memory_bytes())
    num_threads = prepare_threads(limits)

    # Late, so that a wrong path or an unsupported model is told before torch is imported.
    import torch

    from trioserve.model.embedder import Embedder
    from trioserve.model.embedder_warm_up import choose_step_tokens
    from trioserve.runner.embedding import EmbeddingRunner

    torch.set_num_threads(num_threads)
    _check_stop(stop)
    embedder = Embedder.load(spec)
    _check_stop(stop)
    max_step_tokens = choose_step_tokens(embedder)
    max_len = min(embedder.max_len, context_length or embedder.max_len)
    logger.info(
        "embedding model %s loaded in %.1f s: %s components, %s tokens a text, %s a step",
        model_path,
        time.perf_counter() - started,
        embedder.size,
        max_len,
        max_step_tokens,
    )
    info = ModelInfo(
        path=model_path,
        model_type=spec.model_type,
        architectures=spec.architectures,
        dtype="float32",
        vocab_size=embedder.vocab_size,
        max_model_len=max_len,
        is_generation=False,
    )
    return LoadedEmbedder(
        info=info,
        runner=EmbeddingRunner(embedder),
        tokenizer=_read_tokenizer(spec),
        spec=spec,
        size=embedder.size,
        max_step_tokens=max_step_tokens,
    )


def _read_tokenizer(spec: EmbedderSpec) -> Tokenizer:
    files = TokenizerFiles.read(spec.directory)
    if spec.is_lower_case:
        normalizer = files.backend.normalizer
        steps = [Lowercase()] if normalizer is None else [Lowercase(), normalizer]
        files.backend.normalizer = NormalizerSequence(steps)
    return Tokenizer(files)


def _check_stop(stop: threading.Event) -> None:
    if stop.is_set():
        raise LoadStopped("loading was stopped")


def _weight_bytes(directory: Path) -> int:
    try:
        return sum(path.stat().st_size for path in directory.glob("*.safetensors"))
    except OSError as error:
        raise ConfigError(f"cannot read {directory}: {error.strerror or error}") from error

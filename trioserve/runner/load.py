"""`load_model`: from the settings to a runner that is ready for its first step.

Called once, on the thread that will run the steps (`Device.run`): thread counts, OpenMP teams and
compiled kernels belong to it. Blocks for seconds, or longer while a model is converted.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from attrs import frozen

from trioserve.core import ModelInfo
from trioserve.device.memory import ProcessLimits
from trioserve.device.threads import prepare_threads
from trioserve.errors import ConfigError
from trioserve.model.cache import LoadStopped
from trioserve.model.loader import resolve_model
from trioserve.model.pool_size import choose_max_model_len, choose_num_pages, require_weights_fit
from trioserve.model.spec import read_spec

if TYPE_CHECKING:
    from pathlib import Path

    from trioserve.config import ServerConfig
    from trioserve.model.kv_pages import KvPages
    from trioserve.runner.runner import ModelRunner

logger = logging.getLogger(__name__)


@frozen(eq=False)
class LoadedModel:
    """A model that is ready."""

    info: ModelInfo
    runner: ModelRunner
    directory: Path
    """The folder with config, weights and tokenizer: for the tokenizer."""
    pages: KvPages
    eos_token_ids: frozenset[int]
    """Of config.json and generation_config.json; the tokenizer may know more."""
    num_pages: int
    page_size: int
    max_step_tokens: int
    """Tokens of one step that keep it below about 100 ms, or --chunked-prefill-size."""


def load_model(
    config: ServerConfig,
    *,
    max_running: int = 256,
    stop: threading.Event | None = None,
    limits: ProcessLimits | None = None,
) -> LoadedModel:
    """Find, convert if need be, load and warm up the model of `config`.

    `max_running` is the most sequences of one step. Setting `stop` from another thread ends the
    load with LoadStopped within about a layer's time. Everything that is wrong with the model,
    its path or the memory is a ConfigError.
    """
    stop = stop or threading.Event()
    limits = limits or ProcessLimits()
    started = time.perf_counter()
    directory = resolve_model(config.model_path, stop)
    spec = read_spec(directory)
    max_model_len = choose_max_model_len(spec, config.context_length)
    num_threads = prepare_threads(limits)

    # Late, so that a wrong path or an unsupported model is told before torch is imported.
    import torch

    from trioserve.device import ops
    from trioserve.model.decoder import Decoder
    from trioserve.model.kv_pages import KvPages, page_bytes
    from trioserve.model.packing import pack_model, packed_bytes
    from trioserve.model.warm_up import choose_step_tokens
    from trioserve.model.weights import Weights
    from trioserve.runner.runner import ModelRunner

    def check_stop() -> None:
        if stop.is_set():
            raise LoadStopped("loading was stopped")

    torch.set_num_threads(num_threads)
    ops.warm_up()
    with Weights(directory) as weights:
        require_weights_fit(packed_bytes(spec, weights), limits.available_memory_bytes())
        packed = pack_model(spec, weights, check_stop)
    num_pages = choose_num_pages(
        bytes_per_page=page_bytes(spec, config.page_size),
        page_size=config.page_size,
        max_model_len=max_model_len,
        max_running=max_running,
        max_total_tokens=config.max_total_tokens,
        available_bytes=limits.available_memory_bytes() - config.host_cache_bytes,
    )
    try:
        pages = KvPages(spec, num_pages, config.page_size)
    except MemoryError as error:
        raise ConfigError(
            f"the system does not give memory for {num_pages} KV pages; lower --max-total-tokens"
        ) from error
    check_stop()
    decoder = Decoder(spec, packed, pages, max_model_len)
    max_step_tokens = config.chunked_prefill_size or choose_step_tokens(decoder, max_model_len)
    runner = ModelRunner(
        decoder,
        # Decoding sequences may take one token each beyond the budget of a step.
        max_tokens=max_step_tokens + max_running,
        max_sequences=max_running,
        max_len=max_model_len,
    )
    logger.info(
        "model %s loaded in %.1f s: %s threads, %s tokens a step",
        config.model_path,
        time.perf_counter() - started,
        num_threads,
        max_step_tokens,
    )
    info = ModelInfo(
        path=config.model_path,
        model_type=spec.model_type,
        architectures=(spec.architecture,),
        dtype="float16",
        vocab_size=spec.vocab_size,
        max_model_len=max_model_len,
    )
    return LoadedModel(
        info=info,
        runner=runner,
        directory=directory,
        pages=pages,
        eos_token_ids=spec.eos_token_ids,
        num_pages=num_pages,
        page_size=config.page_size,
        max_step_tokens=max_step_tokens,
    )

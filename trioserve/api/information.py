"""What can be asked about the server: models, health, configuration, load."""

import time
from typing import Any

import trio
from attrs import frozen

from trioserve import __version__
from trioserve.api.reply_syntax import call_format
from trioserve.engine.batch import Batch
from trioserve.engine.embedding_batch import EmbeddingBatch
from trioserve.engine.engine import Engine
from trioserve.engine.served import NamedModel

STARTED_AT = int(time.time())


def _card(name: str, model: NamedModel) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": STARTED_AT,
        "owned_by": "trioserve",
        "root": model.path,
        "parent": None,
        "max_model_len": model.info.max_model_len,
    }


def list_models(engine: Engine) -> dict[str, Any]:
    """`GET /v1/models`: every name of every model."""
    models = engine.directory.models
    data = [_card(name, model) for model in models for name in model.names]
    return {"object": "list", "data": data}


def retrieve_model(engine: Engine, name: str) -> dict[str, Any]:
    """`GET /v1/models/{id}`. Raises ModelNotFound."""
    model = engine.directory.find(name)
    return _card(name if name in model.names else model.names[0], model)


def health(engine: Engine) -> dict[str, Any]:
    """`GET /health`. Raises Unavailable while loading, draining, stuck or dead."""
    engine.check_healthy()
    return {"status": "ok"}


def model_info(engine: Engine) -> dict[str, Any]:
    """`GET /get_model_info`: of the server's own model, not of one beside it."""
    info, config = engine.directory.primary.info, engine.config
    batch = engine.batches[0]
    return {
        "model_path": info.path,
        "tokenizer_path": info.path,
        "served_model_name": config.served_names[0],
        "is_generation": info.is_generation,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "model_type": info.model_type,
        "architectures": list(info.architectures),
        "max_model_len": info.max_model_len,
        "vocab_size": info.vocab_size,
        "dtype": info.dtype,
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "server_config": {
            "max_running_requests": engine.max_running,
            "max_queued_requests": config.max_queued_requests,
            "page_size": batch.model.page_size if isinstance(batch, Batch) else None,
            "max_total_tokens": load_of(batch).capacity_tokens,
            "chunked_prefill_size": batch.model.max_step_tokens,
            "enable_cache_report": config.enable_cache_report,
            "enable_lora": False,
            "tool_call_parser": _tool_call_parser(engine, batch),
            "reasoning_parser": config.reasoning_parser,
        },
    }


def _tool_call_parser(engine: Engine, batch: Batch | EmbeddingBatch) -> str:
    """The format that calls are looked for in, `none` where there is none."""
    found = None
    if isinstance(batch, Batch):
        found = call_format(engine.config, batch.model.tokenizer)
    return found.name if found is not None else "none"


@frozen
class Load:
    """What one model computes and holds at this moment."""

    num_running: int
    num_waiting: int
    num_used_tokens: int = 0
    capacity_tokens: int = 0
    """An embedding model keeps no tokens."""

    @property
    def token_usage(self) -> float:
        """The share of the capacity that is used."""
        return self.num_used_tokens / self.capacity_tokens if self.capacity_tokens else 0.0


def load_of(batch: Batch | EmbeddingBatch) -> Load:
    """The load of one model."""
    if isinstance(batch, EmbeddingBatch):
        return Load(batch.num_running, batch.num_waiting)
    scheduler = batch.scheduler
    return Load(
        scheduler.num_running,
        scheduler.num_waiting,
        scheduler.num_held_tokens,
        scheduler.capacity_tokens(),
    )


def loads(engine: Engine) -> dict[str, Any]:
    """`GET /v1/loads`: of all models together. Raises Unavailable until they are loaded."""
    assert engine.directory.models, "a server without a model"
    every = [load_of(batch) for batch in engine.batches]
    # Only the first may have a pool.
    total = Load(
        sum(load.num_running for load in every),
        sum(load.num_waiting for load in every),
        every[0].num_used_tokens,
        every[0].capacity_tokens,
    )
    return {
        "timestamp": time.time(),
        "version": __version__,
        "loads": [
            {
                "dp_rank": 0,
                "num_running_reqs": total.num_running,
                "num_waiting_reqs": total.num_waiting,
                "num_used_tokens": total.num_used_tokens,
                "max_total_num_tokens": total.capacity_tokens,
                "token_usage": total.token_usage,
                "cache_hit_rate": engine.statistics.hits.share,
                "gen_throughput": engine.statistics.throughput.per_second(trio.current_time()),
                "max_running_requests": engine.max_running,
            }
        ],
    }

"""What can be asked about the server: models, health, configuration, load."""

import time
from typing import Any

import trio

from trioserve import __version__
from trioserve.engine.engine import Engine
from trioserve.errors import ModelNotFound

STARTED_AT = int(time.time())


def _card(engine: Engine, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": STARTED_AT,
        "owned_by": "trioserve",
        "root": engine.config.model_path,
        "parent": None,
        "max_model_len": engine.model.info.max_model_len,
    }


def list_models(engine: Engine) -> dict[str, Any]:
    """`GET /v1/models`."""
    return {
        "object": "list",
        "data": [_card(engine, name) for name in engine.config.served_names],
    }


def retrieve_model(engine: Engine, name: str) -> dict[str, Any]:
    """`GET /v1/models/{id}`. Raises ModelNotFound."""
    if name == engine.config.model_path and name not in engine.config.served_names:
        name = engine.config.served_names[0]
    if name not in engine.config.served_names:
        raise ModelNotFound(name)
    return _card(engine, name)


def health(engine: Engine) -> dict[str, Any]:
    """`GET /health`. Raises Unavailable while loading, draining, stuck or dead."""
    engine.check_healthy()
    return {"status": "ok"}


def model_info(engine: Engine) -> dict[str, Any]:
    """`GET /get_model_info`."""
    info, config = engine.model.info, engine.config
    return {
        "model_path": info.path,
        "tokenizer_path": info.path,
        "served_model_name": config.served_names[0],
        "is_generation": True,
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
            "page_size": engine.model.page_size,
            "max_total_tokens": engine.batch.scheduler.capacity_tokens(),
            "chunked_prefill_size": engine.model.max_step_tokens,
            "enable_cache_report": False,
            "enable_lora": False,
            "tool_call_parser": None,
            "reasoning_parser": None,
        },
    }


def loads(engine: Engine) -> dict[str, Any]:
    """`GET /v1/loads`."""
    scheduler = engine.batch.scheduler
    capacity = scheduler.capacity_tokens()
    used = scheduler.num_held_tokens
    return {
        "timestamp": time.time(),
        "version": __version__,
        "loads": [
            {
                "dp_rank": 0,
                "num_running_reqs": scheduler.num_running,
                "num_waiting_reqs": scheduler.num_waiting,
                "num_used_tokens": used,
                "max_total_num_tokens": capacity,
                "token_usage": used / capacity,
                "cache_hit_rate": 0.0,
                "gen_throughput": engine.statistics.throughput.per_second(trio.current_time()),
                "max_running_requests": engine.max_running,
            }
        ],
    }

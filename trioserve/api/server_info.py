"""`GET /server_info` and `GET /get_load`: what routers read to weigh and label a server."""

from typing import Any

from trioserve import __version__
from trioserve.api.information import loads
from trioserve.config import settings
from trioserve.engine.batch import Batch
from trioserve.engine.embedding_batch import EmbeddingBatch
from trioserve.engine.engine import Engine
from trioserve.setting import is_secret


def server_info(engine: Engine) -> dict[str, Any]:
    """Every setting that is no secret, what became of it, and the load now.

    sglang-router reads it: numbers it knows are never negative, and of `model` and `model_id`,
    which it takes for the same field, neither is sent. Raises Unavailable until there is a model.
    """
    config, info = engine.config, engine.directory.primary.info
    max_step_tokens = engine.batches[0].model.max_step_tokens
    (load,) = loads(engine)["loads"]
    capacity = load["max_total_num_tokens"]
    configured = {
        attribute.name: getattr(config, attribute.name)
        for attribute in settings()
        if not is_secret(attribute)
    }
    return {
        **configured,
        "is_embedding": not info.is_generation,
        "model_path": info.path,
        "served_model_name": config.served_names[0],
        "served_model_names": config.served_names,
        "version": __version__,
        "dp_size": 1,
        "tp_size": 1,
        "context_length": info.max_model_len,
        "dtype": info.dtype,
        "max_total_num_tokens": capacity,
        "max_total_tokens": capacity,
        "max_running_requests": engine.max_running,
        "max_prefill_tokens": max_step_tokens,
        "chunked_prefill_size": max_step_tokens,
        "internal_states": [
            {
                "num_running_reqs": load["num_running_reqs"],
                "num_waiting_reqs": load["num_waiting_reqs"],
                "num_used_tokens": load["num_used_tokens"],
                "token_usage": load["token_usage"],
                "cache_hit_rate": load["cache_hit_rate"],
                "last_gen_throughput": load["gen_throughput"],
            }
        ],
    }


def get_load(engine: Engine) -> list[dict[str, int]]:
    """One entry, for all models together. Raises Unavailable until they are loaded."""
    (load,) = loads(engine)["loads"]
    num_running, num_waiting = load["num_running_reqs"], load["num_waiting_reqs"]
    return [
        {
            "dp_rank": 0,
            "num_reqs": num_running + num_waiting,
            "num_waiting_reqs": num_waiting,
            "num_tokens": sum(map(_num_tokens, engine.batches)),
        }
    ]


def _num_tokens(batch: Batch | EmbeddingBatch) -> int:
    """Tokens held or queued: the prompts and what was generated of all that is open."""
    if isinstance(batch, EmbeddingBatch):
        return sum(each.request.num_tokens for each in batch.requests if not each.is_finished)
    choices = (choice for stream in batch.streams for choice in stream.choices)
    return sum(choice.sequence.num_tokens for choice in choices if choice.finish is None)

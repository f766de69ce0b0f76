"""How long a sequence may be and how many KV pages there are: settings against memory.

Pure arithmetic; every refusal is a ConfigError that names the flag to change.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from trioserve.model.spec import ModelSpec

logger = logging.getLogger(__name__)

_GIB = 1 << 30
# Of the memory that is free once the weights are in: what the pool takes by default, and the most
# it may take to hold one sequence of full length. The rest is for prompts, buffers and others.
_DEFAULT_SHARE = 0.6
_LARGEST_SHARE = 0.9
# A server should not take most of a large machine unasked; --max-total-tokens asks.
_DEFAULT_POOL_BYTES = 4 * _GIB


def choose_max_model_len(spec: ModelSpec, context_length: int | None) -> int:
    """Tokens of prompt and output together: the model's own, capped by --context-length."""
    max_len = min(spec.max_position_embeddings, context_length or spec.max_position_embeddings)
    if context_length and context_length > max_len:
        logger.warning("--context-length %s: the model allows only %s", context_length, max_len)
    if spec.sliding_window is not None and spec.sliding_window < max_len:
        raise ConfigError(
            f"model config: sliding_window {spec.sliding_window} is shorter than the context "
            f"of {max_len} tokens, which is not supported; "
            f"set --context-length {spec.sliding_window}"
        )
    return max_len


def require_weights_fit(weight_bytes: int, available_bytes: int) -> None:
    """Refuse a model whose weights alone exceed the free memory."""
    if weight_bytes > available_bytes:
        raise ConfigError(
            f"the model does not fit memory: its weights need {weight_bytes / _GIB:.1f} GiB, "
            f"{available_bytes / _GIB:.1f} GiB are free"
        )


def choose_num_pages(
    *,
    bytes_per_page: int,
    page_size: int,
    max_model_len: int,
    max_running: int,
    max_total_tokens: int | None,
    available_bytes: int,
) -> int:
    """Pages of the pool; `available_bytes` is what is free once the weights are in.

    --max-total-tokens is taken as given if it fits. By default the pool takes 60 % of the free
    memory, at most 4 GiB or one sequence of full length, whichever is more, and no more than all
    sequences together can use.
    """
    full_pages = -(-max_model_len // page_size)
    limit = int(available_bytes * _LARGEST_SHARE) // bytes_per_page
    if max_total_tokens is not None:
        num_pages = max_total_tokens // page_size
        if not num_pages:
            raise ConfigError(
                f"--max-total-tokens {max_total_tokens} is less than one page of {page_size}"
            )
        if num_pages > limit:
            raise ConfigError(
                f"--max-total-tokens {max_total_tokens} needs "
                f"{num_pages * bytes_per_page / _GIB:.1f} GiB, "
                f"{available_bytes / _GIB:.1f} GiB are free; at most {limit * page_size} fit"
            )
        return num_pages
    if full_pages > limit:
        # Where not one page fits, no context does.
        remedy = (
            f"set --context-length to at most {limit * page_size}"
            if limit
            else f"set a --page-size below {page_size} or free some memory"
        )
        raise ConfigError(
            f"the model does not fit memory: a context of {max_model_len} tokens needs "
            f"{full_pages * bytes_per_page / _GIB:.1f} GiB of KV pages, "
            f"{available_bytes / _GIB:.1f} GiB are free; {remedy}"
        )
    wanted = min(
        int(available_bytes * _DEFAULT_SHARE) // bytes_per_page,
        max(_DEFAULT_POOL_BYTES // bytes_per_page, full_pages),
        max_running * full_pages,
    )
    return max(wanted, full_pages)

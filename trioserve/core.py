"""The nouns that every room shares. Imports no room."""

from enum import StrEnum
from typing import NewType

from attrs import frozen

PageId = NewType("PageId", int)
"""A page of the KV pool: `page_size` consecutive token slots in every layer."""

SequenceId = NewType("SequenceId", int)
"""Identifies one sample of one prompt; smaller means it arrived earlier."""

StepNumber = NewType("StepNumber", int)
"""Launched steps are numbered 1, 2, 3, …; a fence is the step that must retire first."""


class FinishReason(StrEnum):
    """Why a choice ended, spelled as the API spells it."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@frozen
class SamplingParams:
    """How the next token is drawn; ranges are checked at the edge (api/schema).

    `seed` is always set: the engine draws one for requests that name none, because sampling noise
    is a function of (seed, sample index, position) and of nothing else.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1 and 0 keep every token."""
    min_p: float = 0.0
    seed: int = 0


@frozen
class StopParams:
    """What ends a choice before its token limit, besides being aborted."""

    strings: tuple[str, ...] = ()
    token_ids: frozenset[int] = frozenset()
    is_eos_ignored: bool = False


@frozen
class Finish:
    """How a choice ended; `matched_stop` is the token id or the string that ended it, if any."""

    reason: FinishReason
    matched_stop: int | str | None = None


@frozen
class ModelInfo:
    """What clients may know of the model that is served."""

    path: str
    """The model path as configured: a name, a hub id or a directory."""
    model_type: str
    architectures: tuple[str, ...]
    dtype: str
    vocab_size: int
    max_model_len: int
    """Tokens of prompt and output together."""

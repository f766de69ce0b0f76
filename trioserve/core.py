"""The nouns that every room shares. Imports no room."""

from enum import StrEnum
from typing import NewType, Protocol

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
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its logit), each id at most once."""

    @property
    def has_penalties(self) -> bool:
        """Whether a draw depends on which tokens there were before."""
        return (
            self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
            or self.repetition_penalty != 1.0
        )


@frozen
class StopParams:
    """What ends a choice before its token limit, besides being aborted."""

    strings: tuple[str, ...] = ()
    token_ids: frozenset[int] = frozenset()
    is_eos_ignored: bool = False
    regexes: tuple[str, ...] = ()
    """Patterns of the `regex` package that are known to compile."""
    is_kept: bool = False
    """The text keeps the match, or the text of the token, that ended it."""
    min_tokens: int = 0
    """Nothing of the above takes effect before so many tokens."""


@frozen
class ReadoutParams:
    """What is read from the model beside the tokens drawn; by default nothing."""

    num_top: int | None = None
    """Logprobs of each token, and of so many of the most likely ones; None reads none."""
    prompt_from: int | None = None
    """Position of the first prompt token whose logprobs are read too. The very first token has
    none: nothing comes before it. None reads none."""
    token_ids: tuple[int, ...] = ()
    """Tokens whose logprobs are read at every position, in this order."""
    has_hidden_state: bool = False
    """The final layer's state, after the last norm, at the position that each token is drawn
    from."""


READ_NOTHING = ReadoutParams()


class TokenMask(Protocol):
    """What one sequence may draw next, where a grammar has a say in it."""

    def allowed(self) -> memoryview:
        """The tokens that may be drawn next: bit i % 8 of byte i // 8 is token i's.

        Tokens beyond the end may not. Called off the event loop while a step computes, by one
        thread at a time, and nobody changes the state meanwhile; valid until the next call. May
        raise: then the row fails, and no other.
        """


@frozen
class CacheNamespace:
    """Prefixes are shared within one and never between two.

    A record and not a joined string: a salt that reads like an adapter's name is still a salt.
    """

    salt: str | None = None
    """`cache_salt` of the request."""


SHARED = CacheNamespace()


@frozen
class CachedTokens:
    """Tokens of a prompt that were not computed for it, by where they came from."""

    device: int = 0
    host: int = 0
    storage: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.device + self.host + self.storage


NOTHING_CACHED = CachedTokens()


@frozen
class TokenLogprobs:
    """Natural logarithms of raw model probabilities, before bias, penalties and temperature."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """(token id, logprob) of the most likely tokens, best first, of equal ones the lowest id."""
    chosen: tuple[float, ...] = ()
    """Of `ReadoutParams.token_ids`, in their order."""


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
    """Tokens of prompt and output together, or of one input to embed."""
    is_generation: bool = True
    """It generates text; if not, it embeds."""

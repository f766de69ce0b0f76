"""What a client asks of the engine, and what it gets back piece by piece."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from trioserve.core import (
    READ_NOTHING,
    SHARED,
    CacheNamespace,
    Finish,
    ReadoutParams,
    SamplingParams,
    StopParams,
    TokenLogprobs,
)
from trioserve.grammar.compiled import CompiledGrammar

TextWatch = Callable[[str], bool]
"""Told of a sample's text piece by piece; true once the sample is complete. Never a checkpoint."""


@frozen
class Generation:
    """One prompt and how to go on from it."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    """The most tokens that each sample may have; 0 only has the prompt read."""
    sampling: SamplingParams
    stop: StopParams
    readout: ReadoutParams = READ_NOTHING
    skips_special_tokens: bool = True
    grammar: CompiledGrammar | None = None
    """What the text has to be, if anything."""
    grammar_begins_after: str | None = None
    """The grammar is for what comes after the first time that the text has this; None: for all."""
    shown_ids: frozenset[int] = frozenset()
    """Special tokens that are part of the text all the same."""
    new_watch: Callable[[], TextWatch] | None = None
    """Makes what may end a sample by its text; one for each."""
    namespace: CacheNamespace | None = SHARED
    """Within it, what is computed is shared with other requests; None shares nothing."""
    priority: int = 0
    """Higher ones are served first."""


@frozen
class GenerateRequest:
    """One validated request: every prompt is sampled `num_samples` times.

    Choice i of the request is sample i % num_samples of prompt i // num_samples.
    """

    request_id: str
    generations: tuple[Generation, ...]
    num_samples: int
    timeout_s: float | None = None
    limit_param: str = "max_tokens"
    """The field to name when the tokens asked for can never fit."""
    handles: tuple[str, ...] = ()
    """Names under which the generations can be aborted one by one, in their order; or none."""

    @property
    def num_sequences(self) -> int:
        """Sequences that the request brings into the queue."""
        return len(self.generations) * self.num_samples

    def generation_of(self, index: int) -> Generation:
        """What choice `index` is a sample of."""
        return self.generations[index // self.num_samples]


@frozen
class Token:
    """One generated token whose text has been shown, or never will be."""

    id: int
    text_start: int
    """Characters of the choice's text before its own; never more than the text has."""
    logprobs: TokenLogprobs | None


@frozen
class Delta:
    """What one choice produced since its reader last took something.

    `text` may be empty: tokens whose text is held back, or a finish that adds none.
    """

    index: int
    text: str
    num_tokens: int
    """Generated since then, those held back included."""
    finish: Finish | None
    tokens: tuple[Token, ...] = ()
    """Those whose text is complete with `text`; the rest come with the finish at the latest."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Of the prompt's tokens from position max(1, `ReadoutParams.prompt_from`) on; all of them in
    the choice's first delta, if asked for. None if the choice ended before its prompt was read."""
    hidden_state: npt.NDArray[np.float32] | None = field(default=None, eq=False)
    """[hidden size]: what the last token was drawn from; with the finish, if asked for."""

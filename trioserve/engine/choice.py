"""`Choice`: one sample of one prompt, from its tokens to what its reader takes."""

import math

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from trioserve.core import Finish, FinishReason, SequenceId, TokenLogprobs
from trioserve.engine.output import ChoiceOutput
from trioserve.engine.request import Delta, Generation
from trioserve.grammar.state import GrammarState
from trioserve.scheduler.sequence import Sequence
from trioserve.text.assembler import TextAssembler
from trioserve.text.regex_stops import SearchBudget
from trioserve.text.tokenizer import Tokenizer

STREAM_CAPACITY_TOKENS = 64
"""Tokens that a choice may be ahead of its reader.

Enough that a reader who is late by a second does not slow its sequence on a CPU; small enough that
a reader who has gone costs less than one prefill chunk.
"""


@frozen
class Prompt:
    """What all samples of one prompt share."""

    generation: Generation
    tokenizer: Tokenizer
    end_ids: frozenset[int]
    """Tokens that end a choice."""
    budget: SearchBudget
    """Shared by the whole request."""

    @classmethod
    def of(cls, generation: Generation, tokenizer: Tokenizer, budget: SearchBudget) -> "Prompt":
        """A generation as the model at hand goes on with it."""
        stop = generation.stop
        eos_ids = frozenset[int]() if stop.is_eos_ignored else tokenizer.eos_token_ids
        return cls(generation, tokenizer, stop.token_ids | eos_ids, budget)


@define(eq=False)
class Choice:
    """Written by commit and abort, emptied by the stream's reader; one thread.

    A request may bring a quarter of a million of them into the queue, so what a choice needs for
    its text is made when it has its first token.
    """

    index: int
    prompt: Prompt
    sequence: Sequence = field(init=False)
    grammar: GrammarState | None = field(init=False, default=None)
    """How far it has come in what it has to be."""
    finish: Finish | None = field(init=False, default=None)
    num_tokens: int = field(init=False, default=0)
    """Tokens generated and billed."""
    last_token_at: float = field(init=False, default=-math.inf)
    _num_untaken: int = field(init=False, default=0)
    _is_finish_taken: bool = field(init=False, default=False)
    _output: ChoiceOutput | None = field(init=False, default=None)

    @classmethod
    def of(cls, index: int, prompt: Prompt, sequence_id: SequenceId) -> "Choice":
        """A choice with its sequence, which is not enqueued."""
        choice = cls(index, prompt)
        generation = prompt.generation
        if generation.grammar is not None:
            after, tokenizer = generation.grammar_begins_after, prompt.tokenizer
            choice.grammar = GrammarState(
                generation.grammar,
                prompt.end_ids,
                None if after is None else after.encode(),
                {shown: tokenizer.token_bytes(shown) for shown in generation.shown_ids},
            )
        choice.sequence = Sequence(
            id=sequence_id,
            prompt_ids=generation.prompt_ids,
            max_tokens=generation.max_tokens,
            sampling=generation.sampling,
            sample_index=index,
            credit=choice.credit,
            readout=generation.readout,
            min_tokens=generation.stop.min_tokens,
            end_ids=prompt.end_ids,
            mask=choice.grammar,
            namespace=generation.namespace,
            priority=generation.priority,
        )
        return choice

    @property
    def num_untaken(self) -> int:
        """Tokens that the reader has not taken."""
        return self._num_untaken

    @property
    def has_news(self) -> bool:
        """Whether `take` has something to give."""
        return self._num_untaken > 0 or (self.finish is not None and not self._is_finish_taken)

    @property
    def output(self) -> ChoiceOutput:
        """What the choice has come to so far."""
        if self._output is None:
            generation = self.prompt.generation
            assembler = TextAssembler(
                self.prompt.tokenizer,
                generation.stop,
                skips_special_tokens=generation.skips_special_tokens,
                shown_ids=generation.shown_ids,
                budget=self.prompt.budget,
            )
            self._output = ChoiceOutput(generation, assembler)
        return self._output

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs]:
        """Of the prompt's tokens as far as they were read: all of them with the first token."""
        return self._output.prompt_logprobs if self._output is not None else []

    @property
    def hidden_states(self) -> list[npt.NDArray[np.float32]]:
        """What each token so far was drawn from, if asked for."""
        return self._output.hidden_states if self._output is not None else []

    def credit(self) -> int:
        """Tokens that may be generated before the reader has to take some."""
        return STREAM_CAPACITY_TOKENS - self._num_untaken

    def commit(self, token_id: int, logprobs: TokenLogprobs | None) -> Finish | None:
        """Append one sampled token; says how the choice ends by it, if it does.

        Raises RequestError if its stop patterns take too long, and RequestFailed if the token
        cannot be made text, or is none of the grammar's.
        """
        self.sequence.append(token_id)
        return self._commit(token_id, logprobs)

    def commit_forced(self) -> Finish | None:
        """Append the first token of `forced`, which no step has sampled. See `commit`."""
        token_id = self.forced[0]
        self.sequence.append_forced(token_id)
        return self._commit(token_id, None)

    @property
    def forced(self) -> tuple[int, ...]:
        """Tokens that come next without a step, because the grammar leaves no others.

        Empty where something is read at each token, which takes a step, and where the reader has
        no room for more.
        """
        readout = self.prompt.generation.readout
        is_read = readout.num_top is not None or readout.token_ids or readout.has_hidden_state
        if self.grammar is None or is_read or self.credit() <= 0:
            return ()
        return self.grammar.forced()

    def _commit(self, token_id: int, logprobs: TokenLogprobs | None) -> Finish | None:
        num_before = self.num_tokens
        self.num_tokens += 1
        self._num_untaken += 1
        # As the device masks them: the first `min_tokens` tokens are none of these.
        if token_id in self.prompt.end_ids and num_before >= self.prompt.generation.stop.min_tokens:
            self.output.add_last_token(token_id, logprobs)
            return Finish(FinishReason.STOP, token_id)
        if self.grammar is not None:
            self.grammar.accept(token_id)
        matched_stop = self.output.add_token(token_id, logprobs)
        if matched_stop is not None:
            return Finish(FinishReason.STOP, matched_stop)
        if self.output.is_complete and self.num_tokens >= self.prompt.generation.stop.min_tokens:
            return Finish(FinishReason.STOP)
        if self.grammar is not None and self.grammar.is_finished:
            return Finish(FinishReason.STOP)
        if self.num_tokens >= self.sequence.max_tokens:
            return Finish(FinishReason.LENGTH)
        return None

    def end(self, finish: Finish) -> None:
        """Close the choice. Held-back text goes out, unless a stop has cut it off."""
        assert self.finish is None, f"choice {self.index} ended twice: {self.finish}, {finish}"
        self.finish = finish
        if self._output is not None:
            self._output.end()

    def take(self) -> Delta:
        """Everything since the last take, as one piece."""
        num_tokens, self._num_untaken = self._num_untaken, 0
        self._is_finish_taken = self.finish is not None
        if self._output is None:
            return Delta(self.index, "", num_tokens, self.finish)
        return self._output.take(self.index, num_tokens, self.finish)

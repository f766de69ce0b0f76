"""`GrammarState`: how far one choice has come in its grammar; the `TokenMask` of its sequence."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field

from trioserve.errors import RequestFailed
from trioserve.grammar.compiled import CompiledGrammar
from trioserve.grammar.matching import (
    Words,
    add_tokens,
    fill_next,
    has_token,
    new_matcher,
    no_tokens,
    remove_tokens,
)

if TYPE_CHECKING:
    import xgrammar


MAX_ACCEPT_S = 0.05
"""Of the processor, for one token. It takes some 20 µs; an ambiguous grammar takes longer with each
token, and would hold up everybody."""


@define(eq=False)
class GrammarState:
    """Written by commit, on the event loop; read by `allowed`, off it, while a step computes.

    Where the grammar leaves one continuation, xgrammar splits it into the longest tokens there are,
    and only those are allowed: so a choice that takes them without a step (`forced`) says the same
    as one that samples each. Tokens that end the choice are allowed where the text may end, and
    nowhere else, unless there is nothing else that may come.
    """

    grammar: CompiledGrammar
    end_ids: frozenset[int]
    """Tokens that end the choice: the model's, unless they are ignored, and the request's."""
    begins_after: bytes | None = None
    """The grammar is for what comes after the first time that the text has this; before, any token
    may come that does not end the choice. None: for all of it."""
    markers: Mapping[int, bytes] = field(factory=dict)
    """Special tokens that are text before the grammar begins, and what they are."""
    _matcher: "xgrammar.GrammarMatcher | None" = field(init=False, default=None)
    _text: Words | None = field(init=False, default=None)
    """What may follow as text, read only; None: not known yet."""
    _forced: tuple[int, ...] | None = field(init=False, default=None)
    """None: not known yet."""
    _is_finished: bool = field(init=False, default=False)
    _before: bytes = field(init=False, default=b"")
    """The end of the text so far, while the grammar has not begun."""

    @property
    def has_begun(self) -> bool:
        """Whether the grammar has a say in the next token."""
        return self.begins_after is None

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete and nothing may follow it."""
        if self._matcher is None:
            return self.has_begun and self.grammar.is_end_alone
        return self._is_finished

    def allowed(self) -> memoryview:
        """See TokenMask."""
        return self._allowed_tokens().view(np.uint8).data

    def forced(self) -> tuple[int, ...]:
        """What has to come next, token by token; empty where there is a choice."""
        if not self.has_begun:
            return ()
        if self._forced is None:
            found = tuple(self._opened().find_jump_forward_tokens())
            # One that ends the choice is no text of the grammar.
            ends = [i for i, token_id in enumerate(found) if token_id in self.end_ids]
            self._forced = found[: ends[0]] if ends else found
        return self._forced

    def accept(self, token_id: int) -> None:
        """A token that goes on with the text.

        Raises RequestFailed if it is not allowed, and for a grammar that cannot be followed, or not
        in time: this runs on the event loop.
        """
        began = time.thread_time()
        try:
            self._accept(token_id)
        except RuntimeError as error:  # xgrammar's own
            raise RequestFailed(f"the grammar cannot be followed: {error}") from error
        if time.thread_time() - began > MAX_ACCEPT_S:
            raise RequestFailed("the grammar takes too long to follow")

    def _accept(self, token_id: int) -> None:
        if self.begins_after is not None:
            self._accept_before(token_id, self.begins_after)
        else:
            # What was forced beyond it is forced still.
            forced, self._forced, self._text = self._forced, None, None
            if forced is not None and len(forced) > 1 and forced[0] == token_id:
                self._forced = forced[1:]
            if not self._opened().accept_token(token_id):
                raise RequestFailed(f"token {token_id} is not allowed by the grammar")
        if self.has_begun:
            # All that is asked for next, so that its time is counted.
            self.forced()
            self._is_finished = self._opened().is_completed() and not self._text_tokens().any()

    def _accept_before(self, token_id: int, begins_after: bytes) -> None:
        tokens = self.grammar.vocabulary.tokens
        own = tokens[token_id] if token_id < len(tokens) else b""
        text = self._before + self.markers.get(token_id, own)
        _, found, rest = text.partition(begins_after)
        if not found:
            self._before = text[-len(begins_after) :]
            return
        self.begins_after, self._before = None, b""
        rest = rest.lstrip()
        if rest and not self._opened().accept_string(rest):
            raise RequestFailed("what came before the grammar ran into it")

    def _allowed_tokens(self) -> Words:
        vocabulary = self.grammar.vocabulary
        ends = [token_id for token_id in self.end_ids if token_id < vocabulary.num_ids]
        if not self.has_begun:
            # Without the model's own ends, although they may be ignored: the text is not complete.
            words = vocabulary.text_tokens.copy()
            remove_tokens(words, ends)
            return words
        if forced := self.forced():
            words = no_tokens(vocabulary.num_ids)
            add_tokens(words, forced[:1])
            return words
        words = self._text_tokens()
        if self._opened().is_completed():
            words = words.copy()
            add_tokens(words, ends)
        elif any(has_token(words, token_id) for token_id in ends):
            others = words.copy()
            remove_tokens(others, ends)
            # The grammar's only way on is a token that the request ends at.
            return others if others.any() else words
        return words

    def _text_tokens(self) -> Words:
        if self._text is None:
            vocabulary = self.grammar.vocabulary
            self._text = no_tokens(vocabulary.num_ids)
            fill_next(self._opened(), self._text)
            self._text &= vocabulary.text_tokens
        return self._text

    def _opened(self) -> "xgrammar.GrammarMatcher":
        if self._matcher is None:
            self._matcher = new_matcher(self.grammar.compiled, self.grammar.vocabulary)
        return self._matcher

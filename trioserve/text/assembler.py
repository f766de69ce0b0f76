"""From the tokens of one choice to the text that its client may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from trioserve.text.regex_stops import RegexFinder, SearchBudget
from trioserve.text.stops import StopFinder

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from trioserve.core import StopParams
    from trioserve.text.tokenizer import Tokenizer


@frozen
class Assembled:
    """What one token led to; all numbers are characters of the choice's text before any trimming.

    `text` is ready to be shown: it never ends inside a character or a possible stop.
    """

    text: str
    matched_stop: str | None
    """The stop string or pattern that the token completed."""
    text_start: int
    """Characters before the token's own; tokens that share a character all start at it."""
    text_end: int
    """The token's text is complete once so many characters have been shown."""


class TextAssembler:
    """Detokenizes one choice and looks for its stops. Made for each choice, not shared.

    The joined text of all `feed` calls and one `flush` or `feed_last` is the choice's whole text:
    streamed and not streamed answers are equal because both are made here. Special tokens leave no
    trace unless asked for.

    No method is a checkpoint. What is fed raises RequestError if the stop patterns take too long.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: StopParams,
        *,
        skips_special_tokens: bool = True,
        shown_ids: AbstractSet[int] = frozenset(),
        budget: SearchBudget | None = None,
    ) -> None:
        """`budget` is shared by all choices of a request; without one this choice has its own.
        `shown_ids` are special tokens that are shown all the same."""
        self._detokenizer = tokenizer.new_detokenizer(
            skip_special_tokens=skips_special_tokens, shown_ids=shown_ids
        )
        self._skipped_ids = (
            tokenizer.special_ids - shown_ids if skips_special_tokens else frozenset[int]()
        )
        self._stop = stop
        self._finder = _new_finder(stop, budget)
        self._num_tokens = 0
        self._num_chars = 0
        self._is_ended = False

    def feed(self, token_id: int) -> Assembled:
        """Take the next token; not to be called after one that completed a stop."""
        assert not self._is_ended, "fed after the text had ended"
        self._num_tokens += 1
        num_before = self._num_chars
        text = self._decode(token_id)
        text_start = num_before + self._detokenizer.own_offset
        text_end = self._num_chars + self._detokenizer.num_pending
        if self._finder is None:
            return Assembled(text, None, text_start, text_end)
        found = self._finder.feed(text, is_early=self._num_tokens < self._stop.min_tokens)
        self._is_ended = found.matched_stop is not None
        return Assembled(found.text, found.matched_stop, text_start, text_end)

    def feed_last(self, token_id: int) -> Assembled:
        """Take the token that ends the choice by its id, in place of `flush`.

        Its text is dropped unless stops are kept. Stops are not looked for: the id has decided.
        """
        is_shown = self._stop.is_kept and token_id not in self._skipped_ids
        text = self._finder.flush() if self._finder is not None else ""
        num_before = self._num_chars
        if is_shown:
            text += self._decode(token_id)
            num_before += self._detokenizer.own_offset
        text += self._flush_detokenizer()
        self._is_ended = True
        return Assembled(text, None, num_before if is_shown else self._num_chars, self._num_chars)

    def flush(self) -> str:
        """The held-back tail once the choice has ended; empty if a stop ended it.

        A stop that the end would only now complete (one with U+FFFD in it) is not looked for: the
        choice has ended for another reason.
        """
        if self._is_ended:
            return ""
        self._is_ended = True
        held = self._finder.flush() if self._finder is not None else ""
        return held + self._flush_detokenizer()

    def _decode(self, token_id: int) -> str:
        text = self._detokenizer.feed(token_id)
        self._num_chars += len(text)
        return text

    def _flush_detokenizer(self) -> str:
        text = self._detokenizer.flush()
        self._num_chars += len(text)
        return text


def _new_finder(stop: StopParams, budget: SearchBudget | None) -> StopFinder | None:
    if not stop.strings and not stop.regexes:
        return None
    regexes = RegexFinder(stop.regexes, budget or SearchBudget()) if stop.regexes else None
    return StopFinder(stop.strings, stop.regexes, regexes, is_kept=stop.is_kept)

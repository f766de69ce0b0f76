"""From the tokens of one choice to the text that its client may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from trioserve.text.stops import StopFinder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trioserve.text.tokenizer import Tokenizer


@frozen
class Assembled:
    """Text ready to be shown (never ending inside a character or a possible stop string), the stop
    string that ended the text, and how many of the fed tokens it took: the rest do not count."""

    text: str
    matched_stop: str | None
    num_used_tokens: int


class TextAssembler:
    """Detokenizes one choice and looks for its stop strings. Made for each choice, not shared.

    The joined text of all `feed` calls and one `flush` is the choice's whole text, however the
    tokens were grouped: streamed and not streamed answers are equal because both are made here.
    Special tokens leave no trace unless asked for. The token that ends a choice by its id is not
    part of the text: do not feed it.

    No method is a checkpoint.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop_strings: tuple[str, ...], skip_special_tokens: bool = True
    ) -> None:
        self._detokenizer = tokenizer.new_detokenizer(skip_special_tokens=skip_special_tokens)
        self._finder = StopFinder(stop_strings) if stop_strings else None
        self._matched_stop: str | None = None

    def feed(self, token_ids: Sequence[int]) -> Assembled:
        """Take tokens up to the one that completes a stop string; not to be called after that."""
        assert self._matched_stop is None, f"fed after the stop {self._matched_stop!r} was found"
        shown: list[str] = []
        for num_used, token_id in enumerate(token_ids, start=1):
            text = self._detokenizer.feed(token_id)
            if self._finder is not None:
                found = self._finder.feed(text)
                text = found.text
                self._matched_stop = found.matched_stop
            shown.append(text)
            if self._matched_stop is not None:
                return Assembled("".join(shown), self._matched_stop, num_used)
        return Assembled("".join(shown), None, len(token_ids))

    def flush(self) -> str:
        """The held-back tail once the choice has ended; empty if a stop string ended it.

        A stop string that the end would only now complete (one with U+FFFD in it) is not looked
        for: the choice has ended for another reason.
        """
        if self._matched_stop is not None:
            return ""
        held = self._finder.flush() if self._finder is not None else ""
        return held + self._detokenizer.flush()

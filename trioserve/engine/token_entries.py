"""`TokenEntries`: the generated tokens of one choice on their way to its reader."""

from collections import deque

from attrs import evolve

from trioserve.engine.request import Token


class TokenEntries:
    """Each token waits until all of its text has been shown, so that it travels with that text.

    In order: a token without text of its own (a skipped special one) follows those before it.
    """

    def __init__(self) -> None:
        self._hidden: deque[tuple[int, Token]] = deque()
        self._shown: list[Token] = []

    def add(self, token: Token, text_end: int) -> None:
        """A token whose text is complete once `text_end` characters of the choice are shown."""
        self._hidden.append((text_end, token))

    def show(self, num_chars: int) -> None:
        """So many characters of the choice's text are shown by now."""
        hidden = self._hidden
        while hidden and hidden[0][0] <= num_chars:
            self._shown.append(hidden.popleft()[1])

    def show_all(self, num_chars: int) -> None:
        """The choice has ended with so many characters; tokens of what was cut off start there."""
        for _, token in self._hidden:
            is_inside = token.text_start <= num_chars
            self._shown.append(token if is_inside else evolve(token, text_start=num_chars))
        self._hidden.clear()

    def take(self) -> tuple[Token, ...]:
        """Those shown since the last call."""
        taken = tuple(self._shown)
        self._shown.clear()
        return taken

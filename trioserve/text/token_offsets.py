"""Where each token of a prompt begins in the prompt's text, in code points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trioserve.text.detokenizer import Detokenizer


@frozen
class OffsetText:
    """A text and its tokens; one offset a token, never falling, never more than the text's length.

    Tokens that share a character all begin at it. A token without text of its own (BOS, or a
    special one that is left out) begins where the next one does.
    """

    text: str
    token_ids: tuple[int, ...]
    offsets: tuple[int, ...]

    def part(self, start: int, num_chars: int) -> OffsetText:
        """So much of the text as the whole of it. All tokens stay: those before and behind have no
        text in it."""
        return OffsetText(
            self.text[start : start + num_chars],
            self.token_ids,
            tuple(min(max(offset - start, 0), num_chars) for offset in self.offsets),
        )


@frozen
class TextToken:
    """One token that a text was encoded to."""

    id: int
    text: bytes
    """Its own bytes, whatever stood in the text."""
    span: tuple[int, int]
    """The tokenizer's own idea of the characters that it stands for."""
    is_added: bool
    """Put around the text, not made of it."""


def offsets_in(text: str, tokens: Iterable[TextToken]) -> OffsetText:
    """Of a text that was encoded.

    A token is looked for byte by byte. The tokenizer's spans are asked only where it changed the
    text (Unicode normalization, a space put in front): some leave out the spaces before a word.
    """
    data = text.encode()
    num_bytes = num_chars = 0  # of the text: passed, and begun
    token_ids, offsets = [], []
    for token in tokens:
        token_ids.append(token.id)
        own = b"" if token.is_added else token.text
        if data.startswith(own, num_bytes):
            is_inside = bool(own) and _is_continuation(own[0])
            offsets.append(num_chars - is_inside)
            num_bytes += len(own)
            num_chars += sum(not _is_continuation(byte) for byte in own)
            continue
        while num_bytes < len(data) and _is_continuation(data[num_bytes]):
            num_bytes += 1
        start, end = token.span
        offsets.append(max(start, num_chars))
        passed = text[num_chars:end]
        num_bytes += len(passed.encode())
        num_chars += len(passed)
    return OffsetText(text, tuple(token_ids), _non_falling(offsets, len(text)))


def decoded_offsets(token_ids: Sequence[int], detokenizer: Detokenizer) -> OffsetText:
    """Of ids and the text that `detokenizer`, which is fresh, makes of them."""
    pieces: list[str] = []
    offsets = []
    num_chars = 0
    for token_id in token_ids:
        piece = detokenizer.feed(token_id)
        offsets.append(num_chars + detokenizer.own_offset)
        pieces.append(piece)
        num_chars += len(piece)
    text = "".join(pieces) + detokenizer.flush()
    return OffsetText(text, tuple(token_ids), _non_falling(offsets, len(text)))


def _is_continuation(byte: int) -> bool:
    """Whether a byte of UTF-8 is not the first of its character."""
    return byte & 0xC0 == 0x80


def _non_falling(offsets: list[int], most: int) -> tuple[int, ...]:
    held, highest = [], 0
    for offset in offsets:
        highest = min(max(highest, offset), most)
        held.append(highest)
    return tuple(held)

"""How much text one token can stand for, so that a text far too long is refused without a look."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen
from tokenizers import models

from trioserve.text.token_bytes import BYTE_OF_LETTER

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_MAX_COMPOSED_CHARS = 4
"""Characters that Unicode's composition (NFC, NFKC) can make one of."""

_WHOLE_PRE_TOKENIZERS = {"ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"}
_ASCII = frozenset(range(0x80))
_CONTROL_BYTES = frozenset({*range(0x20), 0x7F})
_CONTINUATION_BYTES = frozenset(range(0x80, 0xC0))


@frozen
class TokenSpan:
    """A text has a token for each `max_chars` of its characters, `unknown_chars` left out."""

    max_chars: int
    unknown_chars: str
    """Control characters that the vocabulary cannot write: any number of them may leave nothing."""

    @classmethod
    def from_backend(cls, backend: Backend) -> TokenSpan | None:
        """None where there is no such bound, or where none is certain.

        There is none where text can vanish, or where an unknown stretch of any length becomes one
        token. Reads the whole vocabulary, so it is for load time: 20 ms for 50,000 tokens.
        """
        if backend.truncation is not None or not isinstance(backend.model, models.BPE):
            return None
        if any(
            token.lstrip or token.rstrip for token in backend.get_added_tokens_decoder().values()
        ):
            return None  # a token that takes the spaces around it takes any number of them
        pre_tokenizers = _steps(backend.pre_tokenizer, "pretokenizers")
        if not all(_is_whole(step) for step in pre_tokenizers):
            return None
        vocabulary = backend.get_vocab(with_added_tokens=True)
        if any(step["type"] == "ByteLevel" for step in pre_tokenizers):
            missing = {byte for letter, byte in BYTE_OF_LETTER.items() if letter not in vocabulary}
            # Past ASCII a character has a continuation byte, so its first byte is not needed.
            needed = _ASCII | _CONTINUATION_BYTES
        elif backend.model.byte_fallback:
            # Here a character is written with all of its bytes or not at all.
            needed = frozenset(range(256))
            missing = {byte for byte in needed if f"<0x{byte:02X}>" not in vocabulary}
        else:
            return None
        unknown = missing & _CONTROL_BYTES
        if needed & (missing - unknown):
            return None
        num_chars: int | None = max(map(len, vocabulary))
        for step in _steps(backend.normalizer, "normalizers"):
            num_chars = None if num_chars is None else _before_normalizing(num_chars, step)
        if num_chars is None:
            return None
        return cls(num_chars, "".join(map(chr, sorted(unknown))))

    def least_tokens(self, text: str) -> int:
        """Tokens that `text` has at least. Takes a pass over it at the speed of memory."""
        num_chars = len(text) - sum(text.count(char) for char in self.unknown_chars)
        return -(-num_chars // self.max_chars)


def _is_whole(pre_tokenizer: dict[str, Any]) -> bool:
    """Whether it only splits, and takes nothing away."""
    return (
        pre_tokenizer["type"] in _WHOLE_PRE_TOKENIZERS
        and pre_tokenizer.get("behavior") != "Removed"
    )


def _before_normalizing(num_chars: int, step: dict[str, Any]) -> int | None:
    """The most characters of a text of which `step` makes `num_chars`; None if it may be any."""
    match step:
        case {"type": "NFD" | "NFKD" | "Prepend"}:
            return num_chars
        case {"type": "NFC" | "NFKC"}:
            return num_chars * _MAX_COMPOSED_CHARS
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return num_chars if len(new) >= len(old) else None
        case _:
            return None


def _steps(part: Any, key: str) -> list[dict[str, Any]]:
    """A part of the tokenizer as a flat list, from its own JSON form; the library has no other."""
    if part is None:
        return []

    def flat(state: dict[str, Any]) -> list[dict[str, Any]]:
        if state["type"] != "Sequence":
            return [state]
        return [step for inner in state[key] for step in flat(inner)]

    return flat(json.loads(part.__getstate__()))

"""The bytes that each token id stands for, for tokenizers whose decoder joins bytes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_of_letter() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable letter: Latin-1's printable ones stand for
    themselves, the rest take the letters from U+0100 on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update({chr(0x100 + rank): byte for rank, byte in enumerate(others)})
    return table


BYTE_OF_LETTER = _byte_of_letter()


class TokenBytes:
    """Token id -> bytes, computed when first asked for and kept; shared by all requests.

    Two families are understood: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM), and SentencePiece
    with byte fallback (Llama 2, Mistral, Gemma). `num_stripped_spaces` leading spaces of a whole
    text are not shown (the second family writes a space before the first word).

    Computed on demand because a vocabulary of 256,000 ids would add half a second to every start.
    """

    def __init__(
        self, backend: Backend, replacements: list[tuple[str, str]] | None, num_stripped_spaces: int
    ) -> None:
        self.num_stripped_spaces = num_stripped_spaces
        self._backend = backend
        self._replacements = replacements  # None: byte-level
        self._cache: dict[int, bytes] = {}

    @classmethod
    def from_backend(cls, backend: Backend) -> TokenBytes | None:
        """None when the decoder is of another kind; `WindowDetokenizer` serves those."""
        steps = _decoder_steps(backend)
        kinds = [step["type"] for step in steps]
        if kinds == ["ByteLevel"]:
            return cls(backend, None, 0)
        num_replaces = kinds.count("Replace")
        replaces, rest = steps[:num_replaces], steps[num_replaces:]
        if [step["type"] for step in rest[:2]] != ["ByteFallback", "Fuse"]:
            return None
        if any(step["type"] != "Replace" or "String" not in step["pattern"] for step in replaces):
            return None
        num_stripped_spaces = 0
        for step in rest[2:]:
            if step["type"] != "Strip" or step["content"] != " " or step["stop"] != 0:
                return None
            num_stripped_spaces += step["start"]
        pairs = [(step["pattern"]["String"], step["content"]) for step in replaces]
        return cls(backend, pairs, num_stripped_spaces)

    def get(self, token_id: int) -> bytes:
        """Empty for an id that the tokenizer does not know (logits may be padded beyond it)."""
        known = self._cache.get(token_id)
        if known is None:
            token = self._backend.id_to_token(token_id)
            known = b"" if token is None else self._bytes_of(token)
            self._cache[token_id] = known
        return known

    def _bytes_of(self, token: str) -> bytes:
        if self._replacements is None:
            try:
                return bytes(map(BYTE_OF_LETTER.__getitem__, token))
            except KeyError:  # an added token is plain text
                return token.encode()
        for old, new in self._replacements:
            token = token.replace(old, new)
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(match[1], 16)])
        return token.encode()


def _decoder_steps(backend: Backend) -> list[dict[str, Any]]:
    """The decoder's own JSON form as a flat list; the library has no other way to read it."""
    if backend.decoder is None:
        return []
    decoder: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    steps: list[dict[str, Any]] = (
        decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    )
    return steps

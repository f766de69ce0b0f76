"""Logprobs as the two endpoints write them."""

from collections.abc import Sequence
from math import inf
from typing import Any

from attrs import frozen

from trioserve.core import TokenLogprobs
from trioserve.engine.request import Token
from trioserve.text.token_offsets import OffsetText
from trioserve.text.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have."""


@frozen
class CompletionLogprobs:
    """Four arrays, one entry a token."""

    tokenizer: Tokenizer
    num_top: int

    def of_tokens(self, tokens: Sequence[Token], num_chars_before: int) -> dict[str, Any]:
        """Of generated tokens, behind so many characters of an echoed prompt."""
        return {
            "tokens": [self.tokenizer.token_text(token.id) for token in tokens],
            "token_logprobs": [_value(_read(token)) for token in tokens],
            "top_logprobs": [self._top(token.id, _read(token)) for token in tokens],
            "text_offset": [num_chars_before + token.text_start for token in tokens],
        }

    def of_prompt(self, prompt: OffsetText, read: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Of an echoed prompt. Its first token has no logprob, and none has where it was not read:
        then the choice was aborted before."""
        ids = prompt.token_ids
        unread = [None] * (len(ids) - len(read))
        return {
            "tokens": [self.tokenizer.token_text(token_id) for token_id in ids],
            "token_logprobs": [*unread, *map(_value, read)],
            "top_logprobs": [
                *unread,
                *map(self._top, ids[len(unread) :], read),
            ],
            "text_offset": list(prompt.offsets),
        }

    def join(self, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        """The entries of both, in order."""
        return {name: values + second[name] for name, values in first.items()}

    def _top(self, token_id: int, read: TokenLogprobs) -> dict[str, float]:
        """The most likely tokens and this one; of tokens with equal text the likelier counts."""
        top: dict[str, float] = {}
        for other_id, logprob in (*read.top[: self.num_top], (token_id, read.logprob)):
            text, shown = self.tokenizer.token_text(other_id), _shown(logprob)
            top[text] = max(top.get(text, shown), shown)
        return top


@frozen
class ChatLogprobs:
    """One object a token."""

    tokenizer: Tokenizer
    num_top: int

    def of_tokens(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """Of generated tokens."""
        return {"content": [self._entry(token) for token in tokens], "refusal": None}

    def _entry(self, token: Token) -> dict[str, Any]:
        read = _read(token)
        top = [self._one(other_id, logprob) for other_id, logprob in read.top[: self.num_top]]
        return {**self._one(token.id, read.logprob), "top_logprobs": top}

    def _one(self, token_id: int, logprob: float) -> dict[str, Any]:
        is_special = token_id in self.tokenizer.special_ids
        return {
            "token": self.tokenizer.token_text(token_id),
            "logprob": _shown(logprob),
            "bytes": None if is_special else list(self.tokenizer.token_bytes(token_id)),
        }


def _read(token: Token) -> TokenLogprobs:
    assert token.logprobs is not None, f"logprobs were asked for, and token {token.id} has none"
    return token.logprobs


def _value(read: TokenLogprobs) -> float:
    return _shown(read.logprob)


def _shown(logprob: float) -> float:
    return LEAST_LOGPROB if logprob == -inf else logprob

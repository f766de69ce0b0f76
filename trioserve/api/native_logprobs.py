"""Logprobs as `/generate` writes them: `[logprob, token id, text]`, and lists of these."""

from collections.abc import Iterable
from math import inf
from typing import Any

import orjson
from attrs import define, field

from trioserve.api.logprobs import LEAST_LOGPROB
from trioserve.core import TokenLogprobs
from trioserve.engine.request import Delta
from trioserve.text.tokenizer import Tokenizer

Entry = tuple[float | None, int, str | None]


@define(eq=False)
class _Columns:
    """One kind of tokens, the prompt's or the generated ones: an entry a token in each."""

    tokens: list[Entry] = field(factory=list)
    top: list[list[Entry] | None] = field(factory=list)
    chosen: list[list[Entry] | None] = field(factory=list)


@define(eq=False)
class NativeLogprobs:
    """Of one choice: of its prompt, as far as that is shown, and of what was generated."""

    prompt_ids: tuple[int, ...]
    """The tokens of the prompt that are shown: some at its end, all or none."""
    num_top: int
    chosen_ids: tuple[int, ...]
    """Tokens reported at each position; where there are none, no column for them either."""
    tokenizer: Tokenizer | None
    """For the texts; without it they are null."""
    _read: tuple[TokenLogprobs, ...] = field(init=False, default=())
    _input: dict[str, orjson.Fragment] | None = field(init=False, default=None)
    _output: _Columns = field(init=False, factory=_Columns)
    _texts: dict[int, str] = field(init=False, factory=dict)

    @property
    def num_entries(self) -> int:
        """How much there is to write."""
        num_each = 1 + self.num_top + len(self.chosen_ids)
        return (len(self.prompt_ids) + len(self._output.tokens)) * num_each

    def add(self, delta: Delta) -> None:
        """What came with a delta. All of the prompt comes with the first."""
        self._read = self._read or delta.prompt_logprobs
        for token in delta.tokens:
            assert token.logprobs is not None, f"token {token.id} came without its logprobs"
            self._append(self._output, token.id, token.logprobs)

    def entries(self) -> dict[str, Any]:
        """All of it by the names that it has in `meta_info`."""
        if self._input is None:
            # Written once: each event of a stream repeats it.
            columns = self._named("input", self._prompt_columns())
            self._input = {
                name: orjson.Fragment(orjson.dumps(column)) for name, column in columns.items()
            }
        return self._input | self._named("output", self._output)

    def _prompt_columns(self) -> _Columns:
        columns = _Columns()
        # Nothing comes before a prompt's first token, and an aborted choice read nothing at all.
        num_unread = len(self.prompt_ids) - len(self._read)
        for token_id in self.prompt_ids[:num_unread]:
            columns.tokens.append(self._entry(None, token_id))
            columns.top.append(None)
            columns.chosen.append(None)
        for token_id, read in zip(self.prompt_ids[num_unread:], self._read, strict=True):
            self._append(columns, token_id, read)
        return columns

    def _append(self, columns: _Columns, token_id: int, read: TokenLogprobs) -> None:
        columns.tokens.append(self._entry(read.logprob, token_id))
        columns.top.append(self._entries(read.top[: self.num_top]))
        chosen = zip(self.chosen_ids, read.chosen, strict=True)
        columns.chosen.append(self._entries(chosen))

    def _named(self, side: str, columns: _Columns) -> dict[str, Any]:
        named: dict[str, Any] = {
            f"{side}_token_logprobs": columns.tokens,
            f"{side}_top_logprobs": columns.top,
        }
        if self.chosen_ids:
            named[f"{side}_token_ids_logprobs"] = columns.chosen
        return named

    def _entries(self, pairs: Iterable[tuple[int, float]]) -> list[Entry]:
        return [self._entry(logprob, token_id) for token_id, logprob in pairs]

    def _entry(self, logprob: float | None, token_id: int) -> Entry:
        return (LEAST_LOGPROB if logprob == -inf else logprob, token_id, self._text(token_id))

    def _text(self, token_id: int) -> str | None:
        if self.tokenizer is None:
            return None
        if token_id not in self._texts:
            self._texts[token_id] = self.tokenizer.decode((token_id,), skip_special_tokens=False)
        return self._texts[token_id]

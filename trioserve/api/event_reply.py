"""An answer as server-sent events, in the order of the contract."""

from functools import partial

import trio
from attrs import define, field

from trioserve.api.off_loop import off_loop
from trioserve.api.reply_shape import Chunk, Frame, HiddenState
from trioserve.api.stream_writer import ITEMS_AT_ONCE, StreamWriter
from trioserve.core import TokenLogprobs
from trioserve.engine.request import Delta, Token


@define(eq=False)
class EventReply(StreamWriter):
    """See StreamWriter."""

    frame: Frame
    _num_open: int = field(init=False)
    _num_chars: dict[int, int] = field(init=False, factory=dict)
    """Generated text sent, by choice; those that are not in it have sent nothing at all."""
    _hidden: dict[int, HiddenState] = field(init=False, factory=dict)
    _is_opened: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._num_open = len(self.stream.choices)

    async def _events_of(self, deltas: tuple[Delta, ...]) -> bytes:
        pieces: list[bytes] = []
        if not self._is_opened:
            self._is_opened = True
            opening = self.frame.shape.opening(len(self.stream.choices))
            pieces += map(self.frame.chunk, opening)
        num_items = 0
        for delta in deltas:
            pieces += await self._chunks_of(delta)
            num_items += 1 + len(delta.tokens) * self.frame.shape.num_entries
            if num_items >= ITEMS_AT_ONCE:
                # An abort ends as many choices at once as the request has.
                num_items = 0
                await trio.lowlevel.checkpoint()
        if not self._num_open:
            pieces += self._ending()
        return b"".join(pieces)

    async def _chunks_of(self, delta: Delta) -> list[bytes]:
        shape, index = self.frame.shape, delta.index
        pieces: list[bytes] = []
        if index not in self._num_chars:
            self._num_chars[index] = 0
            echo = await self._echo(index, delta.prompt_logprobs)
            if echo is not None:
                pieces.append(self.frame.chunk(echo))
        self._num_chars[index] += len(delta.text)
        tokens = delta.tokens if shape.has_logprobs else ()
        rest: tuple[Token, ...] = ()
        if delta.finish is not None:
            # The finish chunk has the tokens that no text was shown for.
            num_chars = self._num_chars[index]
            rest = tuple(token for token in tokens if token.text_start >= num_chars)
            tokens = tokens[: len(tokens) - len(rest)]
        pieces += map(self.frame.chunk, shape.text(delta, tokens))
        if delta.finish is not None:
            self._num_open -= 1
            self._hidden[index] = delta.hidden_state
            *left, finish = shape.finish(delta, delta.finish, rest)
            pieces += map(self.frame.chunk, left)
            pieces.append(self.frame.chunk(finish, is_last_finish=self._num_open == 0))
        return pieces

    async def _echo(self, index: int, read: tuple[TokenLogprobs, ...]) -> Chunk | None:
        work = partial(self.frame.shape.echo, index, read)
        return await off_loop(work, len(read) * self.frame.shape.num_entries)

    def _ending(self) -> list[bytes]:
        """What comes between the last choice's end and the stream's."""
        pieces: list[bytes] = []
        if self.frame.body.return_hidden_states:
            hidden = self.frame.shape.hidden
            pieces += [self.frame.chunk(hidden(i, self._hidden[i])) for i in sorted(self._hidden)]
        last = (self.frame.extension_chunk(), self.frame.usage_chunk())
        return [*pieces, *(chunk for chunk in last if chunk is not None)]

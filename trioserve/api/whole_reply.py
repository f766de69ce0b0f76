"""An answer that is not streamed: collected, and made when the last choice has ended."""

from functools import partial

import orjson
from attrs import define, field

from trioserve.api.best_of import best_outcomes
from trioserve.api.off_loop import off_loop
from trioserve.api.reply_shape import Frame, HiddenState, Outcome
from trioserve.core import Finish, TokenLogprobs
from trioserve.engine.request import Delta, Token


@define(eq=False)
class _Collected:
    """What one choice has come to so far."""

    text: list[str] = field(factory=list)
    tokens: list[Token] = field(factory=list)
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    hidden_state: HiddenState = None
    finish: Finish | None = None

    def add(self, delta: Delta, *, with_tokens: bool) -> None:
        self.text.append(delta.text)
        self.finish = delta.finish
        if with_tokens:
            self.tokens += delta.tokens
        self.prompt_logprobs = self.prompt_logprobs or delta.prompt_logprobs
        self.hidden_state = delta.hidden_state

    def outcome(self) -> Outcome:
        assert self.finish is not None, "a choice is shown that has not ended"
        return Outcome(
            "".join(self.text),
            self.finish,
            tuple(self.tokens),
            self.prompt_logprobs,
            self.hidden_state,
        )


async def whole_reply(frame: Frame) -> bytes:
    """The JSON of the answer. A checkpoint. Raises TrioserveError if the request failed."""
    stream, body = frame.stream, frame.body
    is_ranked = body.num_samples > body.n
    with_tokens = frame.shape.reads_tokens or is_ranked
    collected: dict[int, _Collected] = {}
    num_open = len(stream.choices)
    num_items = 0
    # Candidates that are ranked have each token's own logprob, shown or not.
    num_entries = max(frame.shape.num_entries, int(is_ranked))
    while num_open:
        for delta in await stream.receive():
            choice = collected.setdefault(delta.index, _Collected())
            choice.add(delta, with_tokens=with_tokens)
            num_open -= delta.finish is not None
            num_items += (len(delta.prompt_logprobs) + len(delta.tokens)) * num_entries
            num_items += 0 if delta.hidden_state is None else delta.hidden_state.size
    outcomes = [collected[index].outcome() for index in range(len(stream.choices))]
    work = partial(_serialize, frame, best_outcomes(outcomes, body.num_samples, body.n))
    return await off_loop(work, num_items + len(outcomes))


def _serialize(frame: Frame, outcomes: list[Outcome]) -> bytes:
    whole = frame.shape.whole
    # One by one: a call of orjson keeps other threads out, and so does a large garbage collection.
    choices = [
        orjson.Fragment(orjson.dumps(whole(index, outcome)))
        for index, outcome in enumerate(outcomes)
    ]
    return orjson.dumps(frame.reply(choices))

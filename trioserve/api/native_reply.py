"""The answer of `/generate`: SGLang's own shape, whole or as a stream of cumulative events."""

from functools import partial
from typing import Any

import orjson
import trio
from attrs import define, field, frozen
from quart import Response

from trioserve.api.accounting import current_account
from trioserve.api.cache_report import CacheReport
from trioserve.api.native_logprobs import NativeLogprobs
from trioserve.api.off_loop import off_loop
from trioserve.api.schema.native_generate import NativeGenerateBody
from trioserve.api.sse import event, stream_response
from trioserve.api.stream_writer import ITEMS_AT_ONCE, StreamWriter
from trioserve.config import ServerConfig
from trioserve.core import Finish, FinishReason
from trioserve.engine.request import Delta
from trioserve.engine.stream import RequestStream
from trioserve.text.tokenizer import Tokenizer

ABORTED = "The request was aborted."


@define(eq=False)
class _Sample:
    """One choice as far as its reader knows it."""

    index: int
    id: str
    num_prompt_tokens: int
    text: str = field(init=False, default="")
    token_ids: list[int] = field(init=False, factory=list)
    num_tokens: int = field(init=False, default=0)
    logprobs: NativeLogprobs | None = None
    finish: Finish | None = field(init=False, default=None)
    latency_s: float | None = field(init=False, default=None)

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.num_tokens += delta.num_tokens
        self.token_ids += [token.id for token in delta.tokens]
        self.finish = delta.finish
        if self.logprobs is not None:
            self.logprobs.add(delta)


@frozen
class NativeFrame:
    """What the events or the answer of one request have in common."""

    stream: RequestStream
    body: NativeGenerateBody
    tokenizer: Tokenizer
    cache: CacheReport

    @property
    def is_list(self) -> bool:
        """Whether the answer is an array, and events say whose they are."""
        return self.body.prompts.is_many or self.stream.request.num_samples > 1

    def sample(self, index: int) -> _Sample:
        """Choice `index` before its first token."""
        request = self.stream.request
        prompt_index = index // request.num_samples
        prompt_ids = request.generations[prompt_index].prompt_ids
        return _Sample(
            index=index,
            id=request.handles[prompt_index] if request.handles else request.request_id,
            num_prompt_tokens=len(prompt_ids),
            logprobs=self._logprobs(prompt_ids) if self.body.return_logprob else None,
        )

    def payload(self, sample: _Sample) -> dict[str, Any]:
        """The object of one choice, so far."""
        prompt_index = sample.index // self.stream.request.num_samples
        meta: dict[str, Any] = {
            "id": sample.id,
            "finish_reason": _finish_reason(sample.finish, sample.num_tokens),
            "prompt_tokens": sample.num_prompt_tokens,
            "completion_tokens": sample.num_tokens,
            "cached_tokens": self.stream.cached_tokens(prompt_index).total,
            "weight_version": "default",
        }
        if sample.logprobs is not None:
            meta |= sample.logprobs.entries()
        if sample.finish is not None:
            meta["e2e_latency"] = sample.latency_s
            if self.body.return_hidden_states:
                # One by one, so that no call keeps other threads out for long.
                states = self.stream.choices[sample.index].hidden_states
                meta["hidden_states"] = [
                    orjson.Fragment(orjson.dumps(state.tolist())) for state in states
                ]
        payload = {"text": sample.text, "output_ids": sample.token_ids, "meta_info": meta}
        if sample.finish is not None:
            payload |= self.cache.extension(self.stream, prompt_index)
        return payload

    def num_items(self, sample: _Sample) -> int:
        """How much there is to write of it, in tokens and numbers."""
        num_items = len(sample.token_ids)
        if sample.logprobs is not None:
            num_items += sample.logprobs.num_entries
        if self.body.return_hidden_states and sample.finish is not None:
            num_items += sum(s.size for s in self.stream.choices[sample.index].hidden_states)
        return num_items

    def add(self, samples: dict[int, _Sample], delta: Delta) -> _Sample:
        """Put what came to what was there."""
        if delta.index not in samples:
            samples[delta.index] = self.sample(delta.index)
        sample = samples[delta.index]
        sample.add(delta)
        if delta.finish is not None:
            sample.latency_s = trio.current_time() - self.stream.opened_at
        return sample

    def _logprobs(self, prompt_ids: tuple[int, ...]) -> NativeLogprobs:
        start = self.body.logprob_start_len
        return NativeLogprobs(
            prompt_ids=prompt_ids[start:] if start >= 0 else (),
            num_top=self.body.top_logprobs_num,
            chosen_ids=self.body.token_ids_logprob,
            tokenizer=self.tokenizer if self.body.return_text_in_logprobs else None,
        )


@define(eq=False)
class NativeWriter(StreamWriter):
    """Each event has all of its choice's text so far."""

    frame: NativeFrame
    _samples: dict[int, _Sample] = field(init=False, factory=dict)

    async def _events_of(self, deltas: tuple[Delta, ...]) -> bytes:
        pieces = []
        for number, delta in enumerate(deltas, 1):
            if number % ITEMS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            sample = self.frame.add(self._samples, delta)
            # Tokens whose text is held back change nothing that is shown.
            if delta.text or delta.tokens or delta.finish is not None:
                num_items = self.frame.num_items(sample)
                pieces.append(await off_loop(partial(self._event, sample), num_items))
        return b"".join(pieces)

    def _event(self, sample: _Sample) -> bytes:
        payload = self.frame.payload(sample)
        return event({**payload, "index": sample.index} if self.frame.is_list else payload)


async def native_respond(frame: NativeFrame, config: ServerConfig) -> Response:
    """The response, streamed or whole as asked for. A checkpoint.

    Raises TrioserveError if a whole answer failed; a stream that has begun carries its error.
    """
    if frame.body.stream:
        account = current_account()
        writer = NativeWriter(frame.stream, account, config.sse_ping_interval, frame)
        return stream_response(writer.events())
    samples: dict[int, _Sample] = {}
    num_open = len(frame.stream.choices)
    while num_open:
        for delta in await frame.stream.receive():
            frame.add(samples, delta)
            num_open -= delta.finish is not None

    def serialize() -> bytes:
        payloads = [frame.payload(samples[index]) for index in sorted(samples)]
        return orjson.dumps(payloads if frame.is_list else payloads[0])

    num_items = sum(map(frame.num_items, samples.values()))
    data = await off_loop(serialize, num_items + len(samples))
    return Response(data, content_type="application/json")


def _finish_reason(finish: Finish | None, num_tokens: int) -> dict[str, Any] | None:
    if finish is None:
        return None
    match finish.reason:
        case FinishReason.STOP:
            return {"type": "stop", "matched": finish.matched_stop}
        case FinishReason.LENGTH:
            return {"type": "length", "length": num_tokens}
        case FinishReason.ABORT:
            return {"type": "abort", "message": ABORTED}

"""`POST /v1/chat/completions`."""

from quart import Response

from trioserve.api.body import read_json_object
from trioserve.api.generation import (
    Limit,
    check_model,
    check_token_ids,
    encode,
    open_generation,
)
from trioserve.api.replies import Chunk, Reply
from trioserve.api.schema import ChatRequest, TokenIds, parse_chat
from trioserve.core import Finish
from trioserve.engine.engine import Engine
from trioserve.engine.served import ServedModel


class ChatShape:
    """See ReplyShape."""

    chunk_object = "chat.completion.chunk"
    reply_object = "chat.completion"
    has_usage_without_options = False

    def opening(self, num_choices: int) -> list[Chunk]:
        """Each choice's role, in index order: client helpers append choices by position."""
        return [
            self._delta(index, {"role": "assistant", "content": ""}) for index in range(num_choices)
        ]

    def text(self, index: int, text: str) -> Chunk:
        """See ReplyShape."""
        return self._delta(index, {"content": text})

    def finish(self, index: int, finish: Finish) -> Chunk:
        """See ReplyShape."""
        return {
            **self._delta(index, {}),
            "finish_reason": finish.reason,
            "matched_stop": finish.matched_stop,
        }

    def whole(self, index: int, text: str, finish: Finish) -> Chunk:
        """See ReplyShape."""
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": finish.reason,
            "matched_stop": finish.matched_stop,
        }

    def _delta(self, index: int, delta: dict[str, str]) -> Chunk:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


async def chat(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body = await read_json_object()
    engine.check_serving()
    request = parse_chat(body)
    params = request.params
    check_model(params.model, engine.config)
    engine.check_queue()
    prompt = await _encode_prompt(engine.model, request)
    stream = await open_generation(engine, params, (prompt,), _limit(engine, request), "chatcmpl")
    return await Reply(stream, params, ChatShape()).respond()


async def _encode_prompt(model: ServedModel, request: ChatRequest) -> TokenIds:
    if request.messages is not None:
        # The template writes every special token itself, BOS included.
        text = model.tokenizer.render_chat(request.messages)
        return await encode(model.tokenizer, text, add_special_tokens=False)
    if isinstance(request.prompt, str):
        return await encode(model.tokenizer, request.prompt, add_special_tokens=True)
    assert request.prompt is not None, "a chat request has messages or a prompt"
    check_token_ids(request.prompt, model.info.vocab_size)
    return request.prompt


def _limit(engine: Engine, request: ChatRequest) -> Limit:
    params, default = request.params, engine.config.default_max_tokens
    if params.max_tokens is not None:
        return Limit(params.max_tokens, is_explicit=True, param=params.max_tokens_param)
    # A defaulted limit is clamped to what fits, so the context's length stands for "all of it".
    tokens = engine.model.info.max_model_len if default == "context" else int(default)
    return Limit(tokens, is_explicit=False, param=params.max_tokens_param)

"""`POST /v1/chat/completions`."""

from quart import Response

from trioserve.api.body import read_json_object
from trioserve.api.generation import Limit, check_model, open_generation
from trioserve.api.prompts import check_token_ids, encode_messages, encode_prompts
from trioserve.api.replies import Chunk, Reply
from trioserve.api.schema import ChatRequest, TokenIds, check_rules, parse_chat
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
    params, model = request.params, engine.model
    if request.prompt is not None:
        check_token_ids([request.prompt], model.info.vocab_size)
    check_model(params.model, engine.config)
    check_rules(request)
    engine.check_queue()
    prompt = await _encode_prompt(model, request)
    stream = await open_generation(engine, params, (prompt,), _limit(engine, request), "chatcmpl")
    return await Reply(stream, params, ChatShape()).respond()


async def _encode_prompt(model: ServedModel, request: ChatRequest) -> TokenIds:
    if request.messages is not None:
        return await encode_messages(model, request.messages)
    assert request.prompt is not None, "check_rules lets neither through"
    (token_ids,) = await encode_prompts(model, [request.prompt])
    return token_ids


def _limit(engine: Engine, request: ChatRequest) -> Limit:
    params, default = request.params, engine.config.default_max_tokens
    if params.max_tokens is not None:
        max_tokens = params.max_tokens
    else:
        # A defaulted limit is clamped to what fits, so the context's length stands for all of it.
        max_tokens = engine.model.info.max_model_len if default == "context" else int(default)
    return Limit(
        max_tokens,
        is_explicit=params.max_tokens is not None,
        param=params.max_tokens_param,
        prompt_param="prompt" if request.messages is None else "messages",
    )

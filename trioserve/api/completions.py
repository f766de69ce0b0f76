"""`POST /v1/completions`."""

from quart import Response

from trioserve.api.body import read_json_object
from trioserve.api.generation import Limit, check_model, open_generation
from trioserve.api.prompts import check_token_ids, encode_prompts
from trioserve.api.replies import Chunk, Reply
from trioserve.api.schema import check_rules, parse_completion
from trioserve.core import Finish
from trioserve.engine.engine import Engine

DEFAULT_MAX_TOKENS = 16


class CompletionShape:
    """See ReplyShape."""

    chunk_object = "text_completion"
    reply_object = "text_completion"
    has_usage_without_options = True

    def opening(self, num_choices: int) -> list[Chunk]:
        """Completions begin with their text."""
        return []

    def text(self, index: int, text: str) -> Chunk:
        """See ReplyShape."""
        return {"index": index, "text": text, "logprobs": None, "finish_reason": None}

    def finish(self, index: int, finish: Finish) -> Chunk:
        """See ReplyShape."""
        return self.whole(index, "", finish)

    def whole(self, index: int, text: str, finish: Finish) -> Chunk:
        """See ReplyShape."""
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": finish.reason,
            "matched_stop": finish.matched_stop,
        }


async def complete(engine: Engine) -> Response:
    """The handler. A checkpoint."""
    body = await read_json_object()
    engine.check_serving()
    request = parse_completion(body)
    params, model = request.params, engine.model
    check_token_ids(request.prompts, model.info.vocab_size)
    check_model(params.model, engine.config)
    check_rules(request)
    engine.check_queue()
    prompts = await encode_prompts(model, request.prompts)
    limit = Limit(
        max_tokens=DEFAULT_MAX_TOKENS if params.max_tokens is None else params.max_tokens,
        is_explicit=params.max_tokens is not None,
        param=params.max_tokens_param,
        prompt_param="prompt",
    )
    stream = await open_generation(engine, params, prompts, limit, "cmpl")
    return await Reply(stream, params, CompletionShape()).respond()

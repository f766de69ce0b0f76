"""Prompts against the context: what fits, what does not, and what is not even tokenized."""

from collections.abc import Sequence
from typing import Any

import attrs
import orjson
import pytest
import trio
import trio.testing

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, RENDERED, ApiBench, StartApi, body_for
from trioserve.api import prompts
from trioserve.testing.fake_text import byte_tokenizer

CONTEXT = "context_length_exceeded"
CONTEXT_LEN = 64


def context_message(what: str, num_tokens: int = CONTEXT_LEN) -> str:
    return f"This model's maximum context length is {num_tokens} tokens. However, {what}."


@pytest.fixture
async def bench(start: StartApi) -> ApiBench:
    return await start("x" * 999, max_model_len=CONTEXT_LEN)


def of_len(path: str, num_tokens: int) -> dict[str, Any]:
    """A prompt of so many tokens."""
    if path == COMPLETIONS:
        return {"prompt": "a" * num_tokens}
    return {"messages": [{"role": "user", "content": "a" * (num_tokens - len(RENDERED) + 2)}]}


@pytest.mark.row("S-N-003")
@pytest.mark.case(46)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_tokens", [CONTEXT_LEN, CONTEXT_LEN + 1, CONTEXT_LEN * 4])
async def test_an_overlong_prompt_is_400_before_any_stream_byte(
    bench: ApiBench, path: str, stream: bool, num_tokens: int
) -> None:
    """Case 46: 200 with an error inside, because of `stream`."""
    answer = await bench.post(path, stream=stream, **of_len(path, num_tokens))
    param = "prompt" if path == COMPLETIONS else "messages"
    message = context_message(f"your prompt has {num_tokens} tokens")
    check_error(answer, 400, message, code=CONTEXT, param=param)
    assert not bench.runner.plans


async def test_an_overlong_raw_prompt_on_chat_names_the_prompt(bench: ApiBench) -> None:
    answer = await bench.post(CHAT, messages=None, prompt=[1] * CONTEXT_LEN)
    message = context_message(f"your prompt has {CONTEXT_LEN} tokens")
    check_error(answer, 400, message, code=CONTEXT, param="prompt")


@pytest.mark.row("S-N-003", "S-N-006")
@pytest.mark.case(47)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("num_asked", [5, 10**6, 10**30])
async def test_an_explicit_limit_that_does_not_fit_is_an_error(
    bench: ApiBench, path: str, limit: str, num_asked: int
) -> None:
    """Case 47, which api.md decides: explicit limits are never clamped."""
    body = orjson.dumps(body_for(path, **of_len(path, 60), **{limit: "LIMIT"}))
    answer = await bench.post_raw(path, body.replace(b'"LIMIT"', str(num_asked).encode()))
    asked = num_asked if num_asked < 2**64 else int(float(num_asked))
    what = f"you requested {60 + asked} tokens (60 in the prompt, {asked} in the completion)"
    check_error(answer, 400, context_message(what), code=CONTEXT, param=limit)


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_the_last_token_that_fits_is_served(bench: ApiBench, path: str) -> None:
    answer = await bench.post(path, **of_len(path, CONTEXT_LEN - 1), max_tokens=1)
    assert answer.texts() == ["x"]
    answer = await bench.post(path, **of_len(path, 60), max_tokens=4)
    assert answer.texts() == ["xxxx"]


@pytest.mark.row("S-N-003")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_defaulted_limit_is_clamped_to_the_room_left(bench: ApiBench, path: str) -> None:
    answer = await bench.post(path, **of_len(path, 60))
    assert answer.texts() == ["xxxx"]
    assert answer.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.case(92)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_request_that_the_cache_never_holds_is_refused_and_a_default_clamped(
    start: StartApi, path: str
) -> None:
    """Case 92: retried for ever."""
    bench = await start("x" * 99, num_pages=8, page_size=4, default_max_tokens="context")
    answer = await bench.post(path, **of_len(path, 30), max_tokens=4)
    message = "This request needs 34 tokens, which exceeds the cache capacity of 32 tokens."
    check_error(answer, 400, message, code=CONTEXT, param="max_tokens")
    answer = await bench.post(path, **of_len(path, 30))
    assert answer.texts() == ["xxx"]
    answer = await bench.post(path, **of_len(path, 33))
    assert answer.json()["error"]["code"] == CONTEXT
    bench.check_idle()


@pytest.mark.row("S-N-003", "S-N-004")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["a" * CONTEXT_LEN, [1] * CONTEXT_LEN])
async def test_a_prompt_that_is_only_read_may_fill_the_context(
    bench: ApiBench, stream: bool, prompt: Any
) -> None:
    """With nothing generated there is no need of room for it: p > L and not p >= L."""
    fields: dict[str, Any] = {"max_tokens": 0, "echo": True, "stream": stream}
    answer = await bench.post(COMPLETIONS, prompt=prompt, **fields)
    assert [len(text) for text in answer.texts()] == [CONTEXT_LEN]
    for generated in (1, None):
        answer = await bench.post(COMPLETIONS, **{**fields, "max_tokens": generated}, prompt=prompt)
        message = context_message(f"your prompt has {CONTEXT_LEN} tokens")
        check_error(answer, 400, message, code=CONTEXT, param="prompt")
    answer = await bench.post(COMPLETIONS, prompt=prompt + prompt[:1], **fields)
    message = context_message(f"your prompt has {CONTEXT_LEN + 1} tokens")
    check_error(answer, 400, message, code=CONTEXT, param="prompt")


@pytest.mark.row("S-N-006")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_the_newer_name_of_the_limit_wins(bench: ApiBench, path: str) -> None:
    for fields, num_tokens in (
        ({"max_completion_tokens": 3}, 3),
        ({"max_completion_tokens": 3, "max_tokens": 9}, 3),
        ({"max_completion_tokens": 9, "max_tokens": 3}, 9),
        ({"max_completion_tokens": None, "max_tokens": 3}, 3),
    ):
        answer = await bench.post(path, **fields)
        assert answer.texts() == ["x" * num_tokens]
        assert answer.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.row("S-C-007", "S-C-053")
async def test_a_completion_has_sixteen_tokens_by_default(bench: ApiBench) -> None:
    answer = await bench.post(COMPLETIONS)
    assert answer.texts() == ["x" * 16]
    assert answer.json()["choices"][0]["finish_reason"] == "length"


async def test_a_vast_prompt_of_ids_is_refused_before_it_is_made_text(bench: ApiBench) -> None:
    tokenizer = count_encoding(bench)
    tokenizer.decode_with_offsets = None  # type: ignore[attr-defined]
    answer = await bench.post(COMPLETIONS, prompt=[1] * 100_000, echo=True)
    message = context_message("your prompt has 100000 tokens")
    check_error(answer, 400, message, code=CONTEXT, param="prompt")


async def test_one_prompt_of_a_batch_that_does_not_fit_refuses_them_all(bench: ApiBench) -> None:
    answer = await bench.post(COMPLETIONS, prompt=["a", "a" * CONTEXT_LEN])
    message = context_message(f"your prompt has {CONTEXT_LEN} tokens")
    check_error(answer, 400, message, code=CONTEXT, param="prompt")
    assert not bench.runner.plans


class _CountingTokenizer:
    """The model's tokenizer, which remembers the lengths it was asked to encode, and where."""

    def __init__(self) -> None:
        self._tokenizer = byte_tokenizer()
        self.encoded: list[int] = []
        self.is_on_loop: list[bool] = []

    def encode(self, text: str, add_special_tokens: bool = True) -> Sequence[int]:
        self.encoded.append(len(text))
        self.is_on_loop.append(trio.lowlevel.in_trio_task())
        return self._tokenizer.encode(text, add_special_tokens)

    def render_chat(self, messages: Any, **options: Any) -> str:
        self.is_on_loop.append(trio.lowlevel.in_trio_task())
        return self._tokenizer.render_chat(messages, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def count_encoding(bench: ApiBench) -> _CountingTokenizer:
    tokenizer = _CountingTokenizer()
    model = attrs.evolve(bench.engine.model, tokenizer=tokenizer)  # type: ignore[arg-type]
    bench.engine.batch.model = model
    return tokenizer


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_text_too_long_by_its_length_alone_is_not_tokenized(
    bench: ApiBench, path: str, stream: bool
) -> None:
    tokenizer = count_encoding(bench)
    answer = await bench.post(path, stream=stream, **of_len(path, 1_000_000))
    # The longest token of this tokenizer, <eos>, has five characters.
    param = "prompt" if path == COMPLETIONS else "messages"
    message = context_message("your prompt has at least 200000 tokens")
    check_error(answer, 400, message, code=CONTEXT, param=param)
    assert not tokenizer.encoded
    # Just short of certain, it is tokenized and then refused by its real length.
    answer = await bench.post(path, stream=stream, **of_len(path, 5 * (CONTEXT_LEN - 1)))
    message = context_message(f"your prompt has {5 * (CONTEXT_LEN - 1)} tokens")
    check_error(answer, 400, message, code=CONTEXT, param=param)
    assert len(tokenizer.encoded) == 1


async def test_no_text_of_a_batch_is_tokenized_if_one_is_too_long(bench: ApiBench) -> None:
    tokenizer = count_encoding(bench)
    answer = await bench.post(COMPLETIONS, prompt=["a", "a" * 1_000_000])
    assert answer.json()["error"]["code"] == CONTEXT
    assert not tokenizer.encoded


@pytest.mark.parametrize(
    ("path", "prompt", "is_on_loop"),
    [
        (COMPLETIONS, "a" * prompts.LONG_TEXT_BYTES, True),
        (COMPLETIONS, "a" * (prompts.LONG_TEXT_BYTES + 1), False),
        (COMPLETIONS, "č" * (prompts.LONG_TEXT_BYTES // 2 + 1), False),
        # Many short texts hold the loop up as one long text does.
        (COMPLETIONS, ["a" * 1024] * 16, True),
        (COMPLETIONS, ["a" * 1024] * 17, False),
        (CHAT, "a" * (prompts.LONG_TEXT_BYTES - len("user")), True),
        (CHAT, "a" * (prompts.LONG_TEXT_BYTES + 1), False),
        (CHAT, [{"type": "text", "text": "a" * 1024}] * 17, False),
    ],
)
async def test_long_texts_are_rendered_and_tokenized_off_the_event_loop(
    start: StartApi, path: str, prompt: Any, is_on_loop: bool
) -> None:
    bench = await start("ok", num_pages=600, page_size=64, max_model_len=20_000)
    tokenizer = count_encoding(bench)
    messages = [{"role": "user", "content": prompt}]
    fields = {"prompt": prompt} if path == COMPLETIONS else {"messages": messages}
    answer = await bench.post(path, **fields)
    assert answer.texts()[0] == "ok"
    assert set(tokenizer.is_on_loop) == {is_on_loop}


@pytest.mark.case(44)
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_prompt_without_a_token_is_refused_and_kills_nothing(
    bench: ApiBench, path: str
) -> None:
    """Case 44: some vocabularies have no token for some control characters."""
    tokenizer = count_encoding(bench)
    tokenizer.encode = lambda _text, _special=True, **_: []  # type: ignore[method-assign]
    answer = await bench.post(path)
    param = "prompt" if path == COMPLETIONS else "messages"
    message = "Invalid request: Prompt cannot be empty"
    check_error(answer, 400, message, code="invalid_value", param=param)
    del tokenizer.encode
    assert (await bench.post(path)).status == 200


async def test_a_client_that_leaves_does_not_wait_for_its_tokenization(bench: ApiBench) -> None:
    with trio.move_on_after(0) as left:
        await bench.post(COMPLETIONS, prompt=["a" * 60] * 400)
    assert left.cancelled_caught
    await trio.testing.wait_all_tasks_blocked()
    assert not bench.runner.plans
    bench.check_idle()


@pytest.mark.row("S-N-007")
@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            None,
            "this model has no chat template; use prompt or start the server with --chat-template",
        ),
        (
            "{{ raise_exception('roles must alternate') }}",
            "chat template error: roles must alternate",
        ),
        ("{{ messages[0].content + 1 }}", "chat template error: "),
        ("", "Prompt cannot be empty"),
    ],
)
async def test_a_template_that_is_missing_or_fails_is_a_400(
    bench: ApiBench, template: str | None, message: str
) -> None:
    model = attrs.evolve(bench.engine.model, tokenizer=byte_tokenizer(template))
    bench.engine.batch.model = model
    answer = await bench.post(CHAT)
    shown = answer.json()["message"]
    assert shown.startswith(f"Invalid request: {message}")
    check_error(answer, 400, shown, code="invalid_value", param="messages")
    assert (await bench.post(CHAT, messages=None, prompt="a")).status == 200

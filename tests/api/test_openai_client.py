"""The unmodified `openai` client against the app: streams, helpers and exceptions."""

from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.api.kit import MESSAGES, MODEL, ApiBench, StartApi
from tests.api.tool_kit import ARGUMENTS, CALL, CLOCK_CALL, QWEN, TOOLS

# The client leaves the generators it reads from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

OpenClient = Callable[[ApiBench], AsyncOpenAI]


@pytest.fixture
async def open_client() -> AsyncIterator[OpenClient]:
    clients: list[AsyncOpenAI] = []
    # The HTTP library that this release of the client stands on.
    http = import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])

    def open_one(bench: ApiBench) -> AsyncOpenAI:
        transport = http.ASGITransport(app=bench.app)
        clients.append(
            AsyncOpenAI(
                base_url="http://test/v1",
                api_key="EMPTY",
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(transport=transport),
            )
        )
        return clients[-1]

    yield open_one
    for client in clients:
        await client.close()


async def test_completions_whole_and_streamed(start: StartApi, open_client: OpenClient) -> None:
    bench = await start("Hello, ďábel")
    client = open_client(bench)
    fields: dict[str, Any] = {"model": MODEL, "prompt": "Once", "max_tokens": 40}
    whole = await client.completions.create(**fields)
    assert whole.choices[0].text == "Hello, ďábel"
    assert whole.usage is not None
    stream = await client.completions.create(**fields, stream=True)
    chunks = [chunk async for chunk in stream]
    # A loop that reads choices[0] of every chunk works, unless the client asked for usage.
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


@pytest.mark.row("S-X-09", "S-H-033")
async def test_what_was_cached_is_in_the_usage_that_the_client_reads(
    start: StartApi, open_client: OpenClient
) -> None:
    bench = await start("text", enable_cache_report=True)
    client = open_client(bench)
    fields: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 40}
    for num_cached in (0, 16):
        reply = await client.chat.completions.create(**fields)
        assert reply.usage is not None
        assert reply.usage.prompt_tokens_details is not None
        assert reply.usage.prompt_tokens_details.cached_tokens == num_cached
        assert not hasattr(reply, "sglext")
    async with client.chat.completions.stream(
        **fields,
        stream_options={"include_usage": True},
        extra_body={"return_cached_tokens_details": True},
    ) as stream:
        chunks = [event.chunk async for event in stream if event.type == "chunk"]
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "text"
    assert final.usage is not None
    assert final.usage == chunks[-1].usage
    assert final.usage.prompt_tokens_details is not None
    assert final.usage.prompt_tokens_details.cached_tokens == 16
    details = {"cached_tokens_details": {"device": 16, "host": 0}}
    assert [chunk.sglext for chunk in chunks if hasattr(chunk, "sglext")] == [details]


@pytest.mark.parametrize("n", [1, 3])
async def test_the_chat_stream_helper_sums_up_to_the_whole_answer(
    start: StartApi, open_client: OpenClient, n: int
) -> None:
    bench = await start("first", "", "third one")
    client = open_client(bench)
    fields: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "n": n, "max_tokens": 40}
    whole = await client.chat.completions.create(**fields)
    options: dict[str, Any] = {"stream_options": {"include_usage": True}}
    async with client.chat.completions.stream(**fields, **options) as stream:
        final = await stream.get_final_completion()
    assert final.usage == whole.usage
    assert [(c.index, c.finish_reason, c.message.content or "") for c in final.choices] == [
        (c.index, c.finish_reason, c.message.content) for c in whole.choices
    ]
    assert [c.message.role for c in final.choices] == ["assistant"] * n


@pytest.mark.row("S-N-009", "S-H-041")
async def test_the_chat_stream_helper_puts_calls_together(
    start: StartApi, open_client: OpenClient
) -> None:
    script = f"I look.\n{CALL}\n{CLOCK_CALL}"
    bench = await start(script, "no call", max_model_len=2048, num_pages=1024)
    bench.use_tokenizer(QWEN)
    client = open_client(bench)
    fields: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS, "n": 2}
    whole = await client.chat.completions.create(**fields)
    async with client.chat.completions.stream(**fields) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_completion()
    for streamed, choice in zip(final.choices, whole.choices, strict=True):
        assert streamed.finish_reason == choice.finish_reason
        assert streamed.message.content == choice.message.content
        assert [_called(call) for call in streamed.message.tool_calls or []] == [
            _called(call) for call in choice.message.tool_calls or []
        ]
    assert [choice.finish_reason for choice in final.choices] == ["tool_calls", "stop"]
    calls = final.choices[0].message.tool_calls or []
    assert [_called(call) for call in calls] == [("get_weather", ARGUMENTS), ("clock", "{}")]
    done = [event.name for event in events if event.type == "tool_calls.function.arguments.done"]
    assert done == ["get_weather", "clock"]
    # What the helper put together goes back as it is.
    message = final.choices[0].message.model_dump(exclude={"parsed"})
    message["tool_calls"] = [call.to_dict() for call in calls]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in calls]
    again = await client.chat.completions.create(
        **(fields | {"messages": [*MESSAGES, message, *results]})
    )
    assert again.choices[0].message.tool_calls
    assert CALL in bytes(bench.prompts()[-1]).decode()


def _called(call: Any) -> tuple[str, str]:
    return call.function.name, call.function.arguments


async def test_parse_gives_the_text(start: StartApi, open_client: OpenClient) -> None:
    bench = await start("text")
    parsed = await open_client(bench).chat.completions.parse(
        model=MODEL, messages=MESSAGES, max_tokens=20
    )
    assert parsed.choices[0].message.content == "text"


async def test_extra_fields_travel_in_the_extra_body(
    start: StartApi, open_client: OpenClient
) -> None:
    bench = await start("text")
    extra = {"top_k": 50, "min_p": 0.1, "ignore_eos": True}
    answer = await open_client(bench).chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=6, extra_body=extra
    )
    assert answer.choices[0].finish_reason == "length"
    assert (bench.sampling().top_k, bench.sampling().min_p) == (50, 0.1)


async def test_models_are_listed_and_retrieved(start: StartApi, open_client: OpenClient) -> None:
    client = open_client(await start())
    assert [model.id async for model in client.models.list()] == [MODEL]
    model = await client.models.retrieve(MODEL)
    assert model.max_model_len == 256  # type: ignore[attr-defined]


async def test_errors_are_the_clients_own_exceptions(
    start: StartApi, open_client: OpenClient
) -> None:
    bench = await start(poison=ord("!"))
    client = open_client(bench)
    create = client.completions.create
    with pytest.raises(openai.BadRequestError) as bad:
        await create(model=MODEL, prompt="a", temperature=-1)
    assert (bad.value.code, bad.value.param) == ("invalid_value", "temperature")
    assert bad.value.body["message"] == "Invalid request: temperature must be non-negative"
    with pytest.raises(openai.NotFoundError) as unknown:
        await create(model="no-such", prompt="a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.InternalServerError):
        await create(model=MODEL, prompt="bad!")
    with pytest.raises(openai.APIError) as broken:
        async for _ in await create(model=MODEL, prompt="bad!", stream=True):
            pass
    # Not a status error: the 200 was sent, and a retry would not help.
    assert not isinstance(broken.value, openai.APIStatusError)
    assert broken.value.code == "internal_error"

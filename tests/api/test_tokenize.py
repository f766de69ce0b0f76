"""`/tokenize` and `/detokenize`: the model's own tokenizer, over HTTP."""

from typing import Any

import orjson
import pytest
import trio
from tokenizers.processors import TemplateProcessing

from tests.api.answers import Answer, check_error
from tests.api.kit import CHAT, COMPLETIONS, JSON, MESSAGES, MODEL, RENDERED, ApiBench, StartApi
from trioserve.testing.fake_text import EOS_ID, byte_tokenizer

TOKENIZE = ("/tokenize", "/v1/tokenize")
DETOKENIZE = ("/detokenize", "/v1/detokenize")
TEXTS = ("", "a", "héllo", "日本 🇨🇿", "two\nlines\t\x00", "<eos>", "x" * 70_000)


async def post(bench: ApiBench, path: str, **body: Any) -> Answer:
    return await bench.ask("POST", path, data=orjson.dumps(body), headers=JSON)


@pytest.mark.row("S-N-020")
@pytest.mark.parametrize("path", TOKENIZE)
async def test_a_text_becomes_its_tokens_and_their_number(start: StartApi, path: str) -> None:
    bench = await start()
    answer = await post(bench, path, model=MODEL, prompt="héllo")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"tokens": [*"héllo".encode()], "count": 6, "max_model_len": 256}
    # The model is the server's own if none is named.
    assert (await post(bench, path, prompt="héllo")).json() == answer.json()
    assert not bench.runner.plans


@pytest.mark.row("S-N-020")
@pytest.mark.parametrize("path", TOKENIZE)
async def test_a_batch_has_lists_in_its_order(start: StartApi, path: str) -> None:
    bench = await start()
    answer = await post(bench, path, prompt=["ab", "", "c"])
    assert answer.json() == {
        "tokens": [[97, 98], [], [99]],
        "count": [2, 0, 1],
        "max_model_len": 256,
    }
    answer = await post(bench, path, prompt=["ab"])
    assert answer.json() == {"tokens": [[97, 98]], "count": [2], "max_model_len": 256}


@pytest.mark.row("S-N-020")
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
async def test_tokens_go_back_to_their_text(start: StartApi, text: str) -> None:
    """A long one, too: it is for a thread, and no context limits it."""
    bench = await start()
    tokens = (await post(bench, TOKENIZE[0], prompt=text)).json()["tokens"]
    for path in DETOKENIZE:
        answer = await post(bench, path, tokens=tokens, skip_special_tokens=False)
        assert answer.json() == {"text": text}


@pytest.mark.row("S-N-020")
async def test_messages_are_tokenized_as_chat_reads_them(start: StartApi) -> None:
    bench = await start("ok")
    reply = (await post(bench, "/tokenize", messages=MESSAGES)).json()
    assert bytes(reply["tokens"]).decode() == RENDERED
    usage = (await bench.post(CHAT)).json()["usage"]
    assert reply["count"] == usage["prompt_tokens"]
    assert bench.prompts() == [tuple(reply["tokens"])]


async def test_a_prompt_is_tokenized_as_completions_reads_it(start: StartApi) -> None:
    bench = await start("ok")
    tokenizer = byte_tokenizer(more_special=("<bos>",))
    tokenizer._backend.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", EOS_ID + 1)]
    )
    bench.use_tokenizer(tokenizer)
    reply = (await post(bench, "/tokenize", prompt="Once")).json()
    await bench.post(COMPLETIONS, prompt="Once")
    assert bench.prompts() == [tuple(reply["tokens"])]
    assert reply["tokens"] == [EOS_ID + 1, *b"Once"]
    bare = (await post(bench, "/tokenize", prompt="Once", add_special_tokens=False)).json()
    assert bare["tokens"] == [*b"Once"]
    # A template writes it itself.
    chat = (await post(bench, "/tokenize", messages=MESSAGES)).json()["tokens"]
    more = (await post(bench, "/tokenize", messages=MESSAGES, add_special_tokens=True)).json()
    assert more["tokens"] == [EOS_ID + 1, *chat]


@pytest.mark.row("S-N-020")
async def test_variables_reach_the_template(start: StartApi) -> None:
    bench = await start()
    bench.use_tokenizer(byte_tokenizer("{{ messages[0].content }} {{ mood }}"))
    answer = await post(
        bench, "/tokenize", messages=MESSAGES, chat_template_kwargs={"mood": "glad"}
    )
    assert bytes(answer.json()["tokens"]) == b"Hi glad"


@pytest.mark.parametrize("path", DETOKENIZE)
async def test_special_tokens_are_left_out_unless_wanted(start: StartApi, path: str) -> None:
    bench = await start()
    tokens = [97, EOS_ID, 98]
    assert (await post(bench, path, tokens=tokens)).json() == {"text": "ab"}
    answer = await post(bench, path, model=MODEL, tokens=tokens, skip_special_tokens=False)
    assert answer.json() == {"text": "a<eos>b"}


@pytest.mark.row("S-N-020")
@pytest.mark.parametrize("path", DETOKENIZE)
async def test_a_batch_of_tokens_is_a_list_of_texts(start: StartApi, path: str) -> None:
    bench = await start()
    answer = await post(bench, path, tokens=[[97], [], [98, 99]])
    assert answer.json() == {"text": ["a", "", "bc"]}
    assert (await post(bench, path, tokens=[])).json() == {"text": ""}
    assert (await post(bench, path, tokens=[[97]])).json() == {"text": ["a"]}
    # Half a character is shown as what it is.
    assert (await post(bench, path, tokens=[0xE6, 0x97])).json() == {"text": "\ufffd"}


@pytest.mark.parametrize(
    ("path", "body", "message", "code", "param"),
    [
        (
            "/tokenize",
            {},
            "either messages or prompt must be provided",
            "missing_required_parameter",
            "prompt",
        ),
        (
            "/tokenize",
            {"prompt": "a", "messages": MESSAGES},
            "only one of messages or prompt may be provided",
            "invalid_value",
            "prompt",
        ),
        (
            "/tokenize",
            {"prompt": 5},
            "prompt must be a string or an array",
            "invalid_type",
            "prompt",
        ),
        (
            "/tokenize",
            {"prompt": ["a", 5]},
            "prompt[1] must be a string",
            "invalid_type",
            "prompt[1]",
        ),
        ("/tokenize", {"prompt": []}, "prompt cannot be empty", "invalid_value", "prompt"),
        (
            "/tokenize",
            {"prompt": ["a"] * 4},
            "prompt has 4 entries, the limit is 3",
            "invalid_value",
            "prompt",
        ),
        ("/tokenize", {"messages": []}, "messages cannot be empty", "invalid_value", "messages"),
        (
            "/tokenize",
            {"prompt": "a", "add_special_tokens": 1},
            "add_special_tokens must be a boolean",
            "invalid_type",
            "add_special_tokens",
        ),
        (
            "/tokenize",
            {"messages": MESSAGES, "tools": [{"type": "function"}]},
            "tools[0].function must be an object",
            "invalid_type",
            "tools[0].function.name",
        ),
        ("/detokenize", {}, "tokens is required", "missing_required_parameter", "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens must be an array", "invalid_type", "tokens"),
        (
            "/detokenize",
            {"tokens": [1, "a"]},
            "tokens[1] must be an integer",
            "invalid_type",
            "tokens[1]",
        ),
        (
            "/detokenize",
            {"tokens": [1, 257]},
            "tokens contains token id 257 outside [0, 256]",
            "invalid_value",
            "tokens",
        ),
        (
            "/detokenize",
            {"tokens": [[1], [-1]]},
            "tokens contains token id -1 outside [0, 256]",
            "invalid_value",
            "tokens",
        ),
        (
            "/detokenize",
            {"tokens": [[1]] * 4},
            "tokens has 4 entries, the limit is 3",
            "invalid_value",
            "tokens",
        ),
    ],
)
async def test_a_field_that_is_wrong_is_named(
    start: StartApi, path: str, body: dict[str, Any], message: str, code: str, param: str
) -> None:
    bench = await start(max_prompts_per_request=3)
    answer = await post(bench, path, **body)
    check_error(answer, 400, f"Invalid request: {message}", code=code, param=param)


@pytest.mark.parametrize(
    ("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [97]})]
)
async def test_a_model_that_is_not_served_is_404_unless_any_is(
    start: StartApi, path: str, body: dict[str, Any]
) -> None:
    bench = await start()
    answer = await post(bench, path, model="no-such", **body)
    message = "The model 'no-such' does not exist"
    check_error(answer, 404, message, code="model_not_found", param="model")
    bench = await start(allow_any_model=True)
    assert (await post(bench, path, model="no-such", **body)).status == 200


async def test_a_model_without_a_template_says_so(start: StartApi) -> None:
    bench = await start()
    bench.use_tokenizer(byte_tokenizer(None))
    answer = await post(bench, "/tokenize", messages=MESSAGES)
    assert answer.status == 400
    assert "this model has no chat template" in answer.json()["message"]


async def test_long_texts_are_read_off_the_event_loop(
    start: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await start()
    calls = []
    run_sync = trio.to_thread.run_sync

    async def record(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["limiter"].total_tokens)
        return await run_sync(*args, **kwargs)

    monkeypatch.setattr(trio.to_thread, "run_sync", record)
    await post(bench, "/tokenize", prompt="a" * 10_000)
    await post(bench, "/detokenize", tokens=[97] * 1000)
    assert not calls
    await post(bench, "/tokenize", prompt=["a" * 10_000] * 2)
    await post(bench, "/detokenize", tokens=[97] * 10_000)
    messages = [{"role": "user", "content": "a" * 20_000}]
    await post(bench, "/tokenize", messages=messages)
    # Bounded, or a few callers would have all the cores.
    assert calls == [1, 1, 1]


async def test_what_the_template_is_always_given_cannot_be_replaced(start: StartApi) -> None:
    bench = await start()
    for name in ("messages", "add_generation_prompt"):
        answer = await post(bench, "/tokenize", messages=MESSAGES, chat_template_kwargs={name: []})
        message = f"Invalid request: chat_template_kwargs cannot set {name}"
        check_error(answer, 400, message, code="invalid_value", param="chat_template_kwargs")


async def test_a_field_that_is_nested_deeper_than_json_is_written_does_no_harm(
    start: StartApi,
) -> None:
    bench = await start()
    nested = b'{"prompt": "a", "unknown": %s%s}' % (b"[" * 400, b"]" * 400)
    answer = await bench.ask("POST", "/tokenize", data=nested, headers=JSON)
    assert (answer.status, answer.json()["tokens"]) == (200, [ord("a")])

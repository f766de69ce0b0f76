"""What frames every reply: id, object, time, model and the counts of tokens."""

import time
from typing import Any

import pytest

from tests.api.answers import check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, MODEL, PROMPT, RENDERED, StartApi

NUM_PROMPT = {COMPLETIONS: len(PROMPT), CHAT: len(RENDERED)}


def counts(num_prompt: int, num_generated: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_generated,
        "total_tokens": num_prompt + num_generated,
        "prompt_tokens_details": None,
    }


@pytest.mark.row("S-C-042", "S-H-022")
@pytest.mark.parametrize(("path", "prefix"), [(COMPLETIONS, "cmpl-"), (CHAT, "chatcmpl-")])
@pytest.mark.parametrize("stream", [False, True])
async def test_each_reply_has_an_id_of_its_own(
    start: StartApi, path: str, prefix: str, stream: bool
) -> None:
    bench = await start("ab")
    ids = []
    for _ in range(3):
        answer = await bench.post(path, stream=stream, n=2)
        found = {reply["id"] for reply in (answer.events() if stream else [answer.json()])}
        assert len(found) == 1, "the chunks of a stream have one id"
        ids += found
    assert len(set(ids)) == 3
    for each in ids:
        assert each.startswith(prefix)
        assert len(each) == len(prefix) + 32
        int(each.removeprefix(prefix), 16)


@pytest.mark.row("S-C-043", "S-C-044", "S-C-067", "S-H-023", "S-H-027")
@pytest.mark.parametrize(
    ("path", "stream", "kind"),
    [
        (COMPLETIONS, False, "text_completion"),
        (COMPLETIONS, True, "text_completion"),
        (CHAT, False, "chat.completion"),
        (CHAT, True, "chat.completion.chunk"),
    ],
)
async def test_a_reply_says_what_it_is_and_when_it_was_made(
    start: StartApi, path: str, stream: bool, kind: str
) -> None:
    bench = await start("ab")
    before = int(time.time())
    answer = await bench.post(path, stream=stream)
    replies = answer.events() if stream else [answer.json()]
    assert {reply["object"] for reply in replies} == {kind}
    (created,) = {reply["created"] for reply in replies}
    assert isinstance(created, int)
    assert before <= created <= time.time()


@pytest.mark.row("S-C-001", "S-C-045", "S-H-001", "S-H-023")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_model_is_shown_as_sent(start: StartApi, path: str, stream: bool) -> None:
    bench = await start("ab", served_model_name=("small", "other"))
    for model in ("small", "other", MODEL, " small "):
        answer = await bench.post(path, model=model, stream=stream)
        replies = answer.events() if stream else [answer.json()]
        assert {reply["model"] for reply in replies} == {model}


@pytest.mark.row("S-N-024")
@pytest.mark.case(52)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_any_model_is_served_under_the_servers_own_name_if_allowed(
    start: StartApi, path: str, stream: bool
) -> None:
    bench = await start("ab", served_model_name=("small", "other"), allow_any_model=True)
    for model, shown in (("gpt-4", "small"), ("other", "other"), (MODEL, MODEL)):
        answer = await bench.post(path, model=model, stream=stream)
        assert answer.texts() == ["ab"]
        replies = answer.events() if stream else [answer.json()]
        assert {reply["model"] for reply in replies} == {shown}
    answer = await bench.post(path, model="  ")
    message = "Invalid request: model is required"
    check_error(answer, 400, message, code="missing_required_parameter", param="model")


@pytest.mark.row("S-C-057", "S-C-058", "S-C-059", "S-H-026")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_prompts_count_once_and_every_generated_token_with_its_end(
    start: StartApi, path: str
) -> None:
    bench = await start("abc", "d", "")
    answer = await bench.post(path, n=3)
    assert answer.json()["usage"] == counts(NUM_PROMPT[path], 4 + 2 + 1)


@pytest.mark.row("S-C-057", "S-C-058", "S-C-012")
async def test_the_prompts_of_a_batch_are_summed(start: StartApi) -> None:
    bench = await start("a", "bc", "def", "")
    answer = await bench.post(COMPLETIONS, prompt=["one", "seven"], n=2)
    assert answer.texts() == ["a", "bc", "def", ""]
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1, 2, 3]
    assert answer.json()["usage"] == counts(3 + 5, 2 + 3 + 4 + 1)


@pytest.mark.row("S-C-040", "S-C-061", "S-H-039")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", [{}, {"return_routed_experts": True}])
async def test_a_reply_has_no_extension_unless_there_is_something_to_say(
    start: StartApi, path: str, stream: bool, fields: dict[str, Any]
) -> None:
    """A model without experts routes no token anywhere, which is no error."""
    bench = await start("ab")
    answer = await bench.post(path, stream=stream, **fields)
    assert all("sglext" not in reply for reply in (answer.events() if stream else [answer.json()]))
    assert b"sglext" not in answer.body


@pytest.mark.row("S-C-026", "S-C-027", "S-H-035")
@pytest.mark.case(55)
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("fields", [{}, {"logprobs": True}, {"return_hidden_states": True}])
async def test_running_counts_of_a_chunked_prompt_are_right_from_the_first_chunk(
    start: StartApi, path: str, fields: dict[str, Any]
) -> None:
    bench = await start("abc", "defgh")
    prompt: dict[str, Any] = {"prompt": "x" * 150}
    if path == CHAT:
        prompt["messages"] = None
    elif "logprobs" in fields:
        fields = {"logprobs": 1, "echo": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = await bench.post(path, n=2, stream=True, stream_options=options, **prompt, **fields)
    *chunks, last = answer.events()
    seen: dict[int, list[int]] = {0: [], 1: []}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        usage = chunk["usage"]
        assert usage == counts(150, usage["completion_tokens"])
        seen[choice["index"]].append(usage["completion_tokens"])
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert [numbers[-1] for numbers in seen.values()] == [4, 6]
    assert last["choices"] == []
    assert last["usage"] == counts(150, 10)

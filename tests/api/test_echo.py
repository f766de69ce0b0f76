"""Echo: the prompt before each choice's text, with its logprobs, and nothing generated at all."""

from typing import Any

import pytest
from trio.testing import MockClock

from tests.api.answers import Answer, check_error
from tests.api.kit import COMPLETIONS, PROMPT, StartApi
from trioserve.core import ReadoutParams
from trioserve.testing.fake_readout import fake_token_logprobs
from trioserve.testing.fake_text import EOS_ID


def logprobs_of(answer: Answer, index: int = 0) -> dict[str, Any]:
    logprobs = answer.joined()[index].logprobs
    assert logprobs is not None
    return logprobs


def said(ids: list[int], num_top: int = 0) -> list[Any]:
    """What the model says of each token but the first, after those before it."""
    readout = ReadoutParams(num_top=num_top)
    return [
        fake_token_logprobs(tuple(ids[:position]), ids[position], readout)
        for position in range(1, len(ids))
    ]


@pytest.mark.row("S-C-028")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("Once", "Once"),
        ("日本 😀\n", "日本 😀\n"),
        (list("ďa".encode()), "ďa"),
        ([*b"a", EOS_ID, *b"b"], "ab"),
        ([0xF0, 0x9F, *b"b"], "\ufffdb"),
        (["one", "two"], ["one", "two"]),
        ([[97], [98, 99]], ["a", "bc"]),
    ],
)
async def test_each_choice_begins_with_its_prompt(
    start: StartApi, stream: bool, prompt: Any, shown: Any
) -> None:
    bench = await start("!", "?")
    answer = await bench.post(COMPLETIONS, prompt=prompt, echo=True, n=2, stream=stream)
    prompts = shown if isinstance(shown, list) else [shown]
    scripts = ["!", "?", "?", "?"]
    assert answer.texts() == [
        text + scripts[2 * index + sample]
        for index, text in enumerate(prompts)
        for sample in range(2)
    ]


async def test_special_tokens_of_an_echoed_prompt_are_shown_if_asked_for(start: StartApi) -> None:
    bench = await start("!")
    fields: dict[str, Any] = {"prompt": [97, EOS_ID, 98], "echo": True, "logprobs": 0}
    answer = await bench.post(COMPLETIONS, **fields)
    assert answer.texts() == ["ab!"]
    assert logprobs_of(answer)["text_offset"] == [0, 1, 1, 2, 3]
    answer = await bench.post(COMPLETIONS, skip_special_tokens=False, **fields)
    assert answer.texts() == ["a<eos>b!"]
    assert logprobs_of(answer)["text_offset"] == [0, 1, 6, 7, 8]


@pytest.mark.case(29)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["On 😀!", list("On 😀!".encode())])
async def test_offsets_count_from_the_start_of_the_prompt(
    start: StartApi, stream: bool, prompt: Any
) -> None:
    bench = await start("aď")
    answer = await bench.post(COMPLETIONS, prompt=prompt, echo=True, logprobs=1, stream=stream)
    assert answer.texts() == ["On 😀!aď"]
    entries = logprobs_of(answer)
    assert entries["text_offset"] == [0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 6, 7]
    for token, offset in zip(entries["tokens"], entries["text_offset"], strict=True):
        assert len(token) > 1 or answer.texts()[0].startswith(token, offset)


@pytest.mark.row("S-N-004")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_top", [0, 1, 5])
async def test_the_prompts_tokens_have_logprobs_and_the_first_has_null(
    start: StartApi, stream: bool, num_top: int
) -> None:
    bench = await start("ab")
    answer = await bench.post(COMPLETIONS, echo=True, logprobs=num_top, stream=stream)
    entries = logprobs_of(answer)
    ids = [*PROMPT.encode(), *b"ab", EOS_ID]
    assert entries["tokens"] == [*PROMPT, "a", "b", "<eos>"]
    assert entries["token_logprobs"] == [None, *(one.logprob for one in said(ids))]
    first, *tops = entries["top_logprobs"]
    assert first is None
    for top, one in zip(tops, said(ids, num_top), strict=True):
        assert set(top.values()) == {one.logprob, *(logprob for _, logprob in one.top)}


@pytest.mark.row("S-N-004")
async def test_what_the_evaluation_harness_sends_gets_what_it_slices(start: StartApi) -> None:
    """Arrays of prompt and generated tokens; greedy is told by equality of two numbers."""
    bench = await start()
    contexts = [[1, 2, 3], list(b"the quick brown fox"), [250]]
    answer = await bench.post(
        COMPLETIONS,
        prompt=contexts,
        max_tokens=1,
        echo=True,
        logprobs=1,
        temperature=0,
        seed=1234,
    )
    for index, ids in enumerate(contexts):
        entries = logprobs_of(answer, index)
        assert {len(column) for column in entries.values()} == {len(ids) + 1}
        for own, top in zip(entries["token_logprobs"], entries["top_logprobs"], strict=True):
            assert (own is None) == (top is None)
            assert own is None or own in top.values()
        # The model's favourite, which is what it draws for the first choice, bit for bit.
        is_greedy = entries["token_logprobs"][-1] == max(entries["top_logprobs"][-1].values())
        assert is_greedy == (index == 0)


@pytest.mark.row("S-N-004")
@pytest.mark.case(28)
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_generated_if_nothing_is_asked_for(start: StartApi, stream: bool) -> None:
    bench = await start("never")
    for fields, text in (({}, PROMPT), ({"suffix": "!"}, PROMPT + "!")):
        answer = await bench.post(
            COMPLETIONS,
            max_tokens=0,
            echo=True,
            logprobs=1,
            stream=stream,
            stream_options={"include_usage": True} if stream else None,
            **fields,
        )
        (choice,) = answer.joined()
        assert choice.text == text
        assert choice.finish == ("length", None)
        usage = (answer.events()[-1] if stream else answer.json())["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(PROMPT), 0)
        assert logprobs_of(answer)["tokens"] == list(PROMPT)
        assert logprobs_of(answer)["token_logprobs"][0] is None
        assert None not in logprobs_of(answer)["token_logprobs"][1:]
    bench.check_idle()


@pytest.mark.row("S-N-004")
@pytest.mark.case(28)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1 unless echo is true"),
        ({"max_tokens": 0, "echo": False}, "max_tokens must be at least 1 unless echo is true"),
        ({"max_tokens": -1, "echo": True}, "max_tokens must be at least 0"),
    ],
)
async def test_no_token_at_all_is_for_echo_alone(
    start: StartApi, fields: dict[str, Any], message: str
) -> None:
    bench = await start("never")
    answer = await bench.post(COMPLETIONS, **fields)
    error = f"Invalid request: {message}"
    check_error(answer, 400, error, code="invalid_value", param="max_tokens")


async def test_the_echo_is_a_chunk_of_its_own_and_the_first_of_its_choice(start: StartApi) -> None:
    bench = await start("a", "")
    answer = await bench.post(COMPLETIONS, prompt=["x", "yz"], echo=True, stream=True, logprobs=0)
    for index, (prompt, rest) in enumerate((("x", ["a", ""]), ("yz", [""]))):
        pieces = [piece for piece in answer.pieces() if piece["index"] == index]
        assert [piece["text"] for piece in pieces] == [prompt, *rest]
        assert pieces[0]["logprobs"]["tokens"] == list(prompt)
        assert pieces[0]["finish_reason"] is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_is_not_looked_for_in_the_prompt(start: StartApi, stream: bool) -> None:
    bench = await start("xSTOPy")
    answer = await bench.post(
        COMPLETIONS, prompt="a STOP b ST", echo=True, stop="STOP", stream=stream
    )
    assert answer.texts() == ["a STOP b STx"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_aborted_choice_echoes_its_prompt_without_numbers(
    start: StartApi, autojump_clock: MockClock, stream: bool
) -> None:
    """It was never read, but the client can still tell its text from its prompt."""
    bench = await start("never", is_automatic=False, request_timeout=5.0)
    answer = await bench.post(COMPLETIONS, echo=True, logprobs=1, stream=stream)
    (choice,) = answer.joined()
    assert choice.finish == ("abort", None)
    assert choice.text == PROMPT
    assert logprobs_of(answer)["token_logprobs"] == [None] * len(PROMPT)

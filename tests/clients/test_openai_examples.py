"""The documented examples through `openai` for Python: the newest and the newest 1.x, both ways."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.clients.environments import OPENAI_CLIENTS, Environment
from tests.clients.kit import EMBEDDING_MODEL, MODEL, base_url, start_script
from trioserve.testing.server_process import ServerProcess

Answers = dict[str, Any]

_MAX_S = 420.0
"""Against a hang: all together they have about 6,000 tokens computed, in a minute of two cores."""

pytestmark = pytest.mark.timeout(_MAX_S + 150)


@pytest.fixture(scope="module")
def all_answers(
    running_server: ServerProcess, environment: Callable[[str], Environment]
) -> Iterator[dict[tuple[str, str], Answers]]:
    """What every client got; they run at once, since the server computes them as one batch."""
    arguments = base_url(running_server), MODEL
    with ExitStack() as stack:
        clients = {
            (version, way): stack.enter_context(
                start_script(environment(version), "openai_examples.py", way, *arguments)
            )
            for version, way in OPENAI_CLIENTS
        }
        yield {key: client.answer(timeout_s=_MAX_S) for key, client in clients.items()}


@pytest.fixture(params=OPENAI_CLIENTS, ids="-".join)
def answers(request: pytest.FixtureRequest, all_answers: dict[tuple[str, str], Answers]) -> Answers:
    return all_answers[request.param]


def answer(answers: Answers, name: str) -> Any:
    """What an example gave that must not raise."""
    got = answers[name]
    assert "raised" not in got, got["traceback"]
    return got


def whole(got: dict[str, Any], kind: str, prefix: str) -> dict[str, Any]:
    """The one choice of a whole answer, after what every such answer must have."""
    assert got["object"] == kind
    assert got["id"].startswith(prefix)
    assert (got["model"], type(got["created"])) == (MODEL, int)
    usage = got["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    (choice,) = got["choices"]
    assert (choice["index"], choice["logprobs"]) == (0, None)
    return dict(choice)


def assert_within(got: dict[str, Any], finish_reason: str, max_tokens: int) -> None:
    num_tokens = got["usage"]["completion_tokens"]
    assert 0 < num_tokens <= max_tokens
    # The last token allowed may be the model's own end.
    assert finish_reason in ({"length", "stop"} if num_tokens == max_tokens else {"stop"})


@pytest.mark.row("S-X-01", "S-G-002", "S-A-001", "S-C-003", "S-C-043", "S-C-059")
@pytest.mark.parametrize(
    ("name", "max_tokens"), [("completion", 128), ("shorter_completion", 100), ("fibonacci", 256)]
)
def test_a_completion_keeps_to_its_limit(answers: Answers, name: str, max_tokens: int) -> None:
    got = answer(answers, name)
    choice = whole(got, "text_completion", "cmpl-")
    assert isinstance(choice["text"], str)
    assert_within(got, choice["finish_reason"], max_tokens)


@pytest.mark.row("S-X-02", "S-G-002", "S-C-025")
def test_a_loop_over_a_streamed_completion_sees_the_text_grow(answers: Answers) -> None:
    chunks = answer(answers, "streamed_completion")
    texts = [chunk["choices"][0]["text"] for chunk in chunks]
    assert all(texts[:-1])
    # Nobody gave a seed, so the model may be short.
    assert len(texts[:-1]) > 1 or chunks[-1]["usage"]["completion_tokens"] < 10
    assert len({(chunk["id"], chunk["object"], chunk["created"]) for chunk in chunks}) == 1
    # The finish chunk is the last, and has the usage, since nobody said otherwise.
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[:-1] == [None] * len(reasons[:-1])
    assert_within(chunks[-1], reasons[-1], 512)


@pytest.mark.row("S-X-04", "S-G-002", "S-C-004")
def test_a_batch_of_prompts_gives_choices_in_their_order(answers: Answers) -> None:
    got = answer(answers, "batch")
    assert [choice["index"] for choice in got["choices"]] == [0, 1, 2]
    assert all(isinstance(choice["text"], str) for choice in got["choices"])
    assert 0 < got["usage"]["completion_tokens"] <= 30


@pytest.mark.row("S-X-05", "S-G-002", "S-A-001", "S-H-020", "S-H-024")
@pytest.mark.parametrize(("name", "max_tokens"), [("chat_with_a_dummy_key", 150), ("chat", 128)])
def test_a_chat_answers_with_text(answers: Answers, name: str, max_tokens: int) -> None:
    got = answer(answers, name)
    choice = whole(got, "chat.completion", "chatcmpl-")
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    assert_within(got, choice["finish_reason"], max_tokens)


@pytest.mark.row("S-X-06", "S-G-002", "S-H-021", "S-H-028", "S-H-030")
@pytest.mark.parametrize(
    ("name", "max_tokens"), [("streamed_chat", 50), ("streamed_chat_without_a_limit", 16)]
)
def test_a_loop_over_a_streamed_chat_sees_the_text_grow(
    answers: Answers, name: str, max_tokens: int
) -> None:
    chunks = answer(answers, name)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    contents = [delta["content"] for delta in deltas[1:-1]]
    assert all(contents)
    reason = chunks[-1]["choices"][0]["finish_reason"]
    assert len(contents) <= max_tokens
    # Nobody gave a seed, so the model may be short.
    assert reason == "stop" or (reason == "length" and len(contents) > 1)
    assert all("role" not in delta for delta in deltas[1:])


@pytest.mark.row("S-X-11", "S-G-002", "S-H-011", "S-H-012")
def test_top_k_travels_in_the_extra_body(answers: Answers) -> None:
    got = answer(answers, "top_k_in_the_extra_body")
    choice = whole(got, "chat.completion", "chatcmpl-")
    assert_within(got, choice["finish_reason"], 200)


@pytest.mark.row("S-X-11")
def test_the_client_itself_refuses_top_k_as_a_keyword(answers: Answers) -> None:
    assert answers["top_k_as_a_keyword"]["raised"] == "TypeError"


@pytest.mark.row("S-X-09", "S-H-033")
def test_the_second_of_two_equal_chats_finds_its_prompt_cached(answers: Answers) -> None:
    replies = answer(answers, "cached_tokens_in_the_extra_body")
    assert len(replies) == 2
    for got in replies:
        whole(got, "chat.completion", "chatcmpl-")
        num_cached = got["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert 0 <= num_cached < got["usage"]["prompt_tokens"]
        details = {"device": num_cached, "host": 0}
        assert got["sglext"] == {"cached_tokens_details": details}
    # All whole pages of 16 but for the last token, which is always computed.
    assert num_cached == (got["usage"]["prompt_tokens"] - 1) // 16 * 16 >= 48


@pytest.mark.row("S-X-12", "S-B-003", "S-N-012")
def test_embeddings_of_two_texts_have_the_native_size(answers: Answers) -> None:
    # The client asks for base64 and decodes it.
    got = answer(answers, "embeddings")
    assert got["object"] == "list"
    assert [item["index"] for item in got["data"]] == [0, 1]
    vectors = [item["embedding"] for item in got["data"]]
    assert [len(vector) for vector in vectors] == [384, 384]
    assert all(sum(x * x for x in vector) == pytest.approx(1, abs=1e-4) for vector in vectors)
    assert vectors[0] != vectors[1]
    assert got["usage"]["prompt_tokens"] == got["usage"]["total_tokens"] > 0


@pytest.mark.row("S-X-13", "S-M-001", "S-M-002", "S-M-003")
def test_models_are_listed_and_one_is_retrieved_by_a_name_with_a_slash(answers: Answers) -> None:
    listed = answer(answers, "models")
    assert [model["id"] for model in listed] == [MODEL, EMBEDDING_MODEL]
    assert type(answers["max_model_len"]) is int
    assert answers["max_model_len"] == 8192


@pytest.mark.row("S-E-001", "S-E-003", "S-E-008")
def test_a_refused_request_is_the_clients_own_exception(answers: Answers) -> None:
    got = answers["negative_temperature"]
    assert got["raised"] == "BadRequestError"
    assert (got["code"], got["param"]) == ("invalid_value", "temperature")
    assert "Invalid request: temperature must be non-negative" in got["traceback"]
    got = answers["unknown_model"]
    assert (got["raised"], got["code"]) == ("NotFoundError", "model_not_found")

"""The arithmetic of the closed loop, against a server whose delays are known exactly."""

from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from bench import online
from bench.wire import WireError

DEFAULTS = online.Options(
    url="http://127.0.0.1:30000",
    api_key=None,
    model=None,
    endpoint="completions",
    clients=2,
    requests=6,
    duration=None,
    warmup=0,
    prompt_tokens=40,
    shared_prefix_tokens=0,
    output_tokens=5,
    cancel_fraction=0.0,
    temperature=0.0,
    ignore_eos=True,
    seed=1,
    label=None,
    device="a test",
    health_interval=0.0,
)


async def measure(**changes: Any) -> dict[str, Any]:
    return await online.measure(attrs.evolve(DEFAULTS, **changes))


async def test_rates_and_times_are_those_of_the_server(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure()
    # Three requests after one another: 0.5 s to the first token, then four gaps of 0.1 s.
    assert line["elapsed_s"] == pytest.approx(3 * 0.9)
    assert line["output_tokens"] == 6 * 5
    assert line["tok_s"] == pytest.approx(30 / 2.7, abs=0.01)
    assert line["ttft_ms"] == {"p50": 500.0, "p90": 500.0, "p99": 500.0}
    assert line["gap_ms"] == {"p50": 100.0, "p90": 100.0, "p99": 100.0}
    assert line["tpot_ms"]["p50"] == 100.0
    assert line["request_ms"]["p99"] == 900.0
    assert line["requests"] == {"completed": 6, "cancelled": 0, "failed": 0}
    assert server.max_running == 2


async def test_prompts_have_the_wanted_length_and_differ(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure()
    asked = server.prompts[2:]  # two were only counted
    assert line["prompt_tokens_mean"] == 40.0
    assert len({" ".join(prompt.split()[:4]) for prompt in asked}) == len(asked) == 6


async def test_chat_template_is_taken_off_the_prompt(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure(endpoint="chat")
    assert line["prompt_tokens_mean"] == 40.0
    assert line["ttft_ms"]["p50"] == 500.0  # the role event carries no text
    assert set(server.paths[1:]) == {"/v1/chat/completions"}


async def test_shared_prefix_is_shared_and_the_rest_is_not(
    server: Any, autojump_clock: MockClock
) -> None:
    await measure(shared_prefix_tokens=30)
    asked = [prompt.split() for prompt in server.prompts[2:]]
    assert len({tuple(words[:30]) for words in asked}) == 1
    assert len({tuple(words[30:]) for words in asked}) == 6
    assert {len(words) for words in asked} == {40}


async def test_cancelled_requests_do_not_count_as_output(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure(cancel_fraction=0.5, requests=40)
    completed, cancelled = line["requests"]["completed"], line["requests"]["cancelled"]
    assert completed + cancelled == 40
    assert 10 < cancelled < 30
    assert line["output_tokens"] == completed * 5
    assert line["received_tok_s"] > line["tok_s"]
    assert len(server.free_s) == cancelled
    assert server.num_running == 0


async def test_same_seed_asks_the_same(server: Any, autojump_clock: MockClock) -> None:
    first = await measure(cancel_fraction=0.5, requests=20)
    asked = list(server.prompts)
    server.prompts.clear()
    assert await measure(cancel_fraction=0.5, requests=20) == first
    assert sorted(server.prompts) == sorted(asked)


async def test_duration_ends_the_sending_and_lets_answers_end(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure(requests=None, duration=2.0)
    assert line["requests"]["completed"] == 6  # sent at 0, 0.9 and 1.8 s, by both clients
    assert line["elapsed_s"] == pytest.approx(2.7)


async def test_warm_up_is_not_counted_and_not_repeated(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure(warmup=2)
    assert line["requests"]["completed"] == 6
    assert len(set(server.prompts[2:])) == 8


async def test_server_without_usage_is_counted_by_events(
    server: Any, autojump_clock: MockClock
) -> None:
    counted = await measure()
    server.has_usage = False
    line = await measure()
    assert line["counted_by"] == "events"
    assert line["tok_s"] == counted["tok_s"]


async def test_connections_are_kept_between_requests(
    server: Any, autojump_clock: MockClock
) -> None:
    await measure()
    assert server.num_connections == 3 + 2  # the list of models, two counts, two clients


async def test_refusals_are_counted_and_shown(server: Any, autojump_clock: MockClock) -> None:
    server.status = 503
    with pytest.raises(WireError, match="503"):
        await measure()


async def test_line_names_what_was_measured(server: Any, autojump_clock: MockClock) -> None:
    line = await measure(label="here")
    assert (line["model"], line["label"], line["seed"]) == ("fake", "here", 1)
    assert line["shape"]["clients"] == 2
    assert line["device"] == "a test"


async def test_health_is_asked_for_while_the_load_runs(
    server: Any, autojump_clock: MockClock
) -> None:
    line = await measure(health_interval=0.5)
    # At 0, 0.5, … of 2.7 s, each answered at once.
    assert line["health_ms"] == {"count": 6, "p50": 0.0, "p90": 0.0, "p99": 0.0}
    assert (await measure())["health_ms"]["count"] == 0

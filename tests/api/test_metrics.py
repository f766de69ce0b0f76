"""`/metrics`: that it parses, that it adds up, and that no client can make it grow."""

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from tests.api.kit import (
    CHAT,
    COMPLETIONS,
    JSON,
    MODEL,
    PROMPT,
    RENDERED,
    ApiBench,
    StartApi,
    body_for,
)

FAMILIES = {
    "num_running_reqs": "gauge",
    "num_queue_reqs": "gauge",
    "num_used_tokens": "gauge",
    "token_usage": "gauge",
    "cache_hit_rate": "gauge",
    "gen_throughput": "gauge",
    "pages": "gauge",
    "pages_total": "gauge",
    "steps": "counter",
    "wasted_tokens": "counter",
    "recomputed_tokens": "counter",
    "cancel_to_free_seconds": "histogram",
    "cancel_to_free_steps": "histogram",
    "requests": "counter",
    "prompt_tokens": "counter",
    "generation_tokens": "counter",
    "cached_tokens": "counter",
    "aborted_requests": "counter",
    "rejected_requests": "counter",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram",
    "queue_time_seconds": "histogram",
}


@pytest.mark.row("S-N-019")
async def test_every_family_of_the_contract_is_there_and_parses(start: StartApi) -> None:
    bench = await start(served_model_name=("big", "small"))
    answer = await bench.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.body.decode()))
    kinds = {family.name.removeprefix("trioserve_"): family.type for family in families}
    assert kinds == FAMILIES
    assert all(family.documentation for family in families)
    assert all(
        sample.labels["model_name"] == "big" for family in families for sample in family.samples
    )


async def pages(bench: ApiBench) -> dict[str, float]:
    samples = await bench.samples()
    found = {
        dict(labels)["state"]: value for (name, labels), value in samples.items() if name == "pages"
    }
    assert found.keys() == {"free", "leased", "cached", "quarantined"}
    assert sum(found.values()) == await bench.metric("pages_total") == 128
    return found


@pytest.mark.row("S-N-019")
async def test_pages_by_state_add_up_while_requests_come_and_go(start: StartApi) -> None:
    bench = await start("abc" * 30, is_automatic=False)
    assert (await pages(bench))["free"] == 128
    with trio.CancelScope() as left:
        async with trio.open_nursery() as nursery:
            prompts = [letter * 4 for letter in "abc"]
            nursery.start_soon(lambda: bench.post(COMPLETIONS, prompt=prompts, max_tokens=60))
            await bench.finish_step()
            # The prompts' pages are computed and may be shared.
            census = await pages(bench)
            assert (census["leased"], census["cached"], census["free"]) == (3, 3, 122)
            left.cancel()
    # The step in flight may still write to them.
    census = await pages(bench)
    assert (census["quarantined"], census["cached"], census["free"]) == (3, 3, 122)
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    census = await pages(bench)
    assert (census["cached"], census["free"]) == (3, 125)


@pytest.mark.row("S-N-019")
@pytest.mark.case(118)
async def test_counters_reconcile_with_what_clients_were_told(start: StartApi) -> None:
    """Case 118: aborted requests were missing from the sums."""
    bench = await start("abcdefgh", max_running_requests=4)
    answers = [
        await bench.post(path, n=n, **end)
        for path in (COMPLETIONS, CHAT)
        for n in (1, 3)
        for end in ({"max_tokens": 5}, {"stop": "d"})
    ]
    told = [answer.json()["usage"] for answer in answers]
    await bench.post(COMPLETIONS, temperature=-1)
    await bench.post(COMPLETIONS, model="no-such")

    # One leaves in the middle of its stream: what was generated until then counts.
    bench.device.is_automatic = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.wire_request, COMPLETIONS)
        for _ in range(3):
            await bench.finish_step()
        nursery.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()

    num_generated = sum(usage["completion_tokens"] for usage in told) + 3
    assert await bench.metric("generation_tokens_total") == num_generated
    num_prompt_tokens = sum(usage["prompt_tokens"] for usage in told) + len(PROMPT)
    assert num_prompt_tokens == 5 * len(PROMPT) + 4 * len(RENDERED)
    assert await bench.metric("prompt_tokens_total") == num_prompt_tokens
    statuses = {
        (endpoint, status): await bench.metric("requests_total", endpoint=endpoint, status=status)
        for endpoint in (COMPLETIONS, CHAT)
        for status in ("ok", "400", "404", "cancelled", "500")
    }
    assert {key: value for key, value in statuses.items() if value} == {
        (COMPLETIONS, "ok"): 4,
        (CHAT, "ok"): 4,
        (COMPLETIONS, "400"): 1,
        (COMPLETIONS, "404"): 1,
        (COMPLETIONS, "cancelled"): 1,
    }
    assert await bench.metric("aborted_requests_total", reason="cancelled") == 1
    num_admitted = 9
    for name in ("e2e_request_latency_seconds", "queue_time_seconds"):
        assert await bench.metric(f"{name}_count") == num_admitted
    num_choices = 2 * (1 + 1 + 3 + 3) + 1
    num_first = await bench.metric("time_to_first_token_seconds_count")
    assert num_first == num_choices
    num_later = await bench.metric("inter_token_latency_seconds_count")
    assert num_first + num_later == num_generated
    assert await bench.metric("cancel_to_free_steps_count") == 1
    assert await bench.metric("cancel_to_free_seconds_count") == 1
    assert await bench.metric("steps_total") == len(bench.runner.plans)
    assert await bench.metric("rejected_requests_total") == 0


@pytest.mark.case(11)
async def test_a_stream_read_to_its_end_is_ok_and_no_abort(start: StartApi) -> None:
    """Case 11, as the counters see it: openai's client closes right after [DONE]."""
    bench = await start("abc")
    for path in (COMPLETIONS, CHAT):
        async with bench.wire.connect() as client:
            response = await client.post_json(path, body_for(path, stream=True))
            assert response.body.endswith(b"data: [DONE]\n\n")
        await trio.testing.wait_all_tasks_blocked()
        assert await bench.metric("requests_total", endpoint=path, status="ok") == 1
        assert await bench.metric("requests_total", endpoint=path, status="cancelled") == 0
    samples = await bench.samples()
    assert not [labels for name, labels in samples if name == "aborted_requests_total"]


@pytest.mark.case(119)
async def test_clients_cannot_make_the_metrics_grow(start: StartApi) -> None:
    """Case 119: ids, paths and names as labels."""
    bench = await start("abc")

    async def visit(name: str) -> None:
        for path in (f"/{name}", f"/v1/models/{name}", f"/v1/{name}/{name}"):
            for method in ("GET", "POST", name.upper()):
                await bench.ask(method, path, headers={**JSON, "X-Request-Id": name})
        await bench.post(CHAT, model=name)
        await bench.post(CHAT, user=name, metadata={name: name}, **{name: name})
        await bench.post(COMPLETIONS, prompt=name, stop=[name])
        await bench.get(f"/health?{name}={name}")

    await visit("first")
    await bench.samples()
    before = (await bench.samples()).keys()
    for index in range(20):
        await visit(f"visitor{index}")
    assert (await bench.samples()).keys() == before
    text = (await bench.get("/metrics")).body.decode()
    assert "visitor" not in text
    endpoints = {dict(labels)["endpoint"] for name, labels in before if name == "requests_total"}
    assert endpoints == {
        *("unknown", "/v1/models/<path:model_id>", CHAT, COMPLETIONS, "/health", "/metrics")
    }
    assert MODEL in text


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "line\nbreak"])
async def test_a_model_name_that_needs_escaping_is_escaped(start: StartApi, name: str) -> None:
    bench = await start(served_model_name=(name,))
    families = text_string_to_metric_families((await bench.get("/metrics")).body.decode())
    assert {s.labels["model_name"] for family in families for s in family.samples} == {name}

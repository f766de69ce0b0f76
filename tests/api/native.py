"""What the tests of `/generate` share."""

from typing import Any

import orjson

from tests.api.answers import Answer
from tests.api.kit import JSON, ApiBench

GENERATE = "/generate"
META = {
    *("id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("weight_version", "e2e_latency"),
}
"""What is always there."""


async def generate(bench: ApiBench, method: str = "POST", **body: Any) -> Answer:
    """One request with this body."""
    return await bench.ask(method, GENERATE, data=orjson.dumps(body), headers=JSON)


async def both(bench: ApiBench, **body: Any) -> list[dict[str, Any]]:
    """The objects of the answer; the last events of the same request as a stream are the same."""
    whole = (await generate(bench, **body)).json()
    answers = whole if isinstance(whole, list) else [whole]
    events = (await generate(bench, **body, stream=True)).events()
    last: dict[int, dict[str, Any]] = {}
    for event in events:
        assert ("index" in event) == isinstance(whole, list)
        last[event.pop("index", 0)] = event
    assert [_plain(last[index]) for index in sorted(last)] == list(map(_plain, answers))
    return answers


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between two runs."""
    assert answer["meta_info"]["e2e_latency"] >= 0
    # What the first has computed is there for the second.
    changing = ("e2e_latency", "id", "cached_tokens")
    meta = {k: v for k, v in answer["meta_info"].items() if k not in changing}
    return {**answer, "meta_info": meta}

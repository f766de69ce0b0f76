"""What the tests of `/abort_request` share."""

from typing import Any

import orjson
import trio
import trio.testing
from attrs import define, field

from tests.api.answers import Answer
from tests.api.kit import COMPLETIONS, JSON, PROMPT, ApiBench, body_for

GENERATE = "/generate"


async def abort(bench: ApiBench, **body: Any) -> Answer:
    return await bench.ask("POST", "/abort_request", data=orjson.dumps(body), headers=JSON)


@define
class Requests:
    """Requests that are open, and the answers to those that are over, by name."""

    bench: ApiBench
    nursery: trio.Nursery
    answers: dict[str, Answer] = field(factory=dict)

    async def open(self, rid: Any, path: str = COMPLETIONS, **fields: Any) -> None:
        """Send it and wait until nothing more happens without a step."""
        own = {"text": PROMPT} if path == GENERATE else body_for(path)
        data = orjson.dumps({**own, "rid": rid, **fields})
        name = rid if isinstance(rid, str) else str(len(self.answers))

        async def run() -> None:
            self.answers[name] = await self.bench.ask("POST", path, data=data, headers=JSON)

        self.nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()


async def check_aborted(bench: ApiBench, **body: Any) -> None:
    """The reply is empty, and when it comes the abort has happened."""
    answer = await abort(bench, **body)
    assert (answer.status, answer.body) == (200, b"")
    for stream in bench.engine.batch.streams:
        if stream.request.request_id == body.get("rid") or body.get("abort_all"):
            assert stream.is_finished
    bench.engine.batch.check()
    await trio.testing.wait_all_tasks_blocked()


def finishes(answer: Answer) -> list[tuple[str, str]]:
    """Text and reason of each choice."""
    assert answer.status == 200
    return [(choice.text, choice.finish[0]) for choice in answer.joined() if choice.finish]

"""`/get_load` and `/v1/loads`: what a router weighs servers by."""

import pytest
import trio

from tests.api.kit import COMPLETIONS, PROMPT, StartApi


@pytest.mark.row("S-N-018")
async def test_an_idle_server_has_no_load(start: StartApi) -> None:
    bench = await start()
    idle = [{"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}]
    assert (await bench.get("/get_load")).json() == idle


@pytest.mark.row("S-N-018")
async def test_tokens_held_and_queued_are_counted(start: StartApi) -> None:
    bench = await start("abc" * 30, is_automatic=False, max_running_requests=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.post(COMPLETIONS, n=5, max_tokens=60))
        for _ in range(3):
            await bench.finish_step()
        # Three tokens each for the two that run.
        num_tokens = 5 * len(PROMPT) + 2 * 3
        assert (await bench.get("/get_load")).json() == [
            {"dp_rank": 0, "num_reqs": 5, "num_waiting_reqs": 3, "num_tokens": num_tokens}
        ]
        bench.finish_all()
    assert (await bench.get("/get_load")).json()[0]["num_tokens"] == 0


@pytest.mark.row("S-N-018")
@pytest.mark.parametrize(
    "query", ["", "?dp_rank=0", "?include=core,memory", "?dp_rank=7&include=x"]
)
@pytest.mark.parametrize("path", ["/v1/loads", "/get_load"])
async def test_queries_of_routers_are_accepted(start: StartApi, path: str, query: str) -> None:
    bench = await start()
    answer = await bench.get(path + query)
    assert answer.status == 200
    loads = answer.json() if path == "/get_load" else answer.json()["loads"]
    assert [load["dp_rank"] for load in loads] == [0]

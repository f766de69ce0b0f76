"""`/server_info`: what sglang-router and people read about a server."""

from typing import Any

import attrs
import pytest
import trio

from tests.api.kit import COMPLETIONS, PROMPT, StartApi
from trioserve import __version__
from trioserve.config import ServerConfig
from trioserve.setting import is_secret

PATHS = ("/server_info", "/get_server_info")


@pytest.mark.row("S-N-016")
@pytest.mark.parametrize("path", PATHS)
async def test_it_has_every_setting_that_is_no_secret(start: StartApi, path: str) -> None:
    bench = await start(drain_timeout=7, served_model_name=("big", "small"), page_size=4)
    info = (await bench.get(path)).json()
    for attribute in attrs.fields(ServerConfig):
        assert (attribute.name in info) == (not is_secret(attribute)), attribute.name
    assert info["drain_timeout"] == 7
    assert info["served_model_names"] == ["big", "small"]


@pytest.mark.row("S-N-016")
@pytest.mark.parametrize("path", PATHS)
async def test_it_says_what_became_of_the_settings(start: StartApi, path: str) -> None:
    bench = await start(served_model_name=("big", "small"), max_running_requests=3)
    info = (await bench.get(path)).json()
    expected = {
        "model_path": "fake",
        "served_model_name": "big",
        "version": __version__,
        "dp_size": 1,
        "tp_size": 1,
        "max_total_num_tokens": 512,
        "max_total_tokens": 512,
        "max_running_requests": 3,
        "max_prefill_tokens": 64,
        "context_length": 256,
        "dtype": "float32",
    }
    assert {name: info[name] for name in expected} == expected
    (state,) = info["internal_states"]
    assert state == {
        "num_running_reqs": 0,
        "num_waiting_reqs": 0,
        "num_used_tokens": 0,
        "token_usage": 0.0,
        "cache_hit_rate": 0.0,
        "last_gen_throughput": 0.0,
    }


@pytest.mark.row("S-N-016")
async def test_the_state_is_that_of_this_moment(start: StartApi) -> None:
    bench = await start("abc" * 30, is_automatic=False, max_running_requests=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.post(COMPLETIONS, n=5, max_tokens=60))
        for _ in range(2):
            await bench.finish_step()
        (state,) = (await bench.get("/server_info")).json()["internal_states"]
        assert (state["num_running_reqs"], state["num_waiting_reqs"]) == (2, 3)
        (load,) = (await bench.get("/v1/loads")).json()["loads"]
        assert state["num_used_tokens"] == load["num_used_tokens"] > 2 * len(PROMPT)
        assert state["token_usage"] == load["token_usage"] > 0
        assert state["last_gen_throughput"] == pytest.approx(4 / 5)
        bench.finish_all()


def numbers(value: Any) -> list[float]:
    """All numbers in a JSON value."""
    if isinstance(value, dict):
        return [number for inner in value.values() for number in numbers(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in numbers(inner)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [value] if is_number else []


@pytest.mark.parametrize("path", [*PATHS, "/get_load", "/get_model_info", "/model_info"])
async def test_sglang_router_can_read_it(start: StartApi, path: str) -> None:
    """It takes numbers for unsigned, and `model` for another name of `model_id`."""
    bench = await start()
    info = (await bench.get(path)).json()
    assert all(number >= 0 for number in numbers(info))
    for entry in info if isinstance(info, list) else [info]:
        assert not {"model", "model_id"} <= entry.keys()

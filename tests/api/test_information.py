"""Models, health, configuration and load."""

import time

import pytest
import trio
import trio.testing
from openai.types import Model

from tests.api.answers import check_error
from tests.api.kit import COMPLETIONS, PROMPT, StartApi
from trioserve import __version__


@pytest.mark.row("S-M-001", "S-M-003")
async def test_every_served_name_is_listed_canonical_first(start: StartApi) -> None:
    before = int(time.time()) - 3600
    bench = await start(model_path="/models/fake", served_model_name=("org/big", "small:8b"))
    answer = await bench.get("/v1/models")
    assert answer.headers["content-type"] == "application/json"
    listed = answer.json()
    assert listed["object"] == "list"
    assert [card["id"] for card in listed["data"]] == ["org/big", "small:8b"]
    for card in listed["data"]:
        created = card.pop("created")
        assert isinstance(created, int)
        assert before < created <= time.time()
        Model.model_validate({**card, "created": created})
        del card["id"]
        assert card == {
            "object": "model",
            "owned_by": "trioserve",
            "root": "/models/fake",
            "parent": None,
            "max_model_len": 256,
        }


@pytest.mark.row("S-M-002", "S-M-003")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("org/big", "org/big"),
        ("org%2Fbig", "org/big"),
        ("small:8b", "small:8b"),
        ("small%3A8b", "small:8b"),
        ("hub/fake", "org/big"),  # the model's path is the canonical name
        ("hub%2Ffake", "org/big"),
    ],
)
async def test_a_model_is_retrieved_by_any_of_its_names(
    start: StartApi, asked: str, found: str
) -> None:
    bench = await start(model_path="hub/fake", served_model_name=("org/big", "small:8b"))
    answer = await bench.get(f"/v1/models/{asked}")
    assert answer.json() in (await bench.get("/v1/models")).json()["data"]
    assert answer.json()["id"] == found


@pytest.mark.row("S-M-002", "S-E-003")
@pytest.mark.parametrize("asked", ["no-such", "ORG/big", "org/big/", "org", "org/big:adapter"])
async def test_an_unknown_model_is_404(start: StartApi, asked: str) -> None:
    bench = await start(served_model_name=("org/big",))
    answer = await bench.get(f"/v1/models/{asked}")
    message = f"The model '{asked}' does not exist"
    check_error(answer, 404, message, code="model_not_found", param="model")


@pytest.mark.row("S-M-004", "S-X-14")
async def test_health_says_ok_and_nothing_is_generated(start: StartApi) -> None:
    bench = await start()
    answer = await bench.get("/health")
    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
    assert not bench.runner.plans


@pytest.mark.row("S-M-004")
async def test_health_answers_while_a_step_runs(start: StartApi) -> None:
    bench = await start(is_automatic=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.post, COMPLETIONS)
        await bench.device.wait_submitted()
        assert (await bench.get("/health")).status == 200
        bench.finish_all()


@pytest.mark.row("S-M-005", "S-X-14")
@pytest.mark.parametrize("path", ["/get_model_info", "/model_info"])
async def test_model_info_has_what_routers_read(start: StartApi, path: str) -> None:
    bench = await start(
        served_model_name=("big", "small"), max_running_requests=3, max_queued_requests=5
    )
    info = (await bench.get(path)).json()
    settings = info.pop("server_config")
    assert info == {
        "model_path": "fake",
        "tokenizer_path": "fake",
        "served_model_name": "big",
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "model_type": "fake",
        "architectures": ["FakeForCausalLM"],
        "max_model_len": 256,
        "vocab_size": 257,
        "dtype": "float32",
        "has_image_understanding": False,
        "has_audio_understanding": False,
    }
    assert settings == {
        "max_running_requests": 3,
        "max_queued_requests": 5,
        "page_size": 4,
        "max_total_tokens": 512,
        "chunked_prefill_size": 64,
        "enable_cache_report": False,
        "enable_lora": False,
        "tool_call_parser": "none",
        "reasoning_parser": "none",
    }


@pytest.mark.row("S-N-018")
@pytest.mark.parametrize("query", ["", "?dp_rank=0", "?include=all&dp_rank=0", "?x=%00"])
async def test_loads_of_an_idle_server(start: StartApi, query: str) -> None:
    bench = await start(max_running_requests=3)
    answer = (await bench.get(f"/v1/loads{query}")).json()
    assert answer.pop("timestamp") == pytest.approx(time.time(), abs=3600)
    assert answer == {
        "version": __version__,
        "loads": [
            {
                "dp_rank": 0,
                "num_running_reqs": 0,
                "num_waiting_reqs": 0,
                "num_used_tokens": 0,
                "max_total_num_tokens": 512,
                "token_usage": 0.0,
                "cache_hit_rate": 0.0,
                "gen_throughput": 0.0,
                "max_running_requests": 3,
            }
        ],
    }


@pytest.mark.row("S-N-018")
async def test_loads_follow_what_runs_and_waits(
    start: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start("abcde", is_automatic=False, depth=1, max_running_requests=2)
    async with trio.open_nursery() as nursery:
        prompts = [letter * len(PROMPT) for letter in "abcde"]
        nursery.start_soon(lambda: bench.post(COMPLETIONS, prompt=prompts))
        for _ in range(2):
            await bench.finish_step()
        (load,) = (await bench.get("/v1/loads")).json()["loads"]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (2, 3)
        # Each has its prompt and the one token that was fed back; a third is being computed.
        assert load["num_used_tokens"] == 2 * (len(PROMPT) + 2)
        assert load["token_usage"] == load["num_used_tokens"] / 512
        assert load["gen_throughput"] == pytest.approx(4 / 5)
        bench.finish_all()
    (load,) = (await bench.get("/v1/loads")).json()["loads"]
    assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 0)
    assert load["num_used_tokens"] == 0
    await trio.sleep(60)
    (load,) = (await bench.get("/v1/loads")).json()["loads"]
    assert load["gen_throughput"] == 0

"""What every route has: its id, its HEAD, its methods; and the limits that settings make."""

from typing import Any

import orjson
import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import CHAT, COMPLETIONS, ENDPOINTS, JSON, ApiBench, StartApi, body_for


def paths(bench: ApiBench) -> dict[str, set[str]]:
    """Each route as a path, with its methods."""
    found: dict[str, set[str]] = {}
    for rule in bench.app.url_map.iter_rules():
        path = rule.rule.replace("<path:model_id>", "org/fake")
        found.setdefault(path, set()).update(rule.methods or ())
    assert len(found) > 15
    return found


@pytest.mark.row("S-N-002", "S-N-028")
async def test_head_works_wherever_get_does_and_has_no_body(start: StartApi) -> None:
    """Over the route table, so of routes made later as well."""
    bench = await start("ok")
    num_read = 0
    for path, methods in paths(bench).items():
        assert ("HEAD" in methods) == ("GET" in methods), path
        if "GET" not in methods:
            continue
        num_read += 1
        async with bench.wire.connect() as client:
            got = await client.get(path)
            await client.send("HEAD", path)
            head = await client.read_response()
            assert (head.status, head.body) == (got.status, b""), path
            assert head.headers["content-type"] == got.headers["content-type"]
            assert head.headers["x-request-id"] != got.headers["x-request-id"]
            # Nothing of a body was sent: the connection is good for more.
            assert (await client.get("/health")).status == 200
    assert num_read >= 9


@pytest.mark.row("S-N-002")
async def test_every_other_method_is_405_with_what_is_allowed(start: StartApi) -> None:
    bench = await start("ok")
    for path, methods in paths(bench).items():
        allowed = ", ".join(sorted(methods))
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - methods:
            answer = await bench.ask(method, path, data=b"{}", headers=JSON)
            message = f"{method} is not allowed here; use {allowed}"
            check_error(answer, 405, message, code="method_not_allowed")
            assert answer.headers["allow"] == allowed


@pytest.mark.row("S-E-004")
async def test_no_route_has_a_trailing_slash(start: StartApi) -> None:
    bench = await start("ok")
    for path in paths(bench):
        for method in ("GET", "POST"):
            answer = await bench.ask(method, f"{path}/", data=b"{}", headers=JSON)
            if path.startswith("/v1/models/"):  # a model's name may end with one
                assert answer.status in (404, 405)
            else:
                check_error(answer, 404, f"Not found: {method} {path}/", code="not_found")


@pytest.mark.row("S-N-013")
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD", "DELETE"])
async def test_every_answer_has_the_clients_request_id(start: StartApi, method: str) -> None:
    bench = await start("ok", api_key=("key",))
    for headers in ({}, {"Authorization": "Bearer key"}):
        for path in [*paths(bench), "/nothing"]:
            sent = {**JSON, "X-Request-Id": "my-own", **headers}
            answer = await bench.ask(method, path, data=b"{}", headers=sent)
            assert answer.headers["x-request-id"] == "my-own", (method, path)


@pytest.mark.row("S-N-028", "S-N-002")
@pytest.mark.parametrize("path", [*ENDPOINTS, "/generate", "/tokenize", "/v1/detokenize"])
async def test_a_body_over_the_limit_is_413_wherever_there_is_one(
    start: StartApi, path: str
) -> None:
    bench = await start("ok", max_request_bytes=500)
    answer = await bench.ask("POST", path, data=b" " * 501, headers=JSON)
    message = "The request body is larger than 500 bytes."
    check_error(answer, 413, message, code="request_too_large")
    answer = await bench.ask("POST", path, data=b" " * 500, headers=JSON)
    assert answer.status == 400


@pytest.mark.row("S-N-028")
@pytest.mark.parametrize(
    ("path", "fields", "name"),
    [
        (COMPLETIONS, {"logprobs": 4}, "logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 4}, "top_logprobs"),
        (
            "/generate",
            {"text": "a", "return_logprob": True, "top_logprobs_num": 4},
            "top_logprobs_num",
        ),
    ],
)
async def test_max_logprobs_is_the_limit_of_every_endpoint(
    start: StartApi, path: str, fields: dict[str, Any], name: str
) -> None:
    for most, status in ((4, 200), (3, 400), (0, 400)):
        bench = await start("ok", max_logprobs=most)
        body = fields if path == "/generate" else body_for(path, **fields)
        answer = await bench.ask("POST", path, data=orjson.dumps(body), headers=JSON)
        assert answer.status == status, answer.body
        if status == 400:
            assert answer.json()["param"] == name
            assert f"between 0 and {most}" in answer.json()["message"]


@pytest.mark.row("S-N-028")
@pytest.mark.parametrize(
    ("path", "name", "element"),
    [
        (COMPLETIONS, "prompt", "a"),
        (COMPLETIONS, "prompt", [1]),
        ("/generate", "text", "a"),
        ("/generate", "input_ids", [1]),
        ("/tokenize", "prompt", "a"),
        ("/detokenize", "tokens", [1]),
    ],
)
async def test_max_prompts_per_request_is_the_limit_of_every_batch(
    start: StartApi, path: str, name: str, element: Any
) -> None:
    bench = await start("ok", max_prompts_per_request=3)
    for num_prompts, status in ((3, 200), (4, 400)):
        own = body_for(path) if path == COMPLETIONS else {}
        data = orjson.dumps({**own, name: [element] * num_prompts})
        answer = await bench.ask("POST", path, data=data, headers=JSON)
        assert answer.status == status, answer.body
    message = f"Invalid request: {name} has 4 entries, the limit is 3"
    check_error(answer, 400, message, code="invalid_value", param=name)


@pytest.mark.row("S-N-024")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_allow_any_model_serves_a_name_that_nobody_has(start: StartApi, path: str) -> None:
    bench = await start("ok", served_model_name=("big", "small"))
    assert (await bench.post(path, model="gpt-4")).status == 404
    bench = await start("ok", served_model_name=("big", "small"), allow_any_model=True)
    shown = {
        asked: (await bench.post(path, model=asked)).json()["model"]
        for asked in ("gpt-4", "small", "org/fake")
    }
    assert shown == {"gpt-4": "big", "small": "small", "org/fake": "org/fake"}


@pytest.mark.row("S-Q-001", "S-Q-002")
async def test_by_default_slots_are_the_engines_and_the_queue_has_no_limit(
    start: StartApi, nursery: trio.Nursery
) -> None:
    bench = await start("x" * 50, is_automatic=False, num_pages=512)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await bench.post(COMPLETIONS, n=128))

    for _ in range(5):
        nursery.start_soon(ask)
    for _ in range(8):
        await bench.finish_step()
    (load,) = (await bench.get("/v1/loads")).json()["loads"]
    assert load["num_running_reqs"] == load["max_running_requests"] == 64
    assert load["num_waiting_reqs"] == 5 * 128 - 64
    assert not answers, "some were refused"
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    assert [answer.status for answer in answers] == [200] * 5
    bench.check_idle()

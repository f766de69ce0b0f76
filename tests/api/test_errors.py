"""The error envelope on every path, and which of several faults is told first."""

from typing import Any

import orjson
import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import (
    CHAT,
    COMPLETIONS,
    ENDPOINTS,
    JSON,
    ApiBench,
    StartApi,
    body_for,
    in_parallel,
)

GETS = (
    "/health",
    "/v1/models",
    "/v1/models/org/fake",
    "/get_model_info",
    "/model_info",
    "/server_info",
    "/get_server_info",
    "/get_load",
    "/v1/loads",
    "/metrics",
)


@pytest.mark.row("S-E-004")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/nothing",
        "/health/",
        "/v1/models/",
        "/v1/completions/",
        "/v1/responses",
        "/static/app.py",
        "/v1/completions/../models",
        "/HEALTH",
    ],
)
async def test_an_unknown_path_is_404(start: StartApi, method: str, path: str) -> None:
    bench = await start("ok")
    answer = await bench.ask(method, path)
    if method == "HEAD":
        assert answer.status == 404
        return
    check_error(answer, 404, f"Not found: {method} {path}", code="not_found")


@pytest.mark.parametrize("path", ["/health", "/v1/chat/completions", "/nothing"])
async def test_a_websocket_handshake_is_refused_with_the_envelope(
    start: StartApi, path: str
) -> None:
    bench = await start("ok")
    handshake = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ]
    async with bench.wire.connect() as client:
        response = await client.get(path, headers=handshake)
    answer = Answer(response.status, response.headers, response.body)
    message = "Invalid request: WebSocket is not supported"
    check_error(answer, 400, message, code="invalid_value")


async def test_an_unknown_path_is_clipped_and_escaped_where_it_is_quoted(start: StartApi) -> None:
    bench = await start("ok")
    answer = await bench.get("/" + "x" * 1000)
    check_error(answer, 404, f"Not found: GET /{'x' * 63}…", code="not_found")
    answer = await bench.get("/a%0Ab%20%C4%8D")
    check_error(answer, 404, "Not found: GET /a\\nb \\u010d", code="not_found")
    answer = await bench.ask("M" * 100, "/x")
    check_error(answer, 404, f"Not found: {'M' * 64}… /x", code="not_found")


@pytest.mark.row("S-N-002")
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "BREW"])
async def test_a_path_that_is_posted_to_allows_nothing_else(
    start: StartApi, path: str, method: str
) -> None:
    bench = await start("ok")
    answer = await bench.ask(method, path)
    assert answer.status == 405
    assert answer.headers["allow"] == "OPTIONS, POST"
    if method != "HEAD":
        message = f"{method} is not allowed here; use OPTIONS, POST"
        check_error(answer, 405, message, code="method_not_allowed")


@pytest.mark.row("S-N-002", "S-N-028")
@pytest.mark.parametrize("path", GETS)
async def test_a_path_that_is_read_allows_get_and_head(start: StartApi, path: str) -> None:
    bench = await start("ok")
    for method in ("POST", "PUT", "DELETE"):
        answer = await bench.ask(method, path, data=b"{}", headers=JSON)
        message = f"{method} is not allowed here; use GET, HEAD, OPTIONS"
        check_error(answer, 405, message, code="method_not_allowed")
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    client = bench.wire.connect()
    got = await client.get(path)
    await client.send("HEAD", path)
    head = await client.read_response()
    assert (got.status, head.status) == (200, 200)
    assert head.body == b""
    assert head.headers["content-type"] == got.headers["content-type"]
    # The connection is good for more: nothing of a body was sent.
    assert (await client.get("/health")).json() == {"status": "ok"}
    client.close()


@pytest.mark.row("S-E-001", "S-E-003")
async def test_faults_are_told_in_the_contracts_order(start: StartApi) -> None:
    """Each request has one fault less than the one before; the first one left is told."""
    bench = await start(
        "ok",
        is_automatic=False,
        max_request_bytes=2000,
        max_model_len=64,
        max_running_requests=1,
        max_queued_requests=0,
    )
    faulty: dict[str, Any] = {"model": "no-such", "temperature": -1, "messages": [], "prompt": "a"}
    no_queue = {**body_for(CHAT), "messages": [{"role": "user", "content": "a" * 100}]}

    def data(**fields: Any) -> bytes:
        return orjson.dumps({**faulty, **fields})

    async def ask(path: str, method: str, body: bytes, content_type: str) -> str:
        answer = await bench.ask(method, path, data=body, headers={"Content-Type": content_type})
        return f"{answer.status} {answer.json()['error']['code']} {answer.json()['param']}"

    large, broken = b"{" * 3000, b"{"
    text, json = "text/plain", "application/json"
    messages = no_queue["messages"]
    assert await ask("/v1/nothing", "PUT", large, text) == "404 not_found None"
    assert await ask(CHAT, "PUT", large, text) == "405 method_not_allowed None"
    assert await ask(CHAT, "POST", large, text) == "413 request_too_large None"
    assert await ask(CHAT, "POST", broken, text) == "400 unsupported_media_type None"
    assert await ask(CHAT, "POST", broken, json) == "400 invalid_json None"
    async with trio.open_nursery() as nursery:
        # The one slot is taken from here on, so the queue is full.
        nursery.start_soon(bench.wire_request, COMPLETIONS)
        await bench.device.wait_submitted()
        assert await ask(CHAT, "POST", data(), json) == "400 invalid_value messages"
        ok = {"messages": messages}
        assert await ask(CHAT, "POST", data(**ok), json) == "400 invalid_value temperature"
        ok["temperature"] = 1
        assert await ask(CHAT, "POST", data(**ok), json) == "404 model_not_found model"
        ok["model"] = "org/fake"
        assert await ask(CHAT, "POST", data(**ok), json) == "400 invalid_value prompt"
        ok["prompt"] = None
        assert await ask(CHAT, "POST", data(**ok), json) == "503 overloaded None"
        nursery.cancel_scope.cancel()
    bench.finish_all()
    await trio.testing.wait_all_tasks_blocked()
    assert await ask(CHAT, "POST", data(**ok), json) == "400 context_length_exceeded messages"


@pytest.mark.row("S-E-001", "S-E-007", "S-E-008")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_the_envelope_is_sglangs_outside_and_openais_inside(
    start: StartApi, path: str
) -> None:
    bench = await start("ok")
    answer = await bench.post(path, temperature=-1)
    message, kind = "Invalid request: temperature must be non-negative", "invalid_request_error"
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "object": "error",
        "message": message,
        "type": kind,
        "param": "temperature",
        "code": 400,
        "error": {
            "message": message,
            "type": kind,
            "param": "temperature",
            "code": "invalid_value",
        },
    }
    # Compact: no space but those of the message.
    assert b": " not in answer.body.replace(b"request: ", b"")


async def test_an_engine_that_does_not_serve_comes_before_the_fields(start: StartApi) -> None:
    bench = await start("ok", is_loaded=False)
    for path in ENDPOINTS:
        assert (await bench.post_raw(path, b"{")).status == 400
        answer = await bench.post(path, model="no-such", temperature=-1)
        assert (answer.status, answer.json()["error"]["code"]) == (503, "model_loading")


@pytest.mark.row("S-N-013")
@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ("abc-123", True),
        ("~" * 128, True),
        ("!", True),
        ("x" * 129, False),
        ("a b", False),
        ("", False),
        ("č", False),
        ("a\tb", False),
    ],
)
async def test_the_request_id_is_the_clients_if_it_can_be(
    start: StartApi, given: str, is_kept: bool
) -> None:
    bench = await start("ok")
    headers = {"X-Request-Id": given}
    answers: list[Answer] = [
        await bench.ask(method, path, headers=headers)
        for method, path in (("GET", "/health"), ("GET", "/nothing"), ("PUT", COMPLETIONS))
    ]
    for stream in (False, True):
        data = orjson.dumps(body_for(CHAT, stream=stream))
        answers.append(await bench.ask("POST", CHAT, data=data, headers={**JSON, **headers}))
    shown = {answer.headers["x-request-id"] for answer in answers}
    assert shown == {given} if is_kept else len(shown) == len(answers)
    assert all(answer.json().get("id") != given for answer in answers[:4])


@pytest.mark.row("S-E-005")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_bug_is_a_500_that_says_where_to_look_and_no_more(
    start: StartApi, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await start("ok")
    with monkeypatch.context() as patched:
        patched.setattr(type(bench.engine), "check_queue", _raise)
        data = orjson.dumps(body_for(path))
        headers = {**JSON, "X-Request-Id": "id-1"}
        answer = await bench.ask("POST", path, data=data, headers=headers)
    message = "Internal server error (request id-1)"
    check_error(answer, 500, message, code="internal_error")
    assert "id-1" in caplog.text
    assert (await bench.post(path)).texts() == ["ok"]


def _raise(*_: object) -> None:
    raise ZeroDivisionError("a secret of the code")


async def test_errors_at_once_do_not_mix(start: StartApi) -> None:
    bench = await start("ok")

    async def refused(bench: ApiBench, index: int) -> Answer:
        return await bench.post(COMPLETIONS, model=f"no-{index}")

    answers = await in_parallel(*(lambda i=i: refused(bench, i) for i in range(10)))
    for index, answer in enumerate(answers):
        assert answer.json()["message"] == f"The model 'no-{index}' does not exist"

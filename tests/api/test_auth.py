"""Bearer keys: every route needs one, and nobody learns or costs anything without."""

import logging
from typing import Any

import orjson
import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import CHAT, COMPLETIONS, JSON, ApiBench, StartApi, body_for
from tests.api.wire import exchange
from trioserve.api import auth
from trioserve.api.auth import ADMIN_PATHS, OPEN_PATHS, Gate
from trioserve.config import ServerConfig
from trioserve.testing import memory_server
from trioserve.testing.http2 import Http2Client

KEY, OTHER_KEY, ADMIN_KEY = "your-secret-key", "another-key", "admin-key"
MISSING = "Missing API key; send it as the header 'Authorization: Bearer <key>'."
INVALID = "Invalid API key"
UNKNOWN = ("/", "/v1", "/nothing", "/health/", "/metrics/x", "/HEALTH", "/v1/models/")


def bearer(key: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {key}"}


def routes(bench: ApiBench) -> list[tuple[str, str]]:
    """Each route as a path, with each method that it has."""
    rules = [rule for rule in bench.app.url_map.iter_rules() if rule.methods]
    assert len(rules) > 15, "the route table is not what it was"
    return sorted(
        (method, rule.rule.replace("<path:model_id>", "org/fake"))
        for rule in rules
        for method in rule.methods or ()
    )


def check_refused(answer: Answer, message: str, *, method: str = "GET") -> None:
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]
    if method != "HEAD":
        check_error(answer, 401, message, code="invalid_api_key")
    assert answer.status == 401


@pytest.mark.row("S-A-003", "S-A-004", "S-E-002")
@pytest.mark.case(113)
@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, MISSING),
        ({"Authorization": ""}, MISSING),
        (bearer("wrong"), INVALID),
        (bearer(KEY + "x"), INVALID),
        (bearer(KEY[:-1]), INVALID),
        (bearer(KEY.upper()), INVALID),
        (bearer(""), INVALID),
        (bearer("ključ"), INVALID),
        (bearer(KEY, "Basic"), INVALID),
        ({"Authorization": KEY}, INVALID),
        ({"Authorization": f"Bearer{KEY}"}, INVALID),
        ({"X-Api-Key": KEY}, MISSING),
    ],
)
async def test_every_route_needs_the_key_but_those_that_are_open(
    start: StartApi, headers: dict[str, str], message: str
) -> None:
    """Of the route table, so that a route made later is closed unless it is opened here."""
    bench = await start("ok", api_key=(KEY,))
    asked = routes(bench)
    asked += [(method, path) for path in UNKNOWN for method in ("GET", "POST", "DELETE", "BREW")]
    for method, path in asked:
        answer = await bench.ask(method, path, data=b"{}", headers={**JSON, **headers})
        if method == "OPTIONS" or path in ("/health", "/health_generate", "/metrics"):
            assert answer.status == 200, (method, path)
        else:
            check_refused(answer, message, method=method)
    assert not bench.prompts() or bench.prompts() == [(0,)] * 2, "more was computed than a probe"


@pytest.mark.row("S-A-002", "S-X-16")
@pytest.mark.case(113)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
async def test_any_configured_key_opens_every_route_whatever_the_case_of_its_scheme(
    start: StartApi, scheme: str, key: str
) -> None:
    bench = await start("ok", api_key=(KEY, OTHER_KEY))
    for method, path in routes(bench):
        answer = await bench.ask(method, path, data=b"{}", headers={**JSON, **bearer(key, scheme)})
        assert answer.status in (200, 400), (method, path)
    data = orjson.dumps(body_for(CHAT))
    answer = await bench.ask("POST", CHAT, data=data, headers={**JSON, **bearer(key, scheme)})
    assert answer.texts() == ["ok"]


@pytest.mark.row("S-A-001")
@pytest.mark.parametrize(
    "headers",
    [{}, bearer("EMPTY"), bearer("dummy"), {"Authorization": "Basic eA=="}, {"Authorization": ""}],
)
async def test_without_a_configured_key_any_or_none_is_accepted(
    start: StartApi, headers: dict[str, str]
) -> None:
    bench = await start("ok")
    for path in (COMPLETIONS, CHAT):
        data = orjson.dumps(body_for(path))
        answer = await bench.ask("POST", path, data=data, headers={**JSON, **headers})
        assert answer.texts() == ["ok"]
    assert (await bench.ask("GET", "/v1/models", headers=headers)).status == 200


@pytest.mark.row("S-E-002")
async def test_the_key_comes_before_every_other_fault(start: StartApi) -> None:
    bench = await start("ok", api_key=(KEY,), max_request_bytes=1000, is_loaded=False)
    text = {"Content-Type": "text/plain"}
    for method, path, data, headers, after in (
        ("GET", "/nothing", b"", {}, 404),
        ("PUT", CHAT, b"", {}, 405),
        ("POST", CHAT, b"{" * 2000, JSON, 413),
        ("POST", CHAT, b"{}", text, 400),
        ("POST", CHAT, b"{", JSON, 400),
        ("POST", CHAT, b"{}", JSON, 503),
    ):
        answer = await bench.ask(method, path, data=data, headers=headers)
        check_refused(answer, MISSING)
        answer = await bench.ask(method, path, data=data, headers={**headers, **bearer(KEY)})
        assert answer.status == after, (method, path)


async def test_a_body_is_not_waited_for_to_refuse_it(start: StartApi) -> None:
    bench = await start("ok", api_key=(KEY,))
    client = bench.wire.connect()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    raw = await exchange(client, (head + "Content-Length: 33000000\r\n\r\n{").encode())
    headers, _, body = raw.partition(b"\r\n\r\n")
    assert headers.startswith(b"HTTP/1.1 401")
    # Or the client would go on sending to somebody who does not read.
    assert b"connection: close" in headers.lower()
    assert orjson.loads(body)["message"] == MISSING


async def test_a_refusal_does_not_cost_the_connection(start: StartApi) -> None:
    bench = await start("ok", api_key=(KEY,))
    client = bench.wire.connect()
    refused = await client.post_json(CHAT, body_for(CHAT))
    assert refused.status == 401
    served = await client.post_json(CHAT, body_for(CHAT), headers=list(bearer(KEY).items()))
    assert served.status == 200
    client.close()


@pytest.mark.case(113)
@pytest.mark.parametrize("path", ["/health", "/v1/chat/completions", "/nothing"])
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(KEY)])
async def test_a_websocket_handshake_needs_the_key_as_well(
    start: StartApi, path: str, headers: dict[str, str]
) -> None:
    """Quart dispatches it past the hooks that ask for the key."""
    bench = await start("ok", api_key=(KEY,))
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "X-Request-Id": "mine",
    }
    async with bench.wire.connect() as client:
        response = await client.get(path, headers=list({**handshake, **headers}.items()))
    answer = Answer(response.status, response.headers, response.body)
    assert answer.headers["x-request-id"] == "mine"
    if path == "/health" or headers == bearer(KEY):
        message = "Invalid request: WebSocket is not supported"
        check_error(answer, 400, message, code="invalid_value")
    else:
        check_refused(answer, INVALID if headers else MISSING)


@pytest.mark.row("S-N-024")
@pytest.mark.parametrize("path", sorted(ADMIN_PATHS))
@pytest.mark.parametrize(
    ("settings", "opening", "refused"),
    [
        ({}, (None, "any"), ()),
        ({"api_key": (KEY,)}, (KEY,), (None, ADMIN_KEY)),
        ({"admin_api_key": ADMIN_KEY}, (ADMIN_KEY,), (None, KEY)),
        ({"api_key": (KEY,), "admin_api_key": ADMIN_KEY}, (ADMIN_KEY,), (None, KEY, "x")),
    ],
)
async def test_an_admin_endpoint_needs_the_admin_key_if_there_is_one(
    start: StartApi,
    path: str,
    settings: dict[str, Any],
    opening: tuple[str | None, ...],
    refused: tuple[str | None, ...],
) -> None:
    bench = await start("ok", **settings)
    for key in (*opening, *refused):
        headers = {**JSON, **({} if key is None else bearer(key))}
        answer = await bench.ask("POST", path, data=b'{"rid": "none"}', headers=headers)
        if key in opening:
            assert answer.status == 200
        else:
            check_refused(answer, MISSING if key is None else INVALID)


@pytest.mark.row("S-N-024")
async def test_the_admin_key_opens_what_the_ordinary_key_opens_and_closes_nothing(
    start: StartApi,
) -> None:
    bench = await start("ok", api_key=(KEY,), admin_api_key=ADMIN_KEY)
    assert (await bench.ask("GET", "/v1/models", headers=bearer(ADMIN_KEY))).status == 200
    assert (await bench.ask("GET", "/v1/models", headers=bearer("wrong"))).status == 401
    bench = await start("ok", admin_api_key=ADMIN_KEY)
    for headers in ({}, bearer("anything"), bearer(ADMIN_KEY)):
        assert (await bench.ask("GET", "/v1/models", headers=headers)).status == 200


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def record(given: bytes, known: bytes) -> bool:
        compared.append((given, known))
        return given == known

    monkeypatch.setattr(auth, "compare_digest", record)
    gate = Gate.of(ServerConfig(api_key=(KEY, OTHER_KEY, "k" * 100)))
    for key in (KEY, "k" * 100, "x", "y" * 10_000):
        compared.clear()
        gate.refusal("GET", "/v1/models", f"Bearer {key}")
        assert len(compared) == 3, "it stopped at the first that matched"
        assert {len(side) for pair in compared for side in pair} == {32}


def test_what_is_open_is_open_to_everybody_by_name_alone() -> None:
    assert {"/health", "/health_generate", "/metrics"} == OPEN_PATHS
    assert not OPEN_PATHS & ADMIN_PATHS


async def test_no_key_is_ever_shown(
    start: StartApi, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "trioserve")
    bench = await start("ok", api_key=(KEY, OTHER_KEY), admin_api_key=ADMIN_KEY)
    shown = [
        repr(bench.engine.config),
        str(bench.engine.config),
        repr(Gate.of(bench.engine.config)),
    ]
    for method, path in routes(bench):
        for key in (KEY, "wrong-" + KEY, ADMIN_KEY):
            answer = await bench.ask(method, path, data=b"{}", headers={**JSON, **bearer(key)})
            shown.append(f"{answer.headers} {answer.body!r}")
    shown += [str(record.msg) for record in caplog.records]
    for key in (KEY, OTHER_KEY, ADMIN_KEY):
        assert not [text for text in shown if key in text]


@pytest.mark.case(113)
async def test_http2_needs_the_key_as_well(
    start: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lockstep would have both sides wait for the other to read.
    monkeypatch.setattr(memory_server, "lockstep_stream_pair", trio.testing.memory_stream_pair)
    bench = await start("ok", api_key=(KEY,))
    connection = bench.wire.connect()
    client = Http2Client(connection.stream)
    client._h2.initiate_connection()
    await client._flush()
    with trio.fail_after(5):
        for path, status in (("/v1/models", 401), ("/nothing", 401), ("/health", 200)):
            assert (await client.get(path)).status == status
        # Its body has no length, so that over HTTP/1.1 the connection would end with it.
        stream_id = await client.send("POST", CHAT, is_ended=False)
        assert (await client.wait_over(stream_id)).status == 401
        assert (await client.get("/health")).status == 200
    connection.close()

"""Cross-origin requests: nothing unless configured, and then on every answer."""

import orjson
import pytest

from tests.api.answers import Answer
from tests.api.kit import CHAT, ENDPOINTS, JSON, ApiBench, StartApi, body_for

PAGE = "https://page.example"
OTHER = "https://other.example"


def cors_headers(answer: Answer) -> dict[str, str]:
    return {
        name: value
        for name, value in answer.headers.items()
        if name.startswith("access-control-") or name == "vary"
    }


async def preflight(bench: ApiBench, path: str, origin: str | None = PAGE) -> Answer:
    headers = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
        **({} if origin is None else {"Origin": origin}),
    }
    return await bench.ask("OPTIONS", path, headers=headers)


async def every_kind(bench: ApiBench, origin: str) -> list[Answer]:
    """An answer, a stream, and each sort of error."""
    headers = {"Origin": origin}
    posted = {**JSON, **headers}
    answers = [
        await bench.ask("GET", "/health", headers=headers),
        await bench.ask("GET", "/nothing", headers=headers),
        await bench.ask("DELETE", CHAT, headers=headers),
        await bench.ask("POST", CHAT, data=b"{", headers=posted),
    ]
    for stream in (False, True):
        data = orjson.dumps(body_for(CHAT, stream=stream))
        answers.append(await bench.ask("POST", CHAT, data=data, headers=posted))
    assert [answer.status for answer in answers] == [200, 404, 405, 400, 200, 200]
    return answers


@pytest.mark.row("S-N-024")
async def test_without_the_setting_there_is_no_cors_header(start: StartApi) -> None:
    bench = await start("ok")
    for answer in (*await every_kind(bench, PAGE), await preflight(bench, CHAT)):
        assert cors_headers(answer) == {}


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/models", "/abort_request"])
async def test_options_says_what_is_allowed_and_asks_for_no_key(start: StartApi, path: str) -> None:
    bench = await start("ok", api_key=("key",), admin_api_key="admin")
    answer = await bench.ask("OPTIONS", path)
    assert (answer.status, answer.body) == (200, b"")
    allowed = "GET, HEAD, OPTIONS" if path == "/v1/models" else "OPTIONS, POST"
    assert ", ".join(sorted(answer.headers["allow"].split(", "))) == allowed
    assert answer.headers["x-request-id"]


@pytest.mark.row("S-N-024")
async def test_a_configured_origin_may_read_every_answer(start: StartApi) -> None:
    bench = await start("ok", cors_allow_origin=(OTHER, PAGE))
    for origin in (PAGE, OTHER):
        for answer in await every_kind(bench, origin):
            assert cors_headers(answer) == {
                "access-control-allow-origin": origin,
                "access-control-expose-headers": "X-Request-Id, Retry-After",
                "vary": "Origin",
            }


@pytest.mark.parametrize(
    "origin", ["https://page.example.evil", "http://page.example", "https://PAGE.example", "null"]
)
async def test_another_origin_gets_nothing_and_no_cache_mixes_them_up(
    start: StartApi, origin: str
) -> None:
    bench = await start("ok", cors_allow_origin=(PAGE,))
    for answer in (*await every_kind(bench, origin), await preflight(bench, CHAT, origin)):
        assert cors_headers(answer) == {"vary": "Origin"}


async def test_a_request_without_an_origin_gets_nothing(start: StartApi) -> None:
    bench = await start("ok", cors_allow_origin=(PAGE,))
    assert cors_headers(await bench.get("/health")) == {"vary": "Origin"}
    assert cors_headers(await preflight(bench, CHAT, None)) == {"vary": "Origin"}


@pytest.mark.row("S-N-024")
@pytest.mark.parametrize("origins", [("*",), (PAGE, "*")])
async def test_a_star_is_every_origin_and_never_with_credentials(
    start: StartApi, origins: tuple[str, ...]
) -> None:
    bench = await start("ok", cors_allow_origin=origins)
    for answer in (*await every_kind(bench, "https://any.where"), await preflight(bench, CHAT)):
        assert cors_headers(answer)["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers
        assert "vary" not in answer.headers


@pytest.mark.row("S-N-024")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/generate", "/abort_request"])
async def test_a_preflight_needs_no_key_and_allows_one_to_be_sent(
    start: StartApi, path: str
) -> None:
    bench = await start("ok", api_key=("key",), cors_allow_origin=(PAGE,))
    answer = await preflight(bench, path)
    assert (answer.status, answer.body) == (200, b"")
    allowed = cors_headers(answer)
    assert allowed["access-control-allow-origin"] == PAGE
    assert "POST" in allowed["access-control-allow-methods"].split(", ")
    # A wildcard alone would leave Authorization out; OpenAI's client sends more than is named.
    named = allowed["access-control-allow-headers"].split(", ")
    assert {"Authorization", "Content-Type", "X-Request-Id", "*"} <= set(named)
    assert int(allowed["access-control-max-age"]) > 0


async def test_a_refused_key_can_be_read_by_the_page_that_sent_it(start: StartApi) -> None:
    bench = await start("ok", api_key=("key",), cors_allow_origin=(PAGE,))
    answer = await bench.ask("GET", "/v1/models", headers={"Origin": PAGE})
    assert answer.status == 401
    assert answer.headers["access-control-allow-origin"] == PAGE

"""Bodies that are too large, or that do not come."""

import pytest
import trio
import trio.testing

from tests.api.answers import Answer, check_error
from tests.api.kit import COMPLETIONS, StartApi
from tests.api.wire import exchange


@pytest.mark.row("S-N-002", "S-N-028")
@pytest.mark.parametrize("has_length", [True, False])
async def test_a_body_over_the_limit_is_413_by_its_length_or_while_it_is_read(
    start: StartApi, has_length: bool
) -> None:
    bench = await start("ok", max_request_bytes=1000)
    client = bench.wire.connect()
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        + ("Content-Length: 5000" if has_length else "Transfer-Encoding: chunked")
        + "\r\n\r\n"
    )
    # With a length, the answer comes before any of the body was sent.
    body = b"" if has_length else b"400\r\n" + b" " * 0x400 + b"\r\n"
    raw = await exchange(client, head.encode() + body)
    headers, _, payload = raw.partition(b"\r\n\r\n")
    assert headers.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in headers.lower()
    answer = Answer(413, {"content-type": "application/json"}, payload)
    message = "The request body is larger than 1000 bytes."
    check_error(answer, 413, message, code="request_too_large")


async def test_a_body_that_does_not_arrive_is_408(
    start: StartApi, autojump_clock: trio.testing.MockClock
) -> None:
    bench = await start("ok")
    client = bench.wire.connect()
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        "Content-Length: 100\r\n\r\n{"
    )
    raw = await exchange(client, head.encode())
    headers, _, payload = raw.partition(b"\r\n\r\n")
    assert headers.startswith(b"HTTP/1.1 408")
    answer = Answer(408, {"content-type": "application/json"}, payload)
    message = "The request body did not arrive within 60 s."
    check_error(answer, 408, message, code="request_timeout")
    assert trio.current_time() >= 60

"""A large body is looked at off the event loop, and answered like any other."""

import threading
from typing import Any

import pytest
from quart_trio import QuartTrio

from tests.api.kit import COMPLETIONS, StartApi
from trioserve.api.body import LARGE_BODY_BYTES, read_body
from trioserve.errors import Unavailable


async def thread_of_parse(num_bytes: int) -> int:
    def parse(body: dict[str, Any]) -> int:
        assert body == {"text": "x" * num_bytes}
        return threading.get_ident()

    async with QuartTrio("test").test_request_context(
        "/", method="POST", json={"text": "x" * num_bytes}
    ):
        return await read_body(parse, lambda: None)


async def test_only_large_bodies_are_parsed_in_another_thread() -> None:
    assert await thread_of_parse(100) == threading.get_ident()
    assert await thread_of_parse(LARGE_BODY_BYTES) != threading.get_ident()


async def test_a_server_that_does_not_serve_says_so_before_any_field_is_looked_at() -> None:
    def refuse() -> None:
        raise Unavailable("The model is loading.", code="model_loading")

    def parse(_: dict[str, Any]) -> None:
        pytest.fail("a field was looked at")

    async with QuartTrio("test").test_request_context("/", method="POST", json={}):
        with pytest.raises(Unavailable):
            await read_body(parse, refuse)


@pytest.mark.parametrize("ending", ["", "x"])
async def test_a_large_body_is_answered_like_any_other(start: StartApi, ending: str) -> None:
    bench = await start("ok")
    prompt: Any = [97] * (LARGE_BODY_BYTES // 2) + ([ending] if ending else [])
    answer = await bench.post(COMPLETIONS, prompt=prompt)
    assert answer.status == 400
    code = "invalid_type" if ending else "context_length_exceeded"
    assert answer.json()["error"]["code"] == code

"""A bug that shows when the headers of a stream are out already."""

import orjson
import pytest

from tests.api.kit import CHAT, COMPLETIONS, JSON, StartApi, body_for
from tests.api.native import GENERATE
from trioserve.api.chat_shape import ChatShape
from trioserve.api.completion_shape import CompletionShape
from trioserve.api.native_reply import NativeFrame


def fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a secret of the code")


@pytest.mark.row("S-N-005")
@pytest.mark.parametrize(
    ("path", "shape"), [(COMPLETIONS, CompletionShape), (CHAT, ChatShape), (GENERATE, NativeFrame)]
)
async def test_a_bug_inside_a_stream_is_told_in_the_stream(
    start: StartApi,
    path: str,
    shape: type,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = await start("ok")
    body = {"text": "Once"} if path == GENERATE else body_for(path)
    monkeypatch.setattr(shape, "payload" if path == GENERATE else "finish", fail)
    headers = {**JSON, "X-Request-Id": "id-1"}
    data = orjson.dumps({**body, "stream": True})
    answer = await bench.ask("POST", path, data=data, headers=headers)
    assert answer.status == 200
    *_, error, done, end = answer.body.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    told = orjson.loads(error.removeprefix("data: "))
    message = "Internal server error (request id-1)"
    assert (told["message"], told["code"]) == (message, 500)
    assert told["error"]["code"] == "internal_error"
    assert "a secret of the code" in caplog.text
    assert await bench.metric("requests_total", endpoint=path, status="500") == 1
    bench.check_idle()

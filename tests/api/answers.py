"""The answers of the API, read as clients read them, and the one form of its errors."""

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import frozen


@frozen
class Answer:
    """A whole response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)

    def events(self) -> list[dict[str, Any]]:
        """The JSON events of a stream that ended as it must."""
        assert self.status == 200, self.body
        blocks = self.body.decode().split("\n\n")
        assert blocks[-2:] == ["data: [DONE]", ""], blocks[-3:]
        assert blocks.count("data: [DONE]") == 1
        for block in blocks[:-1]:
            assert block.startswith("data: "), block
            assert "\n" not in block, block
            assert "\r" not in block, block
        return [orjson.loads(block.removeprefix("data: ")) for block in blocks[:-2]]

    def texts(self) -> list[str]:
        """Each choice's text, streamed or not."""
        is_stream = self.headers["content-type"].startswith("text/event-stream")
        choices = [
            choice
            for reply in (self.events() if is_stream else [self.json()])
            for choice in reply["choices"]
        ]
        texts = [""] * len({choice["index"] for choice in choices})
        for choice in choices:
            texts[choice["index"]] += text_of(choice)
        return texts


def text_of(choice: Mapping[str, Any]) -> str:
    """The text of a choice in a reply or a chunk of either endpoint."""
    if "text" in choice:
        return str(choice["text"])
    return str((choice.get("message") or choice["delta"]).get("content", ""))


def check_error(
    answer: Answer,
    status: int,
    message: str,
    *,
    code: str,
    param: str | None = None,
) -> None:
    """The whole envelope, byte for byte what the contract says."""
    kind = {
        400: "invalid_request_error",
        404: "not_found_error",
        405: "invalid_request_error",
        408: "invalid_request_error",
        413: "invalid_request_error",
        500: "internal_server_error",
        503: "service_unavailable_error",
    }[status]
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "object": "error",
        "message": message,
        "type": kind,
        "param": param,
        "code": status,
        "error": {"message": message, "type": kind, "param": param, "code": code},
    }

"""The answers of the API, read as clients read them, and the one form of its errors."""

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import define, frozen


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

    def pieces(self) -> list[dict[str, Any]]:
        """The choices of all chunks, or those of the one reply, as they came."""
        is_stream = self.headers["content-type"].startswith("text/event-stream")
        replies = self.events() if is_stream else [self.json()]
        return [choice for reply in replies for choice in reply["choices"]]

    def texts(self) -> list[str]:
        """Each choice's text, streamed or not."""
        return [choice.text for choice in self.joined()]

    def joined(self) -> list["JoinedChoice"]:
        """Each choice, streamed or not, with its pieces put together."""
        choices: dict[int, JoinedChoice] = {}
        for piece in self.pieces():
            choices.setdefault(piece["index"], JoinedChoice()).add(piece)
        assert sorted(choices) == list(range(len(choices)))
        return [choices[index] for index in range(len(choices))]


@define
class JoinedChoice:
    """One choice of an answer; equal for an answer and the stream of it."""

    text: str = ""
    logprobs: dict[str, list[Any]] | None = None
    finish: tuple[str, Any] | None = None
    """Reason and matched stop."""
    hidden_state: list[float] | None = None

    def add(self, piece: Mapping[str, Any]) -> None:
        """The next piece of this choice."""
        self.text += text_of(piece)
        entries = dict(piece["logprobs"] or {})
        entries.pop("refusal", None)
        if entries:
            before = self.logprobs or {}
            self.logprobs = {name: before.get(name, []) + new for name, new in entries.items()}
        if piece["finish_reason"] is not None:
            assert self.finish is None, "a choice has finished twice"
            self.finish = (piece["finish_reason"], piece["matched_stop"])
        state = piece.get("hidden_states", piece.get("delta", {}).get("hidden_states"))
        if state is not None:
            assert self.hidden_state is None, "a choice has two hidden states"
            self.hidden_state = state


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
        401: "authentication_error",
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

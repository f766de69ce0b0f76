"""Every non-2xx answer: one envelope, and the one table from errors to HTTP status."""

from collections.abc import Mapping
from typing import Any

import orjson
from attrs import field, frozen

from trioserve.engine.state import EngineState, refusal
from trioserve.errors import (
    EngineDead,
    ModelNotFound,
    RequestError,
    TrioserveError,
    Unavailable,
)
from trioserve.text.chat_template import ChatTemplateError, ChatTemplateMissing

MAX_QUOTED_CHARS = 64

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    500: "internal_server_error",
    503: "service_unavailable_error",
}


def quoted(text: str) -> str:
    """Client input as it may be shown in a message: clipped, and never more than one line."""
    clipped = text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS] + "…"
    return clipped.encode("unicode_escape").decode() if not clipped.isprintable() else clipped


@frozen
class ApiError:
    """One error as clients see it: SGLang's shape on the outside, OpenAI's under `error`."""

    status: int
    message: str
    code: str
    param: str | None = None
    headers: Mapping[str, str] = field(factory=dict)

    def body(self) -> bytes:
        """The envelope, as compact JSON."""
        kind = _TYPES[self.status]
        shared: dict[str, Any] = {"message": self.message, "type": kind, "param": self.param}
        return orjson.dumps(
            {
                "object": "error",
                **shared,
                "code": self.status,
                "error": {**shared, "code": self.code},
            }
        )


def invalid(detail: str, param: str | None, code: str = "invalid_value") -> RequestError:
    """A 400 whose message carries the usual prefix."""
    return RequestError(f"Invalid request: {detail}", param=param, code=code)


def internal_error(request_id: str) -> ApiError:
    """A bug or a failed engine. Never says more than where to look in the log."""
    return ApiError(500, f"Internal server error (request {request_id})", "internal_error")


def to_api_error(error: TrioserveError, request_id: str) -> ApiError:
    """The answer to what trioserve raises on purpose."""
    match error:
        case RequestError():
            return ApiError(400, error.message, error.code, error.param)
        case ModelNotFound():
            message = f"The model '{quoted(error.model)}' does not exist"
            return ApiError(404, message, "model_not_found", "model")
        case Unavailable():
            retry = {"Retry-After": str(error.retry_after_s)}
            return ApiError(503, error.message, error.code, headers=retry)
        case EngineDead():
            return to_api_error(refusal(EngineState.DEAD), request_id)
        case ChatTemplateError():
            message = f"Invalid request: chat template error: {error.detail}"
            return ApiError(400, message, "invalid_value", "messages")
        case ChatTemplateMissing():
            message = (
                "Invalid request: this model has no chat template; use prompt or start the server "
                "with --chat-template"
            )
            return ApiError(400, message, "invalid_value", "messages")
        case _:  # RequestFailed, and what nobody thought of
            return internal_error(request_id)

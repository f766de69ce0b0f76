"""What is raised while a request is handled, as its answer."""

import quart
import structlog
from quart import Quart, Response
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from trioserve.api.accounting import RequestAccount, current_account
from trioserve.api.errors import ApiError, internal_error, quoted, to_api_error
from trioserve.errors import TrioserveError

log = structlog.get_logger("trioserve.api")

BODY_TIMEOUT_S = 60


def error_response(error: ApiError, account: RequestAccount) -> Response:
    """The envelope as a response, noted in the request's account."""
    account.error = error.message
    return Response(
        error.body(),
        status=error.status,
        headers=dict(error.headers),
        content_type="application/json",
    )


def add_error_handlers(app: Quart) -> None:
    """Answer whatever a handler, or Quart itself, raises."""

    @app.errorhandler(TrioserveError)
    async def answer_our_error(error: TrioserveError) -> Response:
        account = current_account()
        answer = to_api_error(error, account.request_id)
        if answer.status == 500:
            log.error("request failed", id=account.request_id, error=str(error))
        return error_response(answer, account)

    @app.errorhandler(HTTPException)
    async def answer_http_error(error: HTTPException) -> Response:
        account = current_account()
        return error_response(_http_error(error, account), account)

    @app.errorhandler(Exception)
    async def answer_bug(error: Exception) -> Response:
        account = current_account()
        log.error("internal error", id=account.request_id, exc_info=error)
        return error_response(internal_error(account.request_id), account)


def _http_error(error: HTTPException, account: RequestAccount) -> ApiError:
    """What Quart itself refuses: unknown paths and methods, bodies too large or too slow."""
    close = {"Connection": "close"}
    match error.code:
        case 404:
            method, path = quoted(quart.request.method), quoted(quart.request.path)
            return ApiError(404, f"Not found: {method} {path}", "not_found")
        case 405:
            assert isinstance(error, MethodNotAllowed), f"405 from {error!r}"
            allowed = ", ".join(sorted(error.valid_methods or ()))
            message = f"{quoted(quart.request.method)} is not allowed here; use {allowed}"
            return ApiError(405, message, "method_not_allowed", headers={"Allow": allowed})
        case 408:
            message = f"The request body did not arrive within {BODY_TIMEOUT_S} s."
            return ApiError(408, message, "request_timeout", headers=close)
        case 413:
            limit = quart.current_app.config["MAX_CONTENT_LENGTH"]
            message = f"The request body is larger than {limit} bytes."
            return ApiError(413, message, "request_too_large", headers=close)
        case code if code is not None and 400 <= code < 500:
            return ApiError(400, f"Invalid request: {error.name}", "invalid_value")
        case _:
            return internal_error(account.request_id)

"""`create_app`: routes, the error envelope, and what happens around every request."""

import logging
from typing import Any, cast

import orjson
import quart
import structlog
from prometheus_client import Counter
from quart import Response
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from trioserve.api.accounting import RequestAccount, current_account, open_account
from trioserve.api.chat import chat
from trioserve.api.completions import complete
from trioserve.api.connection import ScopedApp, request_stack
from trioserve.api.errors import ApiError, internal_error, quoted, to_api_error
from trioserve.api.information import health, list_models, loads, model_info, retrieve_model
from trioserve.api.metrics import CONTENT_TYPE, render_metrics
from trioserve.api.websocket import RefusedWebsocket
from trioserve.engine.engine import Engine
from trioserve.errors import TrioserveError

log = structlog.get_logger("trioserve.api")

BODY_TIMEOUT_S = 60


def create_app(engine: Engine) -> ScopedApp:
    """The HTTP app around an engine, which the caller runs. Makes no task and opens nothing."""
    # The name is that of Quart's own logger; it would also locate static files, were there any.
    app = ScopedApp("trioserve.quart", static_folder=None)
    app.asgi_websocket_class = cast("Any", RefusedWebsocket)
    app.config["MAX_CONTENT_LENGTH"] = engine.config.max_request_bytes
    app.config["BODY_TIMEOUT"] = BODY_TIMEOUT_S
    app.url_map.strict_slashes = True
    app.url_map.merge_slashes = False
    # Quart logs every exception it turns into a 500; ours says the same with the request's id.
    app.logger.setLevel(logging.CRITICAL)
    requests = Counter(
        "trioserve_requests",
        "HTTP requests by route and outcome",
        ["endpoint", "status"],
        registry=engine.statistics.registry,
    )
    _add_hooks(app, requests)
    _add_error_handlers(app)
    _add_routes(app, engine)
    return app


def _json(payload: dict[str, Any]) -> Response:
    return Response(orjson.dumps(payload), content_type="application/json")


def _add_routes(app: ScopedApp, engine: Engine) -> None:
    @app.post("/v1/completions")
    async def post_completions() -> Response:
        return await complete(engine)

    @app.post("/v1/chat/completions")
    async def post_chat_completions() -> Response:
        return await chat(engine)

    @app.get("/v1/models")
    async def get_models() -> Response:
        return _json(list_models(engine))

    @app.get("/v1/models/<path:model_id>")
    async def get_model(model_id: str) -> Response:
        return _json(retrieve_model(engine, model_id))

    @app.get("/health")
    async def get_health() -> Response:
        return _json(health(engine))

    @app.get("/get_model_info")
    @app.get("/model_info")
    async def get_model_info() -> Response:
        return _json(model_info(engine))

    @app.get("/v1/loads")
    async def get_loads() -> Response:
        return _json(loads(engine))

    @app.get("/metrics")
    async def get_metrics() -> Response:
        return Response(render_metrics(engine), content_type=CONTENT_TYPE)


def _add_hooks(app: ScopedApp, requests: Counter) -> None:
    @app.before_request
    async def open_request_account() -> None:
        # On the stack first, so closed last: the engine's stream has ended by then.
        request_stack().callback(open_account(requests).close)

    @app.after_request
    async def finish(response: Response) -> Response:
        account = current_account()
        response.headers["X-Request-Id"] = account.request_id
        is_stream = response.content_type.startswith("text/event-stream")
        if response.status_code >= 400:
            account.outcome = str(response.status_code)
        elif not is_stream:
            account.outcome = "ok"
        return response


def _answer(error: ApiError, account: RequestAccount) -> Response:
    account.error = error.message
    return Response(
        error.body(),
        status=error.status,
        headers=dict(error.headers),
        content_type="application/json",
    )


def _add_error_handlers(app: ScopedApp) -> None:
    @app.errorhandler(TrioserveError)
    async def answer_our_error(error: TrioserveError) -> Response:
        account = current_account()
        answer = to_api_error(error, account.request_id)
        if answer.status == 500:
            log.error("request failed", id=account.request_id, error=str(error))
        return _answer(answer, account)

    @app.errorhandler(HTTPException)
    async def answer_http_error(error: HTTPException) -> Response:
        account = current_account()
        return _answer(_http_error(error, account), account)

    @app.errorhandler(Exception)
    async def answer_bug(error: Exception) -> Response:
        account = current_account()
        log.error("internal error", id=account.request_id, exc_info=error)
        return _answer(internal_error(account.request_id), account)


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

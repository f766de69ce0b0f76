"""`create_app`: the routes, and what they stand on."""

import logging
from functools import partial
from typing import Any, cast

import orjson
import quart
from prometheus_client import Counter
from quart import Response

from trioserve.api.abort import abort_request
from trioserve.api.auth import Gate
from trioserve.api.chat import chat
from trioserve.api.completions import complete
from trioserve.api.connection import ScopedApp
from trioserve.api.cors import CorsPolicy
from trioserve.api.embeddings import embed
from trioserve.api.error_answers import BODY_TIMEOUT_S, add_error_handlers
from trioserve.api.flush import flush_cache
from trioserve.api.health_generate import health_generate
from trioserve.api.hooks import add_hooks
from trioserve.api.information import health, list_models, loads, model_info, retrieve_model
from trioserve.api.metrics import CONTENT_TYPE, render_metrics
from trioserve.api.native_generate import native_generate
from trioserve.api.openapi.document import document_of
from trioserve.api.openapi.page import PAGE_HEADERS, PAGE_TYPE, render_page
from trioserve.api.server_info import get_load, server_info
from trioserve.api.tokenization import detokenize, tokenize
from trioserve.api.websocket import RefusedWebsocket
from trioserve.engine.engine import Engine


def create_app(engine: Engine) -> ScopedApp:
    """The HTTP app around an engine, which the caller runs. Makes no task and opens nothing."""
    # The name is that of Quart's own logger; it would also locate static files, were there any.
    app = ScopedApp("trioserve.quart", static_folder=None)
    gate = Gate.of(engine.config)
    app.asgi_websocket_class = cast("Any", partial(RefusedWebsocket, gate))
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
    add_hooks(app, requests, gate, CorsPolicy(engine.config.cors_allow_origin))
    add_error_handlers(app)
    _add_routes(app, engine)
    return app


def _json(payload: Any) -> Response:
    return Response(orjson.dumps(payload), content_type="application/json")


def _add_routes(app: ScopedApp, engine: Engine) -> None:
    @app.post("/v1/completions")
    async def post_completions() -> Response:
        return await complete(engine)

    @app.post("/v1/chat/completions")
    async def post_chat_completions() -> Response:
        return await chat(engine)

    @app.post("/v1/embeddings")
    async def post_embeddings() -> Response:
        return await embed(engine)

    @app.post("/generate")
    @app.put("/generate")
    async def post_generate() -> Response:
        return await native_generate(engine)

    @app.post("/tokenize")
    @app.post("/v1/tokenize")
    async def post_tokenize() -> Response:
        return await tokenize(engine)

    @app.post("/detokenize")
    @app.post("/v1/detokenize")
    async def post_detokenize() -> Response:
        return await detokenize(engine)

    @app.get("/v1/models")
    async def get_models() -> Response:
        return _json(list_models(engine))

    @app.get("/v1/models/<path:model_id>")
    async def get_model(model_id: str) -> Response:
        return _json(retrieve_model(engine, model_id))

    @app.get("/health")
    async def get_health() -> Response:
        return _json(health(engine))

    @app.get("/health_generate")
    async def get_health_generate() -> Response:
        return _json(await health_generate(engine))

    @app.get("/get_model_info")
    @app.get("/model_info")
    async def get_model_info() -> Response:
        return _json(model_info(engine))

    @app.get("/server_info")
    @app.get("/get_server_info")
    async def get_server_info() -> Response:
        return _json(server_info(engine))

    @app.get("/get_load")
    async def get_get_load() -> Response:
        return _json(get_load(engine))

    @app.get("/v1/loads")
    async def get_loads() -> Response:
        return _json(loads(engine))

    @app.post("/abort_request")
    async def post_abort_request() -> Response:
        return await abort_request(engine)

    @app.get("/flush_cache")
    @app.post("/flush_cache")
    async def post_flush_cache() -> Response:
        return await flush_cache(engine)

    @app.get("/openapi.json")
    async def get_openapi() -> Response:
        return _json(document_of(engine))

    @app.get("/docs")
    async def get_docs() -> Response:
        page = render_page(document_of(engine), quart.request.host_url)
        return Response(page, content_type=PAGE_TYPE, headers=PAGE_HEADERS)

    @app.get("/metrics")
    async def get_metrics() -> Response:
        return Response(render_metrics(engine), content_type=CONTENT_TYPE)

"""`make_document`: the OpenAPI 3.1 document of one server."""

from typing import Any

from attrs import frozen

from trioserve import __version__
from trioserve.api.auth import ADMIN_PATHS, OPEN_PATHS
from trioserve.api.openapi.generation_replies import GENERATION_REPLIES
from trioserve.api.openapi.operations import JSON, OPERATIONS, TAGS, Operation
from trioserve.api.openapi.other_replies import OTHER_REPLIES
from trioserve.api.openapi.shapes import STRING, an_object, ref
from trioserve.api.schema.declare import object_schema
from trioserve.api.schema.kinds import JsonSchema
from trioserve.api.schema.limits import Limits, limits_of
from trioserve.api.schema.refusals import refusals_of
from trioserve.config import ServerConfig
from trioserve.engine.engine import Engine

_KEY = "key"
EVENTS = "text/event-stream"

REFUSALS_FOLLOW = "400 also for values that no schema can tell from right ones:"
"""In a description, comes before the list of them."""

_ABOUT = """\
An HTTP server for language models that speaks OpenAI's API. Every request is a scope: close the \
connection, and what was computed for it is given back within a step.

Unknown fields of a body are ignored, and null is the same as leaving a field out. `HEAD` works \
wherever `GET` does. Every answer has an `X-Request-Id`, the client's own if it sent one. Every \
error has the same body: see `Error`."""

_STREAMS = (
    "With `stream` the answer comes as server-sent events: the last one is `[DONE]`, and an error "
    "after the first is one event with the error's body."
)

_ERRORS = {
    400: "A body that is not JSON, a field that is wrong, fields that do not go together, or the "
    "wrong moment for this.",
    401: "No key, or a wrong one.",
    404: "No such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    500: "A fault of the server; its log has more under the request's id.",
    503: "Not now: the model loads, the queue is full, or the server is going down.",
}

_ERROR_HEADERS = {
    401: {"WWW-Authenticate": {"schema": STRING, "description": "Always `Bearer`."}},
    503: {"Retry-After": {"schema": STRING, "description": "Seconds to wait."}},
}


@frozen
class ModelFacts:
    """What the document says about the model of one kind."""

    name: str
    limits: Limits


def document_of(engine: Engine) -> dict[str, Any]:
    """The document of a running server. Raises Unavailable until its models are loaded."""
    facts = {
        model.info.is_generation: ModelFacts(
            model.names[0], limits_of(engine.config, model.info.vocab_size)
        )
        for model in reversed(engine.directory.models)
    }
    # A server without one kind of model refuses every body for it, whatever is in it.
    (any_facts, *_) = facts.values()
    return make_document(engine.config, facts.get(True, any_facts), facts.get(False, any_facts))


def make_document(
    config: ServerConfig, generation: ModelFacts, embedding: ModelFacts
) -> dict[str, Any]:
    """The document, as JSON, of a server with these models."""
    bodies: dict[str, JsonSchema] = {}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        facts = embedding if operation.is_embedding else generation
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation, config, facts)
        if operation.body is not None:
            bodies[operation.body.__name__] = object_schema(operation.body, facts.limits)
    components: dict[str, Any] = {"schemas": {**bodies, **GENERATION_REPLIES, **OTHER_REPLIES}}
    if config.api_key or config.admin_api_key:
        components["securitySchemes"] = {_KEY: {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "trioserve", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": doc} for name, doc in TAGS.items()],
        "paths": paths,
        "components": components,
    }


def _describe(operation: Operation, config: ServerConfig, facts: ModelFacts) -> dict[str, Any]:
    needs_key = _needs_key(operation.path, config)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "security": [{_KEY: []}] if needs_key else [],
        "responses": _responses(operation, needs_key),
    }
    doc = _doc(operation, config)
    if doc:
        described["description"] = doc
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body is not None:
        content: dict[str, Any] = {"schema": ref(operation.body.__name__)}
        if operation.example is not None:
            content["example"] = _example(operation.example, facts.name)
        described["requestBody"] = {"required": True, "content": {JSON: content}}
    return described


def _needs_key(path: str, config: ServerConfig) -> bool:
    if path in OPEN_PATHS:
        return False
    return bool(config.api_key or (path in ADMIN_PATHS and config.admin_api_key))


def _doc(operation: Operation, config: ServerConfig) -> str:
    paragraphs = [operation.doc] if operation.doc else []
    if operation.event is not None:
        paragraphs.append(_STREAMS)
    if operation.path in ADMIN_PATHS and config.admin_api_key:
        paragraphs.append("Needs the admin key.")
    refusals = () if operation.body is None else refusals_of(operation.body)
    if refusals:
        rows = "\n".join(f"- `{message}`" for message in refusals)
        paragraphs.append(f"{REFUSALS_FOLLOW}\n\n{rows}")
    return "\n\n".join(paragraphs)


def _example(fields: dict[str, Any], model: str) -> dict[str, Any]:
    return {key: model if value == "<model>" else value for key, value in fields.items()}


def _responses(operation: Operation, needs_key: bool) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.summary + "."}
    content: dict[str, Any] = {}
    if operation.reply is not None:
        content[operation.reply_type] = {"schema": _reply_schema(operation.reply)}
    if operation.event is not None:
        content[EVENTS] = {"schema": _event_schema(operation.event)}
    if content:
        good["content"] = content
    statuses = sorted({*operation.errors, *((401,) if needs_key else ())})
    return {"200": good, **{str(status): _error(status) for status in statuses}}


def _event_schema(event: str) -> JsonSchema:
    """Of each event of a stream, which is an object with its `data` as a text."""
    data = {
        "type": "string",
        "description": "JSON, or `[DONE]` in the last event.",
        "contentMediaType": JSON,
        "contentSchema": {"anyOf": [ref(event), ref("Error")]},
    }
    return an_object({"data": data}, doc="One event.")


def _reply_schema(reply: str) -> JsonSchema:
    plain: dict[str, JsonSchema] = {"Text": STRING, "Document": {"type": "object"}}
    return plain.get(reply) or ref(reply)


def _error(status: int) -> dict[str, Any]:
    headers = _ERROR_HEADERS.get(status)
    return {
        "description": _ERRORS[status],
        **({} if headers is None else {"headers": headers}),
        "content": {JSON: {"schema": ref("Error")}},
    }

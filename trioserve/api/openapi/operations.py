"""Every route of the API: what it is for, what it takes and what it answers."""

from typing import Any

from attrs import frozen

from trioserve.api.schema.abort import AbortBody
from trioserve.api.schema.chat import ChatBody
from trioserve.api.schema.completions import CompletionBody
from trioserve.api.schema.embeddings import EmbeddingBody
from trioserve.api.schema.kinds import JsonSchema
from trioserve.api.schema.native_generate import NativeGenerateBody
from trioserve.api.schema.tokenize import DetokenizeBody, TokenizeBody

JSON = "application/json"

TAGS = {
    "Generation": "Text from a prompt or a conversation.",
    "Embeddings": "Vectors from texts.",
    "Tokens": "What the model's tokenizer makes of a text.",
    "Models": "What is served, and under which names.",
    "Operation": "For load balancers, routers and whoever runs the server.",
    "Documentation": "This document and its page.",
}


@frozen(kw_only=True)
class Operation:
    """One method of one route."""

    path: str
    method: str = "get"
    name: str
    """Unique among all operations; clients that are generated call it so."""
    tag: str
    summary: str
    doc: str = ""
    body: type | None = None
    """The declaration of its body."""
    is_embedding: bool = False
    """The body is read for the embedding model."""
    reply: str | None = None
    """The component that it answers with; None for an answer without one."""
    reply_type: str = JSON
    event: str | None = None
    """The component that each event of its stream is."""
    errors: tuple[int, ...] = ()
    """What it answers beside 200, and beside 401 where a key is needed."""
    parameters: tuple[JsonSchema, ...] = ()
    example: dict[str, Any] | None = None
    """Fields of a body; `<model>` stands for the model's name."""


_OF_BODY = (400, 408, 413, 500, 503)
_OF_MODEL = (400, 404, 408, 413, 500, 503)
_OF_ENGINE = (500, 503)

_MODEL_ID = {
    "name": "model_id",
    "in": "path",
    "required": True,
    "description": "A served name or the model's path. Slashes may be written as they are.",
    "schema": {"type": "string", "minLength": 1},
}


def _query(name: str, schema: JsonSchema, doc: str) -> JsonSchema:
    return {"name": name, "in": "query", "required": False, "description": doc, "schema": schema}


_IGNORED_QUERIES = (
    _query("dp_rank", {"type": "string"}, "Accepted without effect: there is one rank."),
    _query("include", {"type": "string"}, "Accepted without effect: all there is comes."),
)

GENERATION = (
    Operation(
        path="/v1/chat/completions",
        method="post",
        name="createChatCompletion",
        tag="Generation",
        summary="Reply to a conversation",
        doc="Takes `messages`, which the model's chat template renders, or a raw `prompt`.",
        body=ChatBody,
        reply="ChatCompletion",
        event="ChatCompletionChunk",
        errors=_OF_MODEL,
        example={
            "model": "<model>",
            "messages": [{"role": "user", "content": "Name three rivers."}],
            "max_tokens": 64,
        },
    ),
    Operation(
        path="/v1/completions",
        method="post",
        name="createCompletion",
        tag="Generation",
        summary="Continue one prompt or many",
        doc="The choices of all prompts come in one reply, in the order of the prompts.",
        body=CompletionBody,
        reply="Completion",
        event="CompletionChunk",
        errors=_OF_MODEL,
        example={"model": "<model>", "prompt": "Once upon a time", "max_tokens": 64},
    ),
    *(
        Operation(
            path="/generate",
            method=method,
            name=name,
            tag="Generation",
            summary="Generate, as SGLang's own endpoint does",
            doc="The answer is an array for several prompts or `n` over 1. Each event of a stream "
            "has all of its text so far.",
            body=NativeGenerateBody,
            reply="NativeReply",
            event="NativeEvent",
            errors=_OF_BODY,
            example={"text": "Once upon a time", "sampling_params": {"max_new_tokens": 64}},
        )
        for method, name in (("post", "generate"), ("put", "putGenerate"))
    ),
)

OTHERS = (
    Operation(
        path="/v1/embeddings",
        method="post",
        name="createEmbeddings",
        tag="Embeddings",
        summary="Embed one text or many",
        doc="The vectors come in the order of the inputs.",
        body=EmbeddingBody,
        is_embedding=True,
        reply="EmbeddingList",
        errors=_OF_MODEL,
        example={"model": "<model>", "input": ["Rivers flow.", "Stones lie."]},
    ),
    *(
        Operation(
            path=path,
            method="post",
            name=name,
            tag="Tokens",
            summary="Turn text into token ids",
            doc="Of several prompts, `tokens` and `count` have an element for each.",
            body=TokenizeBody,
            reply="Tokens",
            errors=_OF_MODEL,
            example={"prompt": "Once upon a time"},
        )
        for path, name in (("/tokenize", "tokenize"), ("/v1/tokenize", "v1Tokenize"))
    ),
    *(
        Operation(
            path=path,
            method="post",
            name=name,
            tag="Tokens",
            summary="Turn token ids into text",
            body=DetokenizeBody,
            reply="TokenText",
            errors=_OF_MODEL,
            example={"tokens": [1, 2, 3]},
        )
        for path, name in (("/detokenize", "detokenize"), ("/v1/detokenize", "v1Detokenize"))
    ),
    Operation(
        path="/v1/models",
        name="listModels",
        tag="Models",
        summary="List the models",
        reply="ModelList",
        errors=_OF_ENGINE,
    ),
    Operation(
        path="/v1/models/{model_id}",
        name="retrieveModel",
        tag="Models",
        summary="Look up one model",
        reply="Model",
        errors=(404, *_OF_ENGINE),
        parameters=(_MODEL_ID,),
    ),
    *(
        Operation(
            path=path,
            name=name,
            tag="Models",
            summary="Describe the model and the server's public settings",
            reply="ModelInfo",
            errors=_OF_ENGINE,
        )
        for path, name in (("/get_model_info", "getModelInfo"), ("/model_info", "modelInfo"))
    ),
    Operation(
        path="/health",
        name="health",
        tag="Operation",
        summary="Whether the engine serves",
        doc="503 while the model loads, while the server drains, and when the engine is dead.",
        reply="Status",
        errors=_OF_ENGINE,
    ),
    Operation(
        path="/health_generate",
        name="healthGenerate",
        tag="Operation",
        summary="Whether a token can be generated",
        doc="Generates one token, unless others get some meanwhile.",
        reply="Status",
        errors=_OF_ENGINE,
    ),
    *(
        Operation(
            path=path,
            name=name,
            tag="Operation",
            summary="Settings, limits and load, as routers read them",
            reply="ServerInfo",
            errors=_OF_ENGINE,
        )
        for path, name in (("/server_info", "serverInfo"), ("/get_server_info", "getServerInfo"))
    ),
    Operation(
        path="/get_load",
        name="getLoad",
        tag="Operation",
        summary="The load, as routers weigh it",
        reply="Load",
        errors=_OF_ENGINE,
    ),
    Operation(
        path="/v1/loads",
        name="loads",
        tag="Operation",
        summary="The load in detail",
        reply="Loads",
        errors=_OF_ENGINE,
        parameters=_IGNORED_QUERIES,
    ),
    Operation(
        path="/abort_request",
        method="post",
        name="abortRequest",
        tag="Operation",
        summary="Abort a request by its id, or all",
        doc="The aborted request ends with `finish_reason` `abort` and the text so far. An unknown "
        "id is no error. The answer is empty.",
        body=AbortBody,
        errors=_OF_BODY,
        example={"rid": "job-1"},
    ),
    *(
        Operation(
            path="/flush_cache",
            method=method,
            name=name,
            tag="Operation",
            summary="Forget all cached prefixes",
            doc="Needs no body. 400, and nothing is forgotten, while a request runs or waits.",
            reply="Text",
            reply_type="text/plain",
            errors=(400, *_OF_ENGINE),
        )
        for method, name in (("post", "flushCache"), ("get", "getFlushCache"))
    ),
    Operation(
        path="/metrics",
        name="metrics",
        tag="Operation",
        summary="Metrics for Prometheus",
        reply="Text",
        reply_type="text/plain",
        errors=(500,),
    ),
    Operation(
        path="/openapi.json",
        name="openapi",
        tag="Documentation",
        summary="This document",
        reply="Document",
        errors=_OF_ENGINE,
    ),
    Operation(
        path="/docs",
        name="docs",
        tag="Documentation",
        summary="This document as a page",
        reply="Text",
        reply_type="text/html",
        errors=_OF_ENGINE,
    ),
)

OPERATIONS: tuple[Operation, ...] = (*GENERATION, *OTHERS)

"""What the tests of the schemas share: every body there is, and a server that takes all of them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import trio
from attrs import evolve, frozen
from jsonschema import Draft202012Validator

from tests.api.answers import Answer
from tests.api.kit import JSON, MODEL, ApiBench
from trioserve.api.app import create_app
from trioserve.api.openapi.document import ModelFacts, make_document
from trioserve.api.openapi.operations import OPERATIONS, Operation
from trioserve.api.schema.declare import object_schema
from trioserve.api.schema.limits import Limits
from trioserve.api.schema.refusals import refusals_of
from trioserve.config import ServerConfig
from trioserve.engine.engine import Engine
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_embedder import FakeEmbeddingRunner, fake_embedder
from trioserve.testing.fake_model import FakeRunner, fake_model
from trioserve.testing.local_worker import LocalWorker
from trioserve.testing.memory_server import MemoryServer

EMBEDDER = "org/fake-embedder"
LIMITS = Limits(max_logprobs=20, max_prompts=2048, vocab_size=257)
CONFIG = ServerConfig(model_path=MODEL, embedding_model_path=EMBEDDER)


def _bodies() -> dict[type, Operation]:
    """One operation for each declared body."""
    found: dict[type, Operation] = {}
    for operation in OPERATIONS:
        if operation.body is not None:
            found.setdefault(operation.body, operation)
    return found


BODIES = _bodies()


@frozen
class BodyCase:
    """One kind of body: where it is sent, its schema, and a small valid one."""

    operation: Operation
    schema: dict[str, Any]

    @property
    def base(self) -> dict[str, Any]:
        model = EMBEDDER if self.operation.is_embedding else MODEL
        example = self.operation.example or {}
        base = {name: model if value == "<model>" else value for name, value in example.items()}
        # Few tokens, so that a test can ask for many answers.
        for name in ("max_tokens", "sampling_params"):
            base.pop(name, None)
        if "max_tokens" in self.schema["properties"]:
            base["max_completion_tokens"] = 2
        if "sampling_params" in self.schema["properties"]:
            base["sampling_params"] = {"max_new_tokens": 2}
        return base

    def field_schema(self, path: tuple[str, ...]) -> dict[str, Any]:
        """The schema of a field, or of one inside an object."""
        schema = self.schema
        for name in path:
            schema = _as_object(schema)["properties"][name]
        return schema

    def paths(self) -> list[tuple[str, ...]]:
        """Every field, and every field of objects in it."""
        return list(_paths(self.schema))

    def with_raw(self, path: tuple[str, ...], raw: str) -> bytes:
        """The base with the JSON text `raw` at `path`, which no serializer need be able to write.

        Raw text comes last in its object: of equal keys the last one wins.
        """
        return _with_raw(self.base, path, raw).encode()

    def is_valid(self, body: Any) -> bool:
        return Draft202012Validator(self.schema).is_valid(body)

    def is_refusal(self, answer: Answer) -> bool:
        """Whether the answer is one of those that the document lists beside its schema."""
        message = answer.json()["message"].removeprefix("Invalid request: ")
        patterns = (re.escape(each).replace("…", ".*") for each in refusals_of(self.body))
        return any(re.fullmatch(pattern, message, re.DOTALL) for pattern in patterns)

    @property
    def body(self) -> type:
        assert self.operation.body is not None
        return self.operation.body


CASES = {
    cls.__name__: BodyCase(operation, object_schema(cls, LIMITS))
    for cls, operation in BODIES.items()
}


def document(config: ServerConfig, limits: Limits = LIMITS) -> dict[str, Any]:
    """The document of a server with both kinds of model and these settings."""
    return make_document(config, ModelFacts(MODEL, limits), ModelFacts(EMBEDDER, limits))


DOCUMENT = document(CONFIG)


@frozen
class SchemaBench:
    """A server with both kinds of model."""

    api: ApiBench

    async def send(self, case: BodyCase, data: bytes) -> Answer:
        operation = case.operation
        return await self.api.ask(operation.method.upper(), operation.path, data=data, headers=JSON)

    @property
    def num_plans(self) -> int:
        """Steps that were ever planned, of either model."""
        embedder = self.api.engine.embedding_batch.model.runner
        assert isinstance(embedder, FakeEmbeddingRunner)
        return len(self.api.runner.plans) + len(embedder.plans)

    def check_idle(self) -> None:
        self.api.check_idle()
        assert self.api.engine.embedding_batch.is_idle


async def open_both(nursery: trio.Nursery, **settings: Any) -> SchemaBench:
    """A server with both kinds of model, in `nursery`."""
    device = FakeDevice(max_in_flight=2, is_automatic=True)
    runner = FakeRunner(num_pages=1024, page_size=4)
    engine = Engine(
        evolve(CONFIG, **settings),
        lambda _config: fake_model(runner, max_model_len=256),
        device,
        load_beside=lambda _config: fake_embedder(FakeEmbeddingRunner(), path=EMBEDDER),
        check_after_steps=True,
    )
    engine.grammars.start_worker = LocalWorker.start
    app = create_app(engine)
    await nursery.start(engine.run)
    await engine.ready.wait()
    return SchemaBench(ApiBench(app, engine, device, runner, MemoryServer(app, nursery)))


def check_envelope(answer: Answer) -> Mapping[str, Any]:
    """The body of a 400, which has to be whole."""
    assert answer.status == 400, answer.body[:500]
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    error = body["error"]
    assert body == {
        "object": "error",
        "message": error["message"],
        "type": "invalid_request_error",
        "param": error["param"],
        "code": 400,
        "error": error,
    }
    assert error["type"] == "invalid_request_error"
    assert isinstance(error["message"], str)
    assert 0 < len(error["message"]) < 1000
    assert isinstance(error["code"], str)
    assert isinstance(body, dict)
    return body


def names(param: str | None, path: tuple[str, ...]) -> bool:
    """Whether an error's `param` is the field, something in it, or an object that it is in.

    `/generate` calls what is in `sampling_params` by its own name, which is unique.
    """
    if param is None:
        return False
    where = (*(".".join(path[: end + 1]) for end in range(len(path))), path[-1])
    return param in where or param.startswith((f"{where[-2]}.", f"{where[-2]}[", f"{path[-1]}["))


def _as_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    kinds = (schema, *schema.get("anyOf", ()))
    return next((kind for kind in kinds if "properties" in kind), {"properties": {}})


def _paths(schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, member in _as_object(schema)["properties"].items():
        yield (name,)
        for inner in _paths(member):
            yield (name, *inner)


def _with_raw(base: Any, path: tuple[str, ...], raw: str) -> str:
    name, *rest = path
    inner = base.get(name) if isinstance(base.get(name), dict) else {}
    value = _with_raw(inner, tuple(rest), raw) if rest else raw
    written = orjson.dumps(base).decode()[:-1]
    return f"{written}{', ' if base else ''}{orjson.dumps(name).decode()}: {value}}}"

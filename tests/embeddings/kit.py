"""What the tests of embeddings share: engines over fakes, tiny models on disk, and a client."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import trio.testing
from attrs import define

from tests.api.answers import Answer
from tests.api.kit import JSON, ApiBench
from trioserve.api.app import create_app
from trioserve.config import ServerConfig
from trioserve.engine.embedding import EmbeddingRequest, OpenEmbedding, Vector
from trioserve.engine.engine import Engine
from trioserve.model.embedder_spec import Matryoshka
from trioserve.testing.fake_device import FakeDevice
from trioserve.testing.fake_embedder import FakeEmbeddingRunner, fake_embedder, fake_vector
from trioserve.testing.fake_model import FakeRunner, fake_model
from trioserve.testing.memory_server import MemoryServer

CHAT_MODEL = "org/chat"
EMBEDDER = "org/embedder"
EMBEDDINGS = "/v1/embeddings"


def request(*texts: bytes, timeout_s: float | None = None) -> EmbeddingRequest:
    """A request whose token ids are bytes."""
    return EmbeddingRequest("test", tuple(tuple(text) for text in texts), timeout_s)


def check_vectors(vectors: Sequence[Vector], *texts: bytes) -> None:
    """One vector for each text, in order, each the fake model's own."""
    assert len(vectors) == len(texts)
    for vector, text in zip(vectors, texts, strict=True):
        np.testing.assert_array_equal(vector, fake_vector(tuple(text)))


@define
class Bench:
    """An engine over fakes with an embedding model, alone or beside one that generates."""

    engine: Engine
    device: FakeDevice
    embedder: FakeEmbeddingRunner
    generator: FakeRunner

    async def embed(self, *texts: bytes, timeout_s: float | None = None) -> Sequence[Vector]:
        """Admit, wait, leave."""
        with self.engine.open_embedding(request(*texts, timeout_s=timeout_s)) as opened:
            return await opened.wait_vectors()

    def planned(self) -> list[list[bytes]]:
        """The texts of every step, in order."""
        return [[bytes(ids) for ids in plan.inputs] for plan in self.embedder.plans]

    async def finish_step(self) -> None:
        """Let the oldest step finish and the driver do what follows from it."""
        await self.device.wait_submitted()
        self.device.finish()
        await trio.testing.wait_all_tasks_blocked()

    def finish_all(self) -> None:
        """Let steps finish by themselves from now on."""
        self.device.is_automatic = True
        while self.device.unfinished:
            self.device.finish()

    def check_idle(self) -> None:
        """Nothing is remembered."""
        batch = self.engine.embedding_batch
        batch.check()
        assert batch.is_idle
        assert batch.num_running == 0
        assert batch.num_waiting == 0
        assert not batch.requests

    def aborted(self, reason: str) -> float:
        """How many requests were counted as aborted for that reason."""
        name = "trioserve_aborted_requests_total"
        registry = self.engine.embedding_statistics.registry
        return registry.get_sample_value(name, {"reason": reason}) or 0.0


def make_bench(
    *,
    depth: int = 1,
    is_automatic: bool = True,
    is_alone: bool = False,
    max_step_tokens: int = 16,
    max_model_len: int = 32,
    prompt: str = "",
    matryoshka: Matryoshka | None = None,
    poison: int | None = None,
    **settings: Any,
) -> Bench:
    """An engine that nobody runs yet; `settings` are the server's."""
    device = FakeDevice(max_in_flight=depth, is_automatic=is_automatic)
    generator = FakeRunner(num_pages=64, page_size=4)
    embedder = FakeEmbeddingRunner(poison=poison)
    served = fake_embedder(
        embedder,
        max_step_tokens=max_step_tokens,
        max_model_len=max_model_len,
        prompt=prompt,
        matryoshka=matryoshka,
    )
    if is_alone:
        config = ServerConfig(**{"model_path": EMBEDDER, **settings})
        engine = Engine(config, lambda _config: served, device, check_after_steps=True)
    else:
        paths = {"model_path": CHAT_MODEL, "embedding_model_path": EMBEDDER}
        engine = Engine(
            ServerConfig(**{**paths, **settings}),
            lambda _config: fake_model(generator, max_step_tokens=16),
            device,
            load_beside=lambda _config: served,
            check_after_steps=True,
        )
    return Bench(engine, device, embedder, generator)


def write_files(folder: Path, files: Mapping[str, Any]) -> Path:
    """JSON files by name, in folders as named."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def modules(*names: str) -> list[dict[str, Any]]:
    """A modules.json: Transformer, Pooling and `names`, each but the first in a folder."""
    return [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{name}" if index else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for index, name in enumerate(("Transformer", "Pooling", *names))
    ]


async def leave_when_blocked(opened: OpenEmbedding) -> None:
    """Wait for the vectors, and be cancelled once nobody moves."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opened.wait_vectors)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def open_api(bench: Bench, nursery: trio.Nursery) -> ApiBench:
    """The HTTP app over an engine that runs."""
    app = create_app(bench.engine)
    return ApiBench(app, bench.engine, bench.device, bench.generator, MemoryServer(app, nursery))


async def post(api: ApiBench, path: str = EMBEDDINGS, **fields: Any) -> Answer:
    """A body, posted; to the embeddings of `EMBEDDER` unless said otherwise."""
    body = {"model": EMBEDDER, **fields}
    return await api.ask("POST", path, data=orjson.dumps(body), headers=JSON)


def vectors_of(answer: Answer) -> list[Vector]:
    """The vectors of an answer, checked to be in order, whatever their form."""
    assert answer.status == 200, answer.body
    data = answer.json()["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    return [
        np.frombuffer(b64decode(item["embedding"]), dtype="<f4")
        if isinstance(item["embedding"], str)
        else np.array(item["embedding"], dtype=np.float32)
        for item in data
    ]

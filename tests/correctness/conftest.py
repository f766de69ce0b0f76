"""The default model, loaded once; what it says to each prompt alone; what the reference says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer

from tests.correctness.hashing import HashingDecoder, HashingRunner
from tests.correctness.plan_driver import Job, run_jobs
from tests.correctness.prompts import tokenized_prompts
from tests.correctness.reference import Reference
from trioserve.config import DEFAULT_MODEL
from trioserve.model.decoder import Decoder
from trioserve.model.loader import resolve_model
from trioserve.model.spec import read_spec
from trioserve.model.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_TOKENS = 64
MAX_RUNNING = 16
MAX_CHUNK = 512
MAX_LEN = 2_200


@pytest.fixture(scope="session")
def model_directory() -> Path:
    return resolve_model(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def decoder(model_directory: Path) -> HashingDecoder:
    spec = read_spec(model_directory)
    with Weights(model_directory) as weights:
        decoder = Decoder.load(spec, weights, num_pages=512, page_size=16, max_len=MAX_LEN)
    return HashingDecoder(decoder)


@pytest.fixture(scope="session")
def run(decoder: HashingDecoder) -> Callable[..., None]:
    """`run(jobs, chunk=…, max_running=…)` on the default model."""

    def run_on_model(jobs: list[Job], *, chunk: int, max_running: int) -> None:
        runner = HashingRunner(
            decoder, max_tokens=chunk + MAX_RUNNING, max_sequences=MAX_RUNNING, max_len=MAX_LEN
        )
        run_jobs(runner, jobs, chunk=chunk, max_running=max_running)

    return run_on_model


@pytest.fixture(scope="session")
def tokenizer(model_directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_directory / "tokenizer.json"))


@pytest.fixture(scope="session")
def prompts(tokenizer: Tokenizer) -> dict[str, tuple[int, ...]]:
    return tokenized_prompts(tokenizer)


@pytest.fixture(scope="session")
def decode(tokenizer: Tokenizer) -> Callable[[list[int]], str]:
    return tokenizer.decode


@pytest.fixture(scope="session")
def alone(run: Callable[..., None], prompts: dict[str, tuple[int, ...]]) -> dict[str, Job]:
    """Every prompt run by itself in chunks of 512: what all other settings must repeat."""
    jobs = {name: Job(name, ids, NUM_TOKENS) for name, ids in prompts.items()}
    for job in jobs.values():
        run([job], chunk=MAX_CHUNK, max_running=1)
    return jobs


@pytest.fixture(scope="session")
def reference(model_directory: Path) -> Reference:
    return Reference(model_directory)

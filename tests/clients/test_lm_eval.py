"""EleutherAI's harness reads log-likelihoods of choices off the server: the model's own.

The reference is transformers' own float32 forward of the same weights.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

import pytest
from attrs import frozen
from tokenizers import Tokenizer

from tests.clients.environments import HERE
from tests.clients.kit import MODEL, Client, base_url
from tests.correctness.reference import Reference
from trioserve.config import DEFAULT_MODEL
from trioserve.model.loader import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.clients.environments import Environment
    from trioserve.testing.server_process import ServerProcess

TASK = HERE / "lm_eval_task"
MAX_DIFFERENCE = 1e-3


@frozen
class Likelihood:
    """Of a text after another: the sum of its tokens' log-probabilities, and whether each of them
    was the most likely one."""

    logprob: float
    is_greedy: bool


Samples = dict[tuple[str, str], Likelihood]
"""By context and continuation."""


@pytest.fixture(scope="module")
def model_directory() -> Path:
    return resolve_model(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def expected(model_directory: Path) -> Callable[[str, str], Likelihood]:
    """`expected(context, continuation)`"""
    reference = Reference(model_directory)
    tokenizer = Tokenizer.from_file(str(model_directory / "tokenizer.json"))

    @cache
    def likelihood(context: str, continuation: str) -> Likelihood:
        token_ids = tokenizer.encode(context + continuation).ids
        num_tokens = len(token_ids) - len(tokenizer.encode(context).ids)
        logits = reference.logits(token_ids[:-1], num_tokens)
        chosen = logits.log_softmax(-1).gather(
            1, logits.new_tensor(token_ids[-num_tokens:]).long()[:, None]
        )
        return Likelihood(
            float(chosen.sum()), logits.argmax(-1).tolist() == token_ids[-num_tokens:]
        )

    return likelihood


def read_samples(folder: Path) -> Samples:
    """What the harness wrote down."""
    (path,) = folder.rglob("samples_*.jsonl")
    read = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        requests = [(a["arg_0"], a["arg_1"]) for a in sample["arguments"].values()]
        for request, ((logprob, is_greedy),) in zip(requests, sample["resps"], strict=True):
            read[request] = Likelihood(float(logprob), {"True": True, "False": False}[is_greedy])
    return read


def start_harness(
    environment: Environment,
    server: ServerProcess,
    model_directory: Path,
    output: Path,
    *,
    is_tokenized: bool,
) -> Client:
    model = {
        "model": MODEL,
        "base_url": base_url(server) + "/completions",
        "tokenizer": model_directory,
        "tokenizer_backend": "huggingface",
        "tokenized_requests": is_tokenized,
        "num_concurrent": 2,
        "max_retries": 1,
    }
    flags = {
        "model": "local-completions",
        "model_args": ",".join(f"{name}={value}" for name, value in model.items()),
        "tasks": "trioserve_choices",
        "include_path": str(TASK),
        "batch_size": "8",
        "output_path": str(output),
    }
    return Client(
        *(environment.python, "-m", "lm_eval", "run", "--log_samples"),
        *(f"--{name}={value}" for name, value in flags.items()),
        cwd=TASK,
        variables={"HF_HOME": str(output / "hub")},
    )


@pytest.fixture(scope="module")
def all_samples(
    running_server: ServerProcess,
    environment: Callable[[str], Environment],
    model_directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[bool, Samples]:
    """What the harness read from the server, for token ids and for texts; it runs for both at once,
    since it takes longer to start than to ask."""
    outputs = {flag: tmp_path_factory.mktemp("lm_eval") for flag in (True, False)}
    with ExitStack() as stack:
        runs = {
            flag: stack.enter_context(
                start_harness(
                    *(environment("lm-eval"), running_server, model_directory, output),
                    is_tokenized=flag,
                )
            )
            for flag, output in outputs.items()
        }
        for run in runs.values():
            run.output(timeout_s=200)
    return {flag: read_samples(output) for flag, output in outputs.items()}


@pytest.mark.row("S-N-004", "S-C-028", "S-C-029", "S-C-049", "S-C-050", "S-C-004", "S-C-006")
@pytest.mark.parametrize("is_tokenized", [True, False], ids=["token_ids", "texts"])
@pytest.mark.usefixtures("server")
def test_log_likelihoods_are_those_of_transformers(
    all_samples: dict[bool, Samples],
    expected: Callable[[str, str], Likelihood],
    is_tokenized: bool,
) -> None:
    got = all_samples[is_tokenized]
    items = [json.loads(line) for line in (TASK / "items.jsonl").read_text().splitlines()]
    wanted = {
        (item["question"], " " + choice): expected(item["question"], " " + choice)
        for item in items
        for choice in item["choices"]
    }
    assert got.keys() == wanted.keys()
    assert {key: value.is_greedy for key, value in got.items()} == {
        key: value.is_greedy for key, value in wanted.items()
    }
    differences = {key: abs(got[key].logprob - wanted[key].logprob) for key in wanted}
    assert max(differences.values()) < MAX_DIFFERENCE, differences
    # Else the comparison above would show little.
    assert len(items) >= 20
    assert 5 <= sum(value.is_greedy for value in wanted.values()) <= len(wanted) - 5

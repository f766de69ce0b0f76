"""Other architectures of the family, with small random weights: logits against transformers'."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.correctness.hashing import HashingDecoder, HashingRunner
from tests.correctness.plan_driver import Job, run_jobs
from tests.correctness.reference import Reference, find_excuses
from trioserve.model.decoder import Decoder, DecoderInput
from trioserve.model.spec import read_spec
from trioserve.model.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

VOCAB = 320
MAX_LEN = 128
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_LEN,
    "initializer_range": 0.15,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3 rope": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama linear rope, biases": (
        "llama",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
        },
    ),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 32}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 32}),
}


@pytest.fixture(scope="module", params=list(MODELS))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model whose weights are random, float16-exact, and nowhere trivially 0 or 1."""
    model_type, fields = MODELS[request.param]
    path = tmp_path_factory.mktemp(model_type)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(model_type, **SIZES, **fields)
        )
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.data.normal_(0, 0.3)
            elif parameter.dim() == 1:
                parameter.data.uniform_(0.5, 1.5)
            parameter.data = parameter.data.half().float()
        model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def decoder(directory: Path) -> Decoder:
    with Weights(directory) as weights:
        return Decoder.load(
            read_spec(directory), weights, num_pages=64, page_size=4, max_len=MAX_LEN
        )


@pytest.fixture(scope="module")
def reference(directory: Path) -> Reference:
    return Reference(directory)


def tokens(seed: int, count: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, VOCAB, (count,), generator=generator).tolist())


def test_prompt_logits_are_those_of_transformers(decoder: Decoder, reference: Reference) -> None:
    prompt_ids = tokens(1, 90)
    positions = torch.arange(90, dtype=torch.int32)
    pages = torch.randperm(64, generator=torch.Generator().manual_seed(2))[:23]
    batch = DecoderInput(
        token_ids=torch.tensor(prompt_ids),
        positions=positions,
        slots=pages[positions // 4] * 4 + positions % 4,
        row_sequence=torch.zeros(90, dtype=torch.int32),
        page_table=pages.to(torch.int32)[None],
        output_rows=torch.arange(90),
    )
    expected = reference.logits(prompt_ids, 90)
    logits = decoder.head(decoder.forward(batch))
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=2e-3)


def test_decoding_in_a_batch_is_that_of_transformers(
    decoder: Decoder, reference: Reference
) -> None:
    limits = {"max_tokens": 32, "max_sequences": 8, "max_len": MAX_LEN}
    runner = HashingRunner(HashingDecoder(decoder), **limits)
    lengths = [1, 5, 17, 40, 64]
    jobs = [Job(f"{n} tokens", tokens(n, n), 32, arrives_at=1 + n % 3) for n in lengths]
    run_jobs(runner, jobs, chunk=16, max_running=4)
    excuses = []
    for job in jobs:
        positions = reference.positions(job.prompt_ids, job.output_ids)
        excuses += find_excuses(job.name, job.output_ids, positions)
    # Random weights tie far more often than trained ones.
    assert len(excuses) <= 32 * len(jobs) / 20, excuses

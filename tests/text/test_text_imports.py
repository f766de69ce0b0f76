"""What loading this room costs: every start of the server and every test of its callers pays it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """
import json, sys
from trioserve.core import StopParams
from trioserve.text.assembler import TextAssembler
from trioserve.text.tokenizer import Tokenizer
tokenizer = Tokenizer.from_directory(sys.argv[1])
tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
TextAssembler(tokenizer, StopParams(("x",), regexes=("y",))).feed(1)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_a_tokenizer_json_is_read_and_used_without_heavy_imports(smollm_directory: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(smollm_directory)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    loaded = set(json.loads(printed))
    assert not loaded & {"torch", "transformers", "numpy", "trio", "quart", "hypercorn"}

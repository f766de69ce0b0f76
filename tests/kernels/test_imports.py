"""What the kernels may drag in, and what they may change, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _output_of(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_door_to_the_kernels_does_not_import_triton() -> None:
    script = (
        "import sys, trioserve.device.ops\n"
        "print([name for name in ('triton', 'trio', 'transformers') if name in sys.modules])"
    )
    assert _output_of(script) == "[]\n"


@pytest.mark.slow
def test_warm_up_leaves_torch_its_number_of_threads() -> None:
    """Numba sets OpenMP's count when it starts its threads; on one core this cannot fail."""
    script = (
        "import torch; from trioserve.device import ops\n"
        "torch.set_num_threads(1); ops.warm_up(); print(torch.get_num_threads())"
    )
    assert _output_of(script) == "1\n"

"""The Triton form: run by Triton's interpreter on the CPU, and compiled for real GPUs unseen."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is published for Linux only"),
    pytest.mark.slow,
]

ROOT = Path(__file__).parents[2]

# Its own process: Triton decides when a kernel is defined whether it will be interpreted.
INTERPRETED = """
import torch
from tests.kernels.paged_case import paged_case
from trioserve_kernels.paged_attention.reference import reference
from trioserve_kernels.paged_attention.triton import decode

lengths = (1, 15, 16, 17, 32, 33)
rows = [(sequence, length - 1) for sequence, length in enumerate(lengths)]
shapes = ((9, 3, 64, 16), (2, 1, 80, 8), (4, 4, 16, 1))
for heads, kv_heads, head_dim, page_size in shapes:
    case = paged_case(
        rows, num_q_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, page_size=page_size
    )
    expected = reference(*case.arguments)
    torch.testing.assert_close(decode(*case.arguments), expected, rtol=1e-5, atol=1e-5)
print("all match")
"""


def test_interpreted_decode_matches_reference_with_nan_around_the_mask() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERPRETED],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "all match\n", done.stderr


@pytest.mark.parametrize("architecture", [80, 90, 100])
@pytest.mark.parametrize(("num_q_heads", "num_kv_heads", "head_dim"), [(9, 3, 64), (32, 8, 128)])
def test_decode_compiles_for_gpus_without_spilling(
    architecture: int,
    num_q_heads: int,
    num_kv_heads: int,
    head_dim: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from trioserve_kernels.paged_attention.triton import constants, decode_kernel

    sizes = constants(num_q_heads, torch.Size((8, num_kv_heads, 16, head_dim)))
    signature = dict.fromkeys(decode_kernel.arg_names, "i32")
    for name in ("q", "k_pages", "v_pages", "out"):
        signature[name] = "*fp32"
    for name in ("page_table", "row_sequence", "positions"):
        signature[name] = "*i32"
    signature["scale_log2"] = "fp32"
    signature |= dict.fromkeys(sizes, "constexpr")
    compiled = triton.compile(
        ASTSource(decode_kernel, signature, constexprs=sizes),
        target=GPUTarget("cuda", architecture, 32),
        options={"enable_fp_fusion": True},
    )

    # 48 KiB of shared memory is what every GPU gives a program without asking.
    assert compiled.metadata.shared <= 48 * 1024
    usage = _resource_usage(compiled.asm["cubin"], tmp_path)
    assert (usage["STACK"], usage["LOCAL"]) == (0, 0), f"spills: {usage}"
    assert usage["REG"] <= 255


def _resource_usage(cubin: bytes, folder: Path) -> dict[str, int]:
    """What NVIDIA's own tool reads from the compiled code: registers, stack, local memory."""
    import triton.backends.nvidia

    tool = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    path = folder / "decode.cubin"
    path.write_bytes(cubin)
    done = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True)
    return {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", done.stdout)}

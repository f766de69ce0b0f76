"""Percentiles, and the facts that every result line carries."""

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linear between the two nearest ranks; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def percentiles_ms(values_s: Sequence[float]) -> dict[str, float | None]:
    """p50, p90 and p99 of seconds, in milliseconds."""
    found = {f"p{percent}": percentile(values_s, percent) for percent in (50, 90, 99)}
    return {
        name: None if value is None else round(value * 1000, 2) for name, value in found.items()
    }


def commit() -> str | None:
    """The checked-out commit, with `+` when the tree has changes; None outside a checkout."""
    root = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--short") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def device() -> dict[str, object]:
    """The machine that this process runs on: processor, cores, memory."""
    return {
        "cpu": _processor_name(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in facts.items()}
    name = named.get("model name", platform.processor() or platform.machine())
    flags = named.get("flags", "").split()
    widest = next((flag for flag in ("avx512f", "avx2", "avx") if flag in flags), None)
    return f"{name} ({widest})" if widest else name

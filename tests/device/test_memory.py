"""Limits of control groups, both generations, from files made by the test."""

import os
from pathlib import Path

import pytest

from trioserve.device.memory import ProcessLimits

MIB = 1 << 20
MACHINE = {"proc/meminfo": "MemAvailable:   1048576 kB"}


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)


def write(root: Path, files: dict[str, object]) -> ProcessLimits:
    for name, content in (MACHINE | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return ProcessLimits(root)


def test_without_groups_the_machine_counts(tmp_path: Path) -> None:
    limits = write(tmp_path, {})
    assert limits.num_cpus() == 8
    assert limits.available_memory_bytes() == 1024 * MIB


def test_second_generation_takes_the_narrowest_level(tmp_path: Path) -> None:
    limits = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/box",
            "sys/fs/cgroup/pod/cpu.max": "300000 100000",
            "sys/fs/cgroup/pod/box/cpu.max": "max 100000",
            "sys/fs/cgroup/pod/memory.max": 512 * MIB,
            "sys/fs/cgroup/pod/memory.current": 200 * MIB,
            "sys/fs/cgroup/pod/memory.stat": f"anon 1\ninactive_file {50 * MIB}",
            "sys/fs/cgroup/pod/box/memory.max": "max",
        },
    )
    assert limits.num_cpus() == 3
    assert limits.available_memory_bytes() == 362 * MIB


def test_a_path_of_the_host_falls_back_to_the_mounted_root(tmp_path: Path) -> None:
    limits = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/docker-abc",
            "sys/fs/cgroup/cpu.max": "150000 100000",
            "sys/fs/cgroup/memory.max": 100 * MIB,
            "sys/fs/cgroup/memory.current": 30 * MIB,
        },
    )
    assert limits.num_cpus() == 1
    assert limits.available_memory_bytes() == 70 * MIB


def test_first_generation_is_read_by_controller(tmp_path: Path) -> None:
    limits = write(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/box\n3:cpu,cpuacct:/box",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": 200000,
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": 100000,
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": 256 * MIB,
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": 300 * MIB,
            "sys/fs/cgroup/memory/box/memory.stat": f"total_inactive_file {100 * MIB}",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        },
    )
    assert limits.num_cpus() == 2
    assert limits.available_memory_bytes() == 56 * MIB


def test_unlimited_groups_and_full_groups_are_told_apart(tmp_path: Path) -> None:
    limits = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": -1,
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100000,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 64 * MIB,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 65 * MIB,
        },
    )
    assert limits.num_cpus() == 8
    assert limits.available_memory_bytes() == 0

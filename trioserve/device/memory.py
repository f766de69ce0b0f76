"""What this process may use: CPUs and memory within its control group.

A container's limits are not what `os.cpu_count` and /proc/meminfo say. Both generations of Linux
control groups are read, every level from our own group up to the root; where neither exists (other
systems) the machine's own figures are used. May be called by anyone; reads files, keeps nothing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

_UNLIMITED_V1 = 1 << 60  # the first generation writes "no limit" as a huge number of bytes


@frozen
class ProcessLimits:
    """Reads limits below `root`, which is `/` but for tests."""

    root: Path = Path("/")

    def num_cpus(self) -> int:
        """CPUs that may run at once: the affinity mask, cut by the group's quota; at least 1.

        A quota of 1.5 counts as 1: one thread too many stalls all the others for the rest of the
        scheduling period, at every barrier.
        """
        if hasattr(os, "sched_getaffinity"):
            num_cpus = len(os.sched_getaffinity(0))
        else:
            num_cpus = os.cpu_count() or 1
        for group in self._groups(""):
            fields = _read(group / "cpu.max").split()
            if len(fields) == 2 and fields[0].isdigit():
                num_cpus = min(num_cpus, int(fields[0]) // int(fields[1]))
        for group in self._groups("cpu"):
            quota = _read(group / "cpu.cfs_quota_us")
            period = _read(group / "cpu.cfs_period_us")
            if quota.isdigit() and period.isdigit() and int(period):
                num_cpus = min(num_cpus, int(quota) // int(period))
        return max(1, num_cpus)

    def available_memory_bytes(self) -> int:
        """Memory that can still be taken without swapping or being killed.

        File cache that the kernel can drop counts as available.
        """
        available = self._machine_memory_bytes()
        for group in self._groups(""):
            limit = _read(group / "memory.max")
            if limit.isdigit():
                used = _read(group / "memory.current")
                available = min(available, _headroom(group, limit, used, "inactive_file"))
        for group in self._groups("memory"):
            limit = _read(group / "memory.limit_in_bytes")
            if limit.isdigit() and int(limit) < _UNLIMITED_V1:
                used = _read(group / "memory.usage_in_bytes")
                available = min(available, _headroom(group, limit, used, "total_inactive_file"))
        return max(0, available)

    def _machine_memory_bytes(self) -> int:
        for line in _read(self.root / "proc/meminfo").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def _groups(self, controller: str) -> Iterator[Path]:
        """Our group's folder and all above it; an empty controller means the second generation.

        Inside a container /proc/self/cgroup may name a path of the host that is not mounted here;
        the folders that do not exist are passed over and the mounted root still holds the limit.
        """
        base = self.root / "sys/fs/cgroup" / controller
        for line in _read(self.root / "proc/self/cgroup").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, name = rest.partition(":")
            if controller not in controllers.split(","):
                continue
            group = Path(name.strip("/"))
            for level in (group, *group.parents):
                if (base / level).is_dir():
                    yield base / level


def _headroom(group: Path, limit: str, used: str, cache_field: str) -> int:
    cache_bytes = 0
    for line in _read(group / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == cache_field:
            cache_bytes = int(value)
    return int(limit) - int(used or 0) + cache_bytes


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

"""The processor time and memory of the processes of a server."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SCHEDULER_CLOCK = 2
"""The CPU clock of a process, with a resolution of nanoseconds: /proc counts ticks of 10 ms."""


def cpu_seconds(pid: int) -> float:
    """Return the user and system time that all threads of the process have used so far."""
    return time.clock_gettime(~pid << 3 | SCHEDULER_CLOCK)


def resident_mb(pids: Iterable[int]) -> float:
    """Return the total resident memory of the processes in megabytes (10^6 bytes)."""
    return sum(_status_mb(pid, "VmRSS:") for pid in pids)


def peak_mb(pid: int) -> float:
    """Return the peak resident memory so far, in megabytes."""
    return _status_mb(pid, "VmHWM:")


def _status_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"no {name} for process {pid}")


@dataclass
class CpuMeter:
    """A meter of the processes' total CPU time since its creation."""

    pids: tuple[int, ...]
    begin: float = 0.0

    def __post_init__(self) -> None:
        self.begin = sum(map(cpu_seconds, self.pids))

    def spent(self) -> float:
        return sum(map(cpu_seconds, self.pids)) - self.begin

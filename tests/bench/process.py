"""What a server process costs, read from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time that the process has used so far, all threads and children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S


def resident_mb(pid: int) -> float:
    """Resident memory in megabytes (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"no VmRSS for process {pid}")


@dataclass
class CpuMeter:
    """CPU time of a process since the meter was made."""

    pid: int
    begin: float = 0.0

    def __post_init__(self) -> None:
        self.begin = cpu_seconds(self.pid)

    def spent(self) -> float:
        return cpu_seconds(self.pid) - self.begin

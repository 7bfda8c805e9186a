"""A storm: attacking processes and a healthy client connect to a broker process, and a report of the effects."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from soak.hostile.attacked_broker import AttackedBroker, AttackerKind
from soak.hostile.healthy_client import TOPIC, HealthyClient
from soak.hostile.in_process import TOPICS

GROWTH_BYTES = 64 << 20
REJECTION_BYTES = 40 << 20
"""The additional memory of a broker while it rejects a batch that expands to more than 24 MiB.

A batch took 40.0 MiB with gzip, 38.2 with zstd, 31.8 with LZ4.
"""
HEALTHY_SECONDS = 30.0
"""The longest latency of the healthy client. A slower request counts as a hang."""
PAUSE_SECONDS = 0.02
PROBLEMS_SHOWN = 5
ROOT = Path(__file__).parents[2]


@dataclass
class Report:
    """The effects of a storm on the broker and on the healthy client."""

    seed: int
    frames: int = 0
    connections: int = 0
    seconds: float = 0.0
    rss_before: int = 0
    rss_peak: int = 0
    rss_after: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies of the healthy client, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0

    def __str__(self) -> str:
        mib = 1 << 20
        return "\n".join(
            [
                f"seed {self.seed}: {self.frames} hostile frames on {self.connections} connections "
                f"in {self.seconds:.0f} s, {self.frames / max(self.seconds, 1e-9):.0f}/s",
                f"outcomes: {self.outcomes}",
                f"healthy client: {len(self.latencies)} requests, p50 {self.quantile(0.5) * 1000:.1f} ms, "
                f"p99 {self.quantile(0.99) * 1000:.1f} ms, slowest {self.quantile(1) * 1000:.0f} ms",
                f"memory: {self.rss_before / mib:.0f} MiB before, {self.rss_peak / mib:.0f} at most, "
                f"{self.rss_after / mib:.0f} after",
                *(f"PROBLEM {problem[:1500]}" for problem in self.problems[:PROBLEMS_SHOWN]),
                *([f"and {len(self.problems) - PROBLEMS_SHOWN} more"] if len(self.problems) > PROBLEMS_SHOWN else []),
            ]
        )


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, 0 if the process has ended."""
    return _memory(pid, "VmRSS")


def peak_resident_bytes(pid: int) -> int:
    """Return the peak of the resident memory of a process.

    The kernel records the peak. Samples of the current value would miss the short peak while the broker rejects an
    oversized request.
    """
    return _memory(pid, "VmHWM")


def _memory(pid: int, name: str) -> int:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status[name].split()[0]) << 10 if name in status else 0


def storm(
    folder: Path,
    *,
    frames: int,
    seconds: float,
    seed: int,
    attackers: int = 2,
    kind: AttackerKind = AttackerKind.ANONYMOUS,
) -> Report:
    """Attack a new broker with `frames` from `attackers` processes, for at most `seconds`; return the report."""
    report = Report(seed)
    attacked = AttackedBroker(folder, kind)
    broker = attacked.broker
    broker.start()
    processes: list[subprocess.Popen[str]] = []
    try:
        client = HealthyClient(attacked.admin_endpoint, deadline_seconds=HEALTHY_SECONDS)
        client.create_topics([TOPIC, *TOPICS])
        attacked.prepare(client)
        for _ in range(20):
            client.round(1)
        client.write_in_every_codec()
        for endpoint in attacked.attacker_endpoints:
            endpoint.connect().close()
        client.latencies.clear()
        report.rss_before = resident_bytes(broker.pid)
        began = time.monotonic()
        processes = [
            _attack(attacked, seed * 1000 + number, frames // attackers, seconds) for number in range(attackers)
        ]
        if _run_healthy_client(report, client, processes):
            _collect(report, processes)
        report.seconds = time.monotonic() - began
        report.latencies = client.latencies
        client.close()
        report.rss_after, report.rss_peak = resident_bytes(broker.pid), peak_resident_bytes(broker.pid)
        if not report.rss_after:
            report.problems.append("the broker process has ended")
        growth = max(report.rss_after, report.rss_peak - REJECTION_BYTES) - report.rss_before
        if growth > GROWTH_BYTES:
            report.problems.append(f"the broker grew by {growth >> 20} MiB")
        if broker.stop() != 0:
            report.problems.append("the broker did not stop cleanly")
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        broker.kill()
    _read_log(report, broker.log)
    return report


def _attack(attacked: AttackedBroker, seed: int, frames: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "soak.hostile.assault", "--seed", str(seed)]
    command += ["--frames", str(frames), "--seconds", str(seconds)]
    for endpoint in attacked.attacker_endpoints:
        command += ["--endpoint", endpoint.text()]
    if attacked.kind is not AttackerKind.UNAUTHENTICATED:
        command += ["--admin", attacked.admin_endpoint.text()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def _run_healthy_client(report: Report, client: HealthyClient, processes: list[subprocess.Popen[str]]) -> bool:
    """Write and read records during the attack; return False and report a problem after a failure."""
    number = 0
    while any(process.poll() is None for process in processes):
        number += 1
        try:
            client.round(-1 if number % 10 == 0 else 1)
        except (AssertionError, OSError) as error:
            report.problems.append(f"the healthy client: {error!r}")
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def _collect(report: Report, processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        output, errors = process.communicate(timeout=120)
        lines = output.splitlines()
        if not lines:
            report.problems.append(f"an attacker ended without a report: {errors[-2000:]}")
            continue
        result = json.loads(lines[-1])
        report.frames += result["frames"]
        report.connections += result["connections"]
        report.problems += [f"attacker {result['seed']}: {complaint}" for complaint in result["complaints"]]
        for name, count in result["outcomes"].items():
            report.outcomes[name] = report.outcomes.get(name, 0) + count


def _read_log(report: Report, log: Path) -> None:
    """Report tracebacks in the log of the broker. After other problems, report the end of the log."""
    text = log.read_text(errors="replace")
    at = text.find("Traceback")
    if at >= 0:
        report.problems.append(
            f"the broker's log has {text.count('Traceback')} tracebacks: {text[at - 300 : at + 3000]}"
        )
    elif report.problems:
        report.problems.insert(0, f"end of the broker's log: {text[-1500:]}")

"""Several brokers on one machine, each with its own load: `python -m bench.side_by_side 1 2 4`.

A broker serves requests on one event loop, so a machine with more cores has room for more brokers. This bench measures
the request rate for each number of brokers, the processor time of a request, and the idle time of the machine. Once the
loads and the brokers use all cores, further brokers do not increase the rate.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import load
from bench.process import CpuMeter
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.barnabas_server import cli_command

TIMEOUT_S = 120


def cluster(folder: Path, *words: str) -> str:
    """Run `barnabas cluster` on the cluster in this folder, and return its output."""
    command = cli_command("cluster", words[0], "--data", str(folder), *words[1:])
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


def measure(brokers: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a cluster of this size in which each broker leads one topic of one partition."""
    with tempfile.TemporaryDirectory() as folder:
        started = json.loads(cluster(Path(folder), "start", "-n", str(brokers), "--port", "0", "--json"))
        try:
            return _measure(started, seconds)
        finally:
            cluster(Path(folder), "stop")


def _measure(started: dict[str, Any], seconds: float) -> dict[str, Any]:
    processes = started["processes"]
    brokers = [one for one in processes if one["process"].startswith("broker")]
    _create_topics(started["bootstrap"], len(brokers))
    meters = [CpuMeter((one["pid"],)) for one in brokers]
    rest = CpuMeter(tuple(one["pid"] for one in processes if one not in brokers))
    idle = idle_seconds()
    with ThreadPoolExecutor(len(brokers)) as pool:
        runs = [
            pool.submit(load.run, "single", bootstrap=one["address"], topics=[f"of-{number}"], seconds=seconds)
            for number, one in enumerate(brokers, 1)
        ]
        figures = [run.result() for run in runs]
    idle_s, spent = idle_seconds() - idle, [meter.spent() for meter in meters]
    longest = max(one["seconds"] for one in figures)
    requests = sum(one["requests"] for one in figures)
    return {
        "brokers": len(brokers),
        "cores": os.cpu_count(),
        "requests_per_s": sum(one["requests_per_s"] for one in figures),
        "requests_per_s_each": [one["requests_per_s"] for one in figures],
        "cpu_us_per_request": sum(spent) * 1e6 / requests,
        "broker_cores": [one / longest for one in spent],
        "other_processes_cores": rest.spent() / longest,
        "idle_cores": idle_s / longest,
    }


def _create_topics(bootstrap: str, brokers: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [
        NewTopic(f"of-{number}", num_partitions=1, replica_assignment=[[number]]) for number in range(1, brokers + 1)
    ]
    for future in admin.create_topics(topics, request_timeout=TIMEOUT_S).values():
        future.result()


def idle_seconds() -> float:
    """Return the total seconds that the processors of this machine have been idle."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    return int(fields[4]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    for brokers in options.brokers:
        print(json.dumps(measure(brokers, options.seconds)), flush=True)


if __name__ == "__main__":
    main()

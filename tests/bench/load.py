"""Runs one load in a process of its own and prints what came out as JSON.

python -m tests.bench.load '{"load": "produce", "bootstrap": "127.0.0.1:9092", ...}'
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.bench import librdkafka, single

WORDS = (
    "tail",
    "carrier",
    "origin",
    "dest",
    "delayed",
    "true",
    "false",
    "air_time",
    "2013-01-01T05:00:00Z",
    "EWR",
    "JFK",
)


def random_payloads(size: int, count: int = 1000) -> list[bytes]:
    """Records that no codec makes smaller."""
    return [os.urandom(size) for _ in range(count)]


def text_payloads(size: int, count: int = 1000) -> list[bytes]:
    """Records like JSON events: words and numbers, three to five times smaller when compressed."""
    chance = random.Random(7)
    made = []
    for _ in range(count):
        text = "".join(f'"{chance.choice(WORDS)}":{chance.randrange(10**6)},' for _ in range(size // 8))
        made.append(text[:size].encode())
    return made


def produce(
    bootstrap: str, topic: str, size: int, seconds: float, text: bool = False, **options: Any
) -> dict[str, float]:
    payloads = text_payloads(size) if text else random_payloads(size)
    records, elapsed = librdkafka.produce(bootstrap, topic, payloads, seconds=seconds, **options)
    return {"records": records, "seconds": elapsed, "mb_per_s": records * size / elapsed / 1e6}


def consume(bootstrap: str, topic: str, size: int, records: int, **options: Any) -> dict[str, float]:
    got, elapsed = librdkafka.consume(bootstrap, topic, records=records, **options)
    return {"records": got, "seconds": elapsed, "mb_per_s": got * size / elapsed / 1e6}


LOADS: dict[str, Callable[..., dict[str, float]]] = {
    "produce": produce,
    "consume": consume,
    "single": single.requests_per_second,
    "latency": single.latencies,
    "connections": single.many_connections,
    "metadata": single.metadata,
}


def run(load: str, timeout_s: float = 300, **options: Any) -> dict[str, float]:
    """Run a load of `LOADS` in a child process and return its figures."""
    command = [sys.executable, "-m", "tests.bench.load", json.dumps({"load": load, **options})]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"load {load} failed:\n{result.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(json.dumps(LOADS[arguments.pop("load")](**arguments)))

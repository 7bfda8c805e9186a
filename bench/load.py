"""Run one load in a separate process and print its figures as JSON.

python -m bench.load <<< '{"load": "produce", "bootstrap": "127.0.0.1:9092", ...}'
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench import (
    arrivals,
    fetch_load,
    java_load,
    librdkafka,
    replay,
    share_load,
    single,
    transaction_load,
    transaction_requests,
)
from bench.payloads import payloads


def produce(
    bootstrap: str, topic: str, size: int, seconds: float, compressible: bool = False, **options: Any
) -> dict[str, float]:
    """Run librdkafka's producer."""
    values = payloads(size, compressible=compressible)
    records, elapsed = librdkafka.produce(bootstrap, topic, values, seconds=seconds, **options)
    return {"records": records, "seconds": elapsed, "mb_per_s": records * size / elapsed / 1e6}


def consume(bootstrap: str, topic: str, size: int, records: int, **options: Any) -> dict[str, float]:
    """Run librdkafka's consumer."""
    got, elapsed = librdkafka.consume(bootstrap, topic, records=records, **options)
    return {"records": got, "seconds": elapsed, "mb_per_s": got * size / elapsed / 1e6}


LOADS: dict[str, Callable[..., dict[str, float]]] = {
    "produce": produce,
    "consume": consume,
    "single": single.requests_per_second,
    "switched": single.switched,
    "latency": single.latencies,
    "connections": single.many_connections,
    "waiting-fetches": fetch_load.complete_waiting_fetches,
    "metadata": single.metadata,
    "replay-produce": replay.produce,
    "replay-consume": replay.consume,
    "transactions": transaction_load.commit_repeatedly,
    "transaction-latency": transaction_load.latencies,
    "transaction-requests": transaction_requests.latencies,
    "transaction-produce": transaction_load.long_transactions,
    "transaction-fill": transaction_load.fill,
    "java-produce": java_load.produce,
    "java-consume": java_load.consume,
    "arrivals": arrivals.arrivals,
    "share-group": share_load.consume,
}

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_TOP_PAD_": str(1 << 26)}
"""Settings that keep glibc from returning memory between two batches and allocating it again.

A client does this more often the sooner the server responds, so the faster server would have the slower client.
"""


def run(load: str, *, timeout_s: float = 300, **options: Any) -> dict[str, float]:
    """Run a load of `LOADS` in a child process and return its figures."""
    command = [sys.executable, "-m", "bench.load"]
    request = json.dumps({"load": load, **options})
    environment = {**os.environ, **KEEP_MEMORY}
    result = subprocess.run(
        command, input=request, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
    )
    if result.returncode != 0:
        raise RuntimeError(f"load {load} failed:\n{result.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


if __name__ == "__main__":
    arguments = json.load(sys.stdin)
    print(json.dumps(LOADS[arguments.pop("load")](**arguments)))

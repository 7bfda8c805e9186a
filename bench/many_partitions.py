"""A bench that creates ten thousand partitions and deletes half of them, alone and while another client produces."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.bench import Figures, Run
from bench.groups import TOPIC, produce_p99_ms
from bench.process import CpuMeter

TOPICS, PARTITIONS_PER_TOPIC = 100, 100
MIN_LATENCY_S = 2.0
"""The minimum time of a latency measurement. It is longer if the same change took longer alone."""


def prepare(run: Run) -> None:
    """Create the producer's topic."""
    run.target.create_topic(TOPIC)


def measure_many_partitions(run: Run) -> Figures:
    """Measure a CreateTopics and a DeleteTopics request. A creation ends when all partitions have leaders."""
    names = [run.topic(f"many-{number}") for number in range(TOPICS)]
    half, rest = names[: TOPICS // 2], names[TOPICS // 2 :]
    calm = produce_p99_ms(run, 3 * MIN_LATENCY_S)
    meter = CpuMeter(run.target.pids)
    created_s = _seconds(lambda: run.target.create_topics(names, PARTITIONS_PER_TOPIC))
    created_cpu_s = meter.spent()
    deleted_s = _seconds(lambda: run.target.delete_topics(half))
    run.target.delete_topics(rest)
    busy_created_s, created_p99_ms = _measure_while_producing(
        run, created_s, lambda: run.target.create_topics(names, PARTITIONS_PER_TOPIC)
    )
    busy_deleted_s, deleted_p99_ms = _measure_while_producing(run, deleted_s, lambda: run.target.delete_topics(half))
    run.target.delete_topics(rest)
    return {
        "create_s": created_s,
        "create_cpu_s": created_cpu_s,
        "create_busy_s": busy_created_s,
        "delete_5000_s": deleted_s,
        "delete_5000_busy_s": busy_deleted_s,
        "produce_p99_ms_calm": calm,
        "produce_p99_ms_create": created_p99_ms,
        "produce_p99_ratio_create": created_p99_ms / calm,
        "produce_p99_ms_delete": deleted_p99_ms,
        "produce_p99_ratio_delete": deleted_p99_ms / calm,
    }


def _seconds(change: Callable[[], object]) -> float:
    begin = time.perf_counter()
    change()
    return time.perf_counter() - begin


def _measure_while_producing(run: Run, seconds: float, change: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a change, and the 99th percentile of a producer's latency during it."""
    with ThreadPoolExecutor() as pool:
        producing = pool.submit(produce_p99_ms, run, max(MIN_LATENCY_S, seconds))
        return _seconds(change), producing.result()

"""Request benches: requests per second, latency, and the cost of a request as the broker grows."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import load
from bench.bench import STEPS, Figures, Run
from bench.metered import MeteredServer
from bench.process import CpuMeter
from bench.targets import COMMON_PROPERTIES, BrokerTarget

CONSUMERS = (100, 1000)
"""The numbers of waiting consumers."""


def run_metered(run: Run, name: str, **options: Any) -> tuple[Figures, float]:
    """Run a load of `load.LOADS`. Return its figures, and the microseconds of server time per request."""
    meter = CpuMeter(run.target.pids)
    figures = load.run(name, bootstrap=run.target.bootstrap, seconds=run.seconds, **options)
    return figures, meter.spent() * 1e6 / figures["requests"]


def measure_single(run: Run) -> Figures:
    topic = run.topic("single")
    run.target.create_topic(topic)
    figures, cost = run_metered(run, "single", topics=[topic])
    run.target.delete_topic(topic)
    return {**figures, "cpu_us_per_request": cost}


def measure_metrics(run: Run) -> Figures:
    """Measure a separate broker that switches its request metrics off and on at short intervals."""
    topic, metered = "metered", {**COMMON_PROPERTIES, "metrics.listeners": "127.0.0.1:0"}
    with TemporaryDirectory() as folder, MeteredServer(Path(folder), properties=metered) as server:
        BrokerTarget("barnabas", server).create_topic(topic)
        return load.run("switched", bootstrap=server.bootstrap, pid=server.pid, topic=topic, seconds=run.seconds)


def prepare_latency(run: Run) -> None:
    """Send requests at the highest possible rate for a round's time, so that the JVM compiles their code."""
    run.target.create_topic("before")
    load.run("single", bootstrap=run.target.bootstrap, topics=["before"], seconds=run.seconds)


def measure_latency(run: Run) -> Figures:
    topic = run.topic("latency")
    run.target.create_topic(topic)
    figures = load.run("latency", bootstrap=run.target.bootstrap, topic=topic, seconds=run.seconds)
    run.target.delete_topic(topic)
    return figures


def measure_metadata(run: Run) -> Figures:
    topic = run.topic("wide")
    run.target.create_topic(topic, 1000)
    figures, cost = run_metered(run, "metadata", topic=topic)
    run.target.delete_topic(topic)
    return {**figures, "cpu_ms_per_request": cost / 1000}


def measure_connections(run: Run, *, idempotent: bool = False) -> Figures:
    """Measure each number of connections with 64 requests (or one for each connection) in flight in total."""
    topic = run.topic("connections")
    run.target.create_topic(topic)
    made: Figures = {}
    for count in STEPS:
        figures, cost = run_metered(run, "connections", topic=topic, connections=count, idempotent=idempotent)
        made[f"requests_per_s_{count}"] = figures["requests_per_s"]
        made[f"cpu_us_{count}"] = cost
    run.target.delete_topic(topic)
    return made


def measure_waiting_fetches(partitions: int) -> Callable[[Run], Figures]:
    """Return a function that measures consumers at the ends of this number of partitions, all woken together."""

    def measure(run: Run) -> Figures:
        made: Figures = {}
        for count in CONSUMERS:
            topic = run.topic(f"waiting-{count}")
            run.target.create_topic(topic, partitions)
            figures, cost = run_metered(run, "waiting-fetches", topic=topic, consumers=count, partitions=partitions)
            made[f"fetches_per_s_{count}"] = figures["requests_per_s"]
            made[f"p99_ms_{count}"] = figures["p99_ms"]
            made[f"cpu_us_{count}"] = cost
            run.target.delete_topic(topic)
        return made

    return measure


def measure_group_commit(run: Run) -> Figures:
    """Measure 64 connections with one acks -1 request in flight each."""
    topic = run.topic("durable")
    run.target.create_topic(topic)
    figures, cost = run_metered(run, "connections", topic=topic, connections=64, acks=-1)
    run.target.delete_topic(topic)
    return {**figures, "cpu_us_per_request": cost}


def growth(run: Run, cost_at: Callable[[int], float]) -> Figures:
    """Return the cost of a request at each count; `cost_at(count)` grows the server to `count` and measures it."""
    return {f"cpu_us_{count}": cost_at(count) for count in STEPS}


def measure_topics(run: Run) -> Figures:
    """Measure requests to all topics in turn."""
    names = [f"topics-{run.number}-{number:04}" for number in range(STEPS[-1])]

    def cost_at(count: int) -> float:
        run.target.create_topics([name for name in names[:count] if name not in made])
        made.update(names[:count])
        return run_metered(run, "single", topics=names[:count])[1]

    made: set[str] = set()
    figures = growth(run, cost_at)
    run.target.delete_topics(names)
    return figures


def measure_partitions(run: Run) -> Figures:
    """Measure requests to all partitions of one topic in turn."""

    def cost_at(count: int) -> float:
        topic = run.topic(f"partitions-{count}")
        run.target.create_topic(topic, count)
        cost = run_metered(run, "single", topics=[topic], partitions=count)[1]
        run.target.delete_topic(topic)
        return cost

    return growth(run, cost_at)


def measure_connection_cost(run: Run) -> Figures:
    """Measure connections with one request in flight each."""
    topic = run.topic("grown")
    run.target.create_topic(topic)
    figures = growth(
        run, lambda count: run_metered(run, "connections", topic=topic, connections=count, in_flight=count)[1]
    )
    run.target.delete_topic(topic)
    return figures

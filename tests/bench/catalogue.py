"""The benches by name: what each does to a target and which figures it gives."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.bench import load, single
from tests.bench.process import CpuMeter, resident_mb
from tests.bench.targets import Target

Figures = dict[str, float]
ALL = ("ours", "kafka", "ceiling")
BROKERS = ("ours", "kafka")


@dataclass
class Run:
    """One round of one bench against one running target."""

    target: Target
    seconds: float
    number: int
    state: dict[str, float] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        return f"{name}-{self.number}"


@dataclass(frozen=True)
class Bench:
    """A named measurement. `figures` maps each figure to "higher" or "lower", whichever is better."""

    name: str
    about: str
    figures: Mapping[str, str]
    measure: Callable[[Run], Figures]
    prepare: Callable[[Run], None] | None = None
    targets: tuple[str, ...] = ALL
    partitions: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    started: bool = True
    rounds: int | None = None
    warmup: int | None = None


THROUGHPUT = {"mb_per_s": "higher", "cpu_s_per_gb": "lower"}


def produce_bench(
    name: str, about: str, *, size: int, partitions: int = 1, codec: str = "none", acks: int = 1, **other: Any
) -> Bench:
    """A bench that fills a fresh topic through librdkafka for as long as a round takes."""

    def measure(run: Run) -> Figures:
        topic = run.topic(name)
        run.target.create_topic(topic, partitions)
        meter = CpuMeter(run.target.pid)
        figures = load.run(
            "produce",
            bootstrap=run.target.bootstrap,
            topic=topic,
            size=size,
            seconds=run.seconds,
            text=codec != "none",
            partition=0 if partitions == 1 else -1,
            config={"acks": acks, "compression.codec": codec, "linger.ms": 5},
        )
        figures["cpu_s_per_gb"] = meter.spent() / (figures["records"] * size / 1e9)
        run.target.delete_topic(topic)
        return figures

    options: dict[str, Any] = {"partitions": partitions, **other}
    return Bench(name, about, THROUGHPUT, measure, **options)


FETCH_BYTES_PER_SECOND = 500_000_000


def prepare_fetch(run: Run) -> None:
    run.target.create_topic("fetch")
    records = int(max(run.seconds, 0.2) * FETCH_BYTES_PER_SECOND) // 1000
    made = load.run(
        "produce",
        bootstrap=run.target.bootstrap,
        topic="fetch",
        size=1000,
        seconds=300,
        max_records=records,
        partition=0,
        config={"acks": 1},
    )
    run.state["records"] = made["records"]


def measure_fetch(run: Run) -> Figures:
    meter = CpuMeter(run.target.pid)
    records = int(run.state["records"])
    figures = load.run("consume", bootstrap=run.target.bootstrap, topic="fetch", size=1000, records=records)
    figures["cpu_s_per_gb"] = meter.spent() / (records * 1000 / 1e9)
    return figures


def measure_single(run: Run) -> Figures:
    topic = run.topic("single")
    run.target.create_topic(topic)
    meter = CpuMeter(run.target.pid)
    figures = load.run("single", bootstrap=run.target.bootstrap, topic=topic, seconds=run.seconds)
    figures["cpu_us_per_request"] = meter.spent() * 1e6 / figures["requests"]
    run.target.delete_topic(topic)
    return figures


def measure_latency(run: Run) -> Figures:
    topic = run.topic("latency")
    run.target.create_topic(topic)
    figures = load.run("latency", bootstrap=run.target.bootstrap, topic=topic, seconds=run.seconds)
    run.target.delete_topic(topic)
    return figures


def measure_start(run: Run) -> Figures:
    """From the call that starts an empty server to the first acknowledged record; then its memory."""
    run.target.prepare()
    begin = time.perf_counter()
    run.target.start()
    single.first_acknowledgement(run.target.bootstrap, "first")
    return {"first_ack_s": time.perf_counter() - begin, "idle_mb": resident_mb(run.target.pid)}


def measure_metadata(run: Run) -> Figures:
    topic = run.topic("wide")
    run.target.create_topic(topic, 1000)
    meter = CpuMeter(run.target.pid)
    figures = load.run("metadata", bootstrap=run.target.bootstrap, topic=topic, seconds=run.seconds)
    figures["cpu_ms_per_request"] = meter.spent() * 1000 / figures["requests"]
    run.target.delete_topic(topic)
    return figures


def measure_connections(run: Run) -> Figures:
    topic = run.topic("connections")
    run.target.create_topic(topic)
    made: Figures = {}
    for count in STEPS:
        figures = load.run(
            "connections", bootstrap=run.target.bootstrap, topic=topic, seconds=run.seconds, connections=count
        )
        made[f"requests_per_s_{count}"] = figures["requests_per_s"]
    run.target.delete_topic(topic)
    return made


def growth(run: Run, name: str, create: Callable[[int, int], None]) -> Figures:
    """Server time of a single-record request after each step of growth; `create(before, count)` makes it grow."""
    probe = run.topic(f"{name}-probe")
    run.target.create_topic(probe)
    made: Figures = {}
    before = 0
    for count in STEPS:
        create(before, count)
        before = count
        meter = CpuMeter(run.target.pid)
        figures = load.run("single", bootstrap=run.target.bootstrap, topic=probe, seconds=run.seconds)
        made[f"cpu_us_{count}"] = meter.spent() * 1e6 / figures["requests"]
    return made


def measure_topics(run: Run) -> Figures:
    def create(before: int, count: int) -> None:
        for number in range(before, count):
            run.target.create_topic(f"growth-{run.number}-{number}")

    return growth(run, "topics", create)


def measure_partitions(run: Run) -> Figures:
    def create(before: int, count: int) -> None:
        if count > before:
            run.target.create_topic(f"growth-{run.number}-of-{count}", count - before)

    return growth(run, "partitions", create)


def measure_start_again(run: Run) -> Figures:
    """Start with 10 000 partitions on disk: after a clean stop, and after kill -9."""
    run.target.start()
    for number in range(10):
        run.target.create_topic(f"many-{number}", 1000)
    single.first_acknowledgement(run.target.bootstrap, "many-0")
    made: Figures = {}
    for name, end in (("clean", run.target.stop), ("killed", run.target.kill)):
        end()
        begin = time.perf_counter()
        run.target.start()
        single.first_acknowledgement(run.target.bootstrap, "many-0")
        made[f"start_after_{name}_s"] = time.perf_counter() - begin
    made["resident_mb"] = resident_mb(run.target.pid)
    return made


STEPS = (1, 10, 100, 1000)
WIDE: dict[str, Any] = {"size": 1000, "partitions": 32, "targets": BROKERS}
GROWTH = {f"cpu_us_{count}": "lower" for count in STEPS}

BENCHES = {
    bench.name: bench
    for bench in (
        produce_bench("produce-1k", "1 KB records, one partition, acks 1, no compression", size=1000),
        produce_bench("produce-100b", "100-byte records, one partition, acks 1, no compression", size=100),
        Bench(
            "fetch-1k",
            "1 KB records from the page cache, one partition, one consumer",
            THROUGHPUT,
            measure_fetch,
            prepare_fetch,
        ),
        Bench(
            "single-requests",
            "produce requests of one 100-byte record, 64 in flight on one connection, acks 1",
            {"requests_per_s": "higher", "cpu_us_per_request": "lower"},
            measure_single,
        ),
        Bench(
            "latency",
            "1000 single-record produce requests a second, acks 1",
            {"p50_ms": "lower", "p99_ms": "lower", "p999_ms": "lower"},
            measure_latency,
        ),
        produce_bench(
            "produce-32-zstd",
            "1 KB text records, 32 partitions, zstd",
            size=1000,
            partitions=32,
            codec="zstd",
            targets=BROKERS,
        ),
        produce_bench(
            "produce-32-lz4",
            "1 KB text records, 32 partitions, lz4",
            size=1000,
            partitions=32,
            codec="lz4",
            targets=BROKERS,
        ),
        produce_bench(
            "acks-all-disk", "1 KB records, acks -1 answered once on disk", size=1000, acks=-1, targets=("ours",)
        ),
        produce_bench(
            "acks-all-page-cache",
            "1 KB records, acks -1 answered from the page cache, as Kafka does",
            size=1000,
            acks=-1,
            targets=BROKERS,
            properties={"acks.all.durability": "page-cache"},
        ),
        Bench(
            "start",
            "an empty folder: call to first acknowledged record, and memory then",
            {"first_ack_s": "lower", "idle_mb": "lower"},
            measure_start,
            properties={"auto.create.topics.enable": "true"},
            started=False,
        ),
        Bench(
            "connections",
            "single-record requests a second over 1, 10, 100 and 1000 connections",
            {f"requests_per_s_{count}": "higher" for count in STEPS},
            measure_connections,
        ),
        Bench(
            "metadata-1000",
            "metadata of one topic with 1000 partitions, one request after the other",
            {"p50_ms": "lower", "cpu_ms_per_request": "lower"},
            measure_metadata,
            partitions=1000,
        ),
        Bench(
            "growth-topics",
            "server time of a single-record request with 1, 10, 100, 1000 topics",
            GROWTH,
            measure_topics,
            targets=BROKERS,
            rounds=1,
            warmup=0,
        ),
        Bench(
            "growth-partitions",
            "server time of a single-record request with 1, 10, 100, 1000 partitions",
            GROWTH,
            measure_partitions,
            targets=BROKERS,
            rounds=1,
            warmup=0,
        ),
        Bench(
            "start-10000",
            "start with 10 000 partitions after a clean stop and after kill -9",
            {"start_after_clean_s": "lower", "start_after_killed_s": "lower", "resident_mb": "lower"},
            measure_start_again,
            targets=BROKERS,
            started=False,
            rounds=1,
        ),
    )
}

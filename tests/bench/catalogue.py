"""The benches by name: what each does to a target and which figures it gives."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.bench import load
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


THROUGHPUT = {"mb_per_s": "higher", "cpu_s_per_gb": "lower"}


def produce_bench(
    name: str, about: str, *, size: int, partitions: int = 1, codec: str = "none", acks: int = 1, **other: object
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

    options: dict[str, object] = {"partitions": partitions, **other}
    return Bench(name, about, THROUGHPUT, measure, **options)  # type: ignore[arg-type]


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
    """From the call that starts an empty server to the first acknowledged record; then its memory at rest."""
    begin = time.perf_counter()
    run.target.start()
    run.target.create_topic("first")
    figures = load.run("latency", bootstrap=run.target.bootstrap, topic="first", seconds=0.02, rate=100)
    elapsed = time.perf_counter() - begin
    del figures
    return {"first_ack_s": elapsed, "idle_mb": resident_mb(run.target.pid)}


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
    )
}

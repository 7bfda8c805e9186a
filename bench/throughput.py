"""Throughput benches: produce and fetch, with librdkafka, Java's clients and batches built in advance."""

from collections.abc import Callable, Mapping
from typing import Any

from bench import load
from bench.bench import THROUGHPUT, Bench, Figures, Run
from bench.process import CpuMeter
from confluent_kafka import KafkaError, Message, Producer

ROUND_BYTES = 1_500_000_000
"""The maximum of bytes that all brokers write in a round. They fit the page cache, so that no writeback is measured.

Beyond about 2 GB the page cache of a virtual machine receives pages that the host has yet to supply. A plain `pwrite`
then takes 1 to 2 s of processor time per GB instead of 0.2, and the faster server reaches this size first.
"""

FETCHED_BYTES_PER_S = 500_000_000
JAVA_BYTES_PER_S = 250_000_000


def produce_bench(
    name: str,
    about: str,
    *,
    size: int,
    driver: str = "produce",
    partitions: int = 1,
    acks: int = 1,
    brokers: int = 1,
    options: Mapping[str, object] | None = None,
    **other: Any,
) -> Bench:
    """Return a bench that fills a new topic for the time of a round, with the load `driver` of `load.LOADS`.

    Each of several `brokers` has a replica of each partition.
    """

    def measure(run: Run) -> Figures:
        topic = run.topic(name)
        run.target.create_topic(topic, partitions)
        if acks == -1:
            replicate_first_records(run.target.bootstrap, topic, partitions)
        meter = CpuMeter(run.target.pids)
        limits = limits_of_round(driver, run.seconds, size, brokers)
        arguments: dict[str, Any] = {**limits, **(options or {})}
        figures = load.run(driver, bootstrap=run.target.bootstrap, topic=topic, size=size, **arguments)
        figures["cpu_s_per_gb"] = meter.spent() / (figures["records"] * size / 1e9)
        run.target.delete_topic(topic)
        return figures

    return Bench(name, about, THROUGHPUT, measure, partitions=partitions, brokers=brokers, **other)


def replicate_first_records(bootstrap: str, topic: str, partitions: int) -> None:
    """Write a record to each partition and wait until all replicas have it.

    Kafka's followers begin to fetch from a new topic one second late. The bench must not measure this delay.
    """
    errors: list[KafkaError] = []

    def collect_error(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": -1})
    for partition in range(partitions):
        producer.produce(topic, b"first", partition=partition, on_delivery=collect_error)
    if producer.flush(60) or errors:
        raise RuntimeError(f"not every partition of {topic} acknowledged a record: {errors}")


def limits_of_round(driver: str, seconds: float, size: int, replicas: int = 1) -> dict[str, Any]:
    """Return the limits of a load, as options of `driver`."""
    if driver == "java-produce":
        return {"records": int(seconds * JAVA_BYTES_PER_S) // size}
    if driver == "replay-produce":
        return {"seconds": seconds, "max_bytes": ROUND_BYTES // replicas}
    return {"seconds": seconds, "max_records": ROUND_BYTES // replicas // size}


def librdkafka_bench(
    name: str, about: str, *, size: int, partitions: int = 1, codec: str = "none", acks: int = 1, **other: Any
) -> Bench:
    """Return a `produce_bench` with two librdkafka producers: batches of up to one megabyte, linger.ms 5.

    A producer sends from one thread. A single producer would leave half a core idle and limit the rate.
    """
    options: dict[str, Any] = {
        "producers": 2,
        "compressible": codec != "none",
        "partitions": partitions,
        "config": {"acks": acks, "compression.codec": codec, "linger.ms": 5},
    }
    return produce_bench(name, about, size=size, partitions=partitions, acks=acks, options=options, **other)


def replay_bench(
    name: str, about: str, *, size: int, codec: str, partitions: int, batch_bytes: int, batches: int, **other: Any
) -> Bench:
    """Return a `produce_bench` with batches compressed in advance, `batches` of them in a request."""
    options: dict[str, Any] = {
        "codec": codec,
        "partitions": partitions,
        "batch_bytes": batch_bytes,
        "batches": batches,
    }
    return produce_bench(
        name, about, size=size, partitions=partitions, driver="replay-produce", options=options, **other
    )


def prepare_fetch(run: Run) -> None:
    """Fill the topic that every round reads. Its bytes are on disk and in the page cache before a round begins."""
    run.target.create_topic("fetch")
    records = int(min(max(run.seconds, 0.2) * FETCHED_BYTES_PER_S, ROUND_BYTES)) // 1000
    made = load.run(
        "produce",
        bootstrap=run.target.bootstrap,
        topic="fetch",
        size=1000,
        seconds=300,
        max_records=records,
        config={"acks": 1, "linger.ms": 5},
    )
    run.state["records"] = made["records"]


def fetch_with(driver: str, *, timed: bool = False, **options: Any) -> Callable[[Run], Figures]:
    """Return a function that measures reading the whole prepared topic, with `timed` repeatedly for a round's time."""

    def measure(run: Run) -> Figures:
        meter = CpuMeter(run.target.pids)
        records = int(run.state["records"])
        limit = {"seconds": run.seconds} if timed else {}
        figures = load.run(driver, bootstrap=run.target.bootstrap, topic="fetch", records=records, **limit, **options)
        figures["cpu_s_per_gb"] = meter.spent() / (max(records, figures["records"]) * 1000 / 1e9)
        return figures

    return measure

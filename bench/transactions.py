"""Benches of transactions: by librdkafka, which uses version 1 of the transaction protocol, and by plain requests.

All replicas acknowledge every write of the transaction coordinator. Barnabas does so from the disk by default. The
benches set it to acknowledge from the page cache, as Apache Kafka does, and measure the same figures from the disk.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

from bench import load
from bench.bench import BROKERS, LIMIT, THROUGHPUT, Bench, Figures, Goal, Run
from bench.groups import RESTARTS
from bench.members import PlainConnection
from bench.process import CpuMeter
from bench.throughput import FETCHED_BYTES_PER_S, ROUND_BYTES
from bench.transaction_load import SIZE

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

PAGE_CACHE = {"acks.all.durability": "page-cache"}
SYNC_EACH_APPEND = {"log.flush.interval.messages": "1"}
RATES = {"transactions_per_s": "higher", "cpu_ms_per_transaction": "lower"}
LATENCIES = {"p50_ms": "lower", "p99_ms": "lower", "request_p50_ms": "lower", "request_p99_ms": "lower"}
FETCHED = {**THROUGHPUT, "uncommitted_mb_per_s": "higher", "committed_to_uncommitted": "higher"}
IDS, IDS_OF_CLIENT, CONNECTIONS = 100_000, 10_000, 50
SAMPLE = 200
"""The number of ids that are requested after a start: some from each of the fifty partitions."""
TRANSACTION = 1
"""The `key_type` of transaction coordinators in FindCoordinator."""


def measure_rate(producers: int, partitions: int) -> Callable[[Run], Figures]:
    """Return a function that measures transactions of ten 1 KB records, one after the other in each producer."""

    def measure(run: Run) -> Figures:
        topic = run.topic("transactions")
        run.target.create_topic(topic, partitions)
        meter = CpuMeter(run.target.pids)
        options = {"seconds": run.seconds, "producers": producers, "partitions": partitions}
        figures = load.run("transactions", bootstrap=run.target.bootstrap, topic=topic, **options)
        cost = meter.spent() / figures["transactions"] * 1000
        run.target.delete_topic(topic)
        return {"transactions_per_s": figures["transactions_per_s"], "cpu_ms_per_transaction": cost}

    return measure


def measure_latency(run: Run) -> Figures:
    """Measure the commits of 100 transactions per second: by librdkafka, and by plain requests over a socket."""
    topic = run.topic("commits")
    run.target.create_topic(topic)
    figures: dict[str, float] = {}
    for name in ("transaction-latency", "transaction-requests"):
        figures |= load.run(name, bootstrap=run.target.bootstrap, topic=topic, seconds=run.seconds)
    run.target.delete_topic(topic)
    return figures


def measure_produce(run: Run) -> Figures:
    """Measure one transaction per producer, as long as the round."""
    topic = run.topic("long")
    run.target.create_topic(topic)
    meter = CpuMeter(run.target.pids)
    limits = {"seconds": run.seconds, "max_records": ROUND_BYTES // SIZE}
    figures = load.run("transaction-produce", bootstrap=run.target.bootstrap, topic=topic, **limits)
    figures["cpu_s_per_gb"] = meter.spent() / (figures["records"] * SIZE / 1e9)
    run.target.delete_topic(topic)
    return figures


def prepare_fetch(run: Run) -> None:
    """Fill the topic that every round reads."""
    run.target.create_topic("fetch")
    records = int(min(max(run.seconds, 0.2) * FETCHED_BYTES_PER_S, ROUND_BYTES)) // SIZE
    run.state |= load.run("transaction-fill", bootstrap=run.target.bootstrap, topic="fetch", records=records)


def measure_fetch(run: Run) -> Figures:
    """Read the topic with read_committed, then with read_uncommitted. MB are of the log, including aborted records."""
    total, committed = int(run.state["records"]), int(run.state["committed"])

    def read(isolation: str, records: int) -> float:
        config = {"isolation.level": isolation}
        options: dict[str, Any] = {"topic": "fetch", "size": SIZE, "records": records, "config": config}
        return load.run("consume", bootstrap=run.target.bootstrap, **options)["mb_per_s"] * total / records

    meter = CpuMeter(run.target.pids)
    speed = read("read_committed", committed)
    cost = meter.spent() / (total * SIZE / 1e9)
    uncommitted = read("read_uncommitted", total)
    return {
        "mb_per_s": speed,
        "cpu_s_per_gb": cost,
        "uncommitted_mb_per_s": uncommitted,
        "committed_to_uncommitted": speed / uncommitted,
    }


def measure_ids(run: Run) -> Figures:
    """Measure the time from a restart's first response until the coordinator has loaded 100 000 transactional ids."""
    if not run.number:
        asyncio.run(_make_ids(run))
    restarts = []
    for _ in range(RESTARTS):
        run.target.stop()
        begin = time.perf_counter()
        run.target.start()
        started = time.perf_counter()
        asyncio.run(_check_ids(run))
        loaded = time.perf_counter()
        restarts.append((loaded - started, loaded - begin))
    load_s, start_s = (fmean(figures) for figures in zip(*restarts, strict=True))
    return {"load_s": load_s, "start_s": start_s}


async def _make_ids(run: Run) -> None:
    """Create the ids over many connections together."""
    connections = await asyncio.gather(*(PlainConnection.open(run.target.bootstrap) for _ in range(CONNECTIONS)))
    shares = (_new_epochs(connection, range(number, IDS, CONNECTIONS)) for number, connection in enumerate(connections))
    await asyncio.gather(*shares)
    for connection in connections:
        connection.close()


async def _check_ids(run: Run) -> None:
    """Request ids one after the other, so that the requests take little processor time from the loading."""
    connection = await PlainConnection.open(run.target.bootstrap)
    epochs = await _new_epochs(connection, range(0, IDS, IDS // SAMPLE))
    assert all(epoch > 0 for epoch in epochs), "a transactional id was lost"
    connection.close()


async def _new_epochs(connection: PlainConnection, numbers: Iterable[int]) -> list[int]:
    """Send InitProducerId for each of these ids until the coordinator accepts it, and return their epochs."""
    epochs = []
    for number in numbers:
        key, client_id = f"id-{number}", b"client-%d" % (number // IDS_OF_CLIENT)
        request = InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=60_000)
        while (response := await connection.send(ApiKey.INIT_PRODUCER_ID, 1, request, client_id)).error_code:
            await asyncio.sleep(0.02)
            await connection.send(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=key, key_type=TRANSACTION))
        epochs.append(response.producer_epoch)
    return epochs


def transaction_benches() -> list[Bench]:
    """Return the benches of rates, commit latencies, long transactions, fetches, and the loading of ids."""
    made = []
    faster = (Goal("transactions_per_s", "kafka", 1.5),)
    for producers in (1, 32):
        for partitions in (1, 16):
            places = "one partition" if partitions == 1 else f"{partitions} partitions in turn"
            name = f"transactions-{producers}" + (f"-{partitions}" if partitions > 1 else "")
            about = f"transactions of ten 1 KB records, {producers} producers, {places}, answered from the page cache"
            measure = measure_rate(producers, partitions)
            made.append(Bench(name, about, RATES, measure, targets=BROKERS, properties=PAGE_CACHE, goals=faster))
    return [
        *made,
        Bench(
            "transactions-32-disk",
            "as transactions-32, answered once on disk (Kafka: log.flush.interval.messages=1)",
            RATES,
            measure_rate(32, 1),
            targets=BROKERS,
            kafka_properties=SYNC_EACH_APPEND,
        ),
        Bench(
            "transaction-commit",
            "commits of 100 transactions per second after their records are acknowledged, answered from the page cache",
            LATENCIES,
            measure_latency,
            targets=BROKERS,
            properties=PAGE_CACHE,
            goals=tuple(Goal(figure, "kafka", 0.7) for figure in LATENCIES),
        ),
        Bench(
            "transaction-commit-disk",
            "as transaction-commit, answered once on disk (Kafka: log.flush.interval.messages=1)",
            LATENCIES,
            measure_latency,
            targets=BROKERS,
            kafka_properties=SYNC_EACH_APPEND,
            warm_by=tuple(LATENCIES),
        ),
        Bench(
            "transaction-produce",
            "1 KB records in two transactions as long as the round, one partition, answered from the page cache",
            THROUGHPUT,
            measure_produce,
            targets=BROKERS,
            properties=PAGE_CACHE,
            goals=(Goal("mb_per_s", "kafka", 1.4),),
        ),
        Bench(
            "transaction-fetch",
            "1 KB records of transactions, a tenth of them aborted, by librdkafka with read_committed",
            FETCHED,
            measure_fetch,
            prepare_fetch,
            targets=BROKERS,
            properties=PAGE_CACHE,
            goals=(Goal("mb_per_s", "kafka", 1.0), Goal("committed_to_uncommitted", LIMIT, 1.0)),
        ),
        Bench(
            "transactional-ids",
            "a restart with 100 000 transactional ids, until their coordinator has loaded them",
            {"load_s": "lower", "start_s": "lower"},
            measure_ids,
            targets=BROKERS,
            properties=PAGE_CACHE,
            goals=(Goal("load_s", LIMIT, 3.0),),
            cold="each round restarts it, and the time that it takes to load is measured",
        ),
    ]

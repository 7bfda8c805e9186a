"""Transactions by librdkafka's producer: at the highest rate, at a steady rate, long ones, and aborted ones."""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.librdkafka import PRODUCER, TIMEOUT_MS, Client, Producer, messages_of
from bench.payloads import payloads

RECORDS, SIZE = 10, 1000
"""The default number of records of a transaction, and their size in bytes."""
MESSAGE_HAS_PARTITION = 8
"""RD_KAFKA_MSG_F_PARTITION."""
FILL_PRODUCERS, FILL_RECORDS = 4, 1000
"""The number of producers whose transactions overlap, and of records in each transaction."""
ABORTED = 10
"""One transaction in this number is aborted."""


class Transactions(Client):
    """A producer of transactions with the same records, which are sent to the partitions in turn.

    Queued records are sent when the transaction ends, usually as one batch for each partition.
    """

    def __init__(self, bootstrap: str, topic: str, number: int, *, partitions: int, records: int = RECORDS) -> None:
        config = {"transactional.id": f"{topic}-{number}", "bootstrap.servers": bootstrap, "linger.ms": 5}
        super().__init__(PRODUCER, topic, config)
        self._partitions, self._records = partitions, records
        self._messages, self._keep = messages_of(payloads(SIZE)[:1] * records)
        self._next = number
        self.transact("init_transactions", TIMEOUT_MS)

    def write(self) -> None:
        """Begin a transaction and queue its records."""
        self.transact("begin_transaction")
        for message in self._messages:
            message.partition = self._next = (self._next + 1) % self._partitions
        queued = self.library.rd_kafka_produce_batch(
            self.topic, -1, MESSAGE_HAS_PARTITION, self._messages, self._records
        )
        if queued < self._records:
            raise RuntimeError(f"{queued} of {self._records} records were queued")

    def commit(self) -> None:
        self.transact("commit_transaction", TIMEOUT_MS)

    def abort(self) -> None:
        """Abort a transaction whose records are in the log: librdkafka discards records that it has not sent."""
        self.flush()
        self.transact("abort_transaction", TIMEOUT_MS)


def _run_in_threads(factories: Sequence[Callable[[], Any]], work: Callable[[Any], Any]) -> tuple[list[Any], float]:
    """Make clients, and let each do its work in a thread. Return the results and the elapsed seconds."""
    with ThreadPoolExecutor(len(factories)) as pool:
        made = list(pool.map(lambda create: create(), factories))
        begin = time.perf_counter()
        results = list(pool.map(work, made))
        elapsed = time.perf_counter() - begin
        list(pool.map(lambda client: client.close(), made))
    return results, elapsed


def _factories(bootstrap: str, topic: str, count: int, **options: int) -> list[Callable[[], Transactions]]:
    return [partial(Transactions, bootstrap, topic, number, **options) for number in range(count)]


def commit_repeatedly(
    bootstrap: str, topic: str, *, seconds: float, producers: int, partitions: int
) -> dict[str, float]:
    """Let each producer commit one transaction after the other, and return their rate."""

    def work(producer: Transactions) -> int:
        done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            producer.write()
            producer.commit()
            done += 1
        return done

    counts, elapsed = _run_in_threads(_factories(bootstrap, topic, producers, partitions=partitions), work)
    return {"transactions": sum(counts), "transactions_per_s": sum(counts) / elapsed}


def latencies(bootstrap: str, topic: str, *, seconds: float, rate: int = 100) -> dict[str, float]:
    """Measure the milliseconds of `rate` commits per second, of transactions whose records are acknowledged."""
    producer = Transactions(bootstrap, topic, 0, partitions=1)
    spent = []
    begin = time.perf_counter()
    for number in range(int(seconds * rate)):
        time.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        producer.write()
        producer.flush()
        begin_commit = time.perf_counter()
        producer.commit()
        spent.append((time.perf_counter() - begin_commit) * 1000)
    producer.close()
    steady = sorted(spent[len(spent) // 10 :])  # the first tenth warms up
    return {"p50_ms": steady[len(steady) // 2], "p99_ms": steady[int(len(steady) * 0.99)]}


def long_transactions(
    bootstrap: str, topic: str, *, seconds: float, max_records: int, producers: int = 2
) -> dict[str, float]:
    """Measure one transaction per producer, as long as the round: its records, and the time until it is committed."""

    def create(number: int) -> Producer:
        config = {"transactional.id": f"{topic}-{number}", "bootstrap.servers": bootstrap, "linger.ms": 5}
        producer = Producer(topic, config, payloads(SIZE), [0])
        producer.transact("init_transactions", TIMEOUT_MS)
        return producer

    def work(producer: Producer) -> int:
        producer.transact("begin_transaction")
        sent = producer.send(seconds, max_records / producers)
        producer.transact("commit_transaction", TIMEOUT_MS)
        return sent

    counts, elapsed = _run_in_threads([partial(create, number) for number in range(producers)], work)
    return {"records": sum(counts), "seconds": elapsed, "mb_per_s": sum(counts) * SIZE / elapsed / 1e6}


def fill(bootstrap: str, topic: str, *, records: int) -> dict[str, float]:
    """Write about `records` records to one partition in overlapping transactions, one in ten of them aborted."""
    each = max(ABORTED, records // FILL_RECORDS // FILL_PRODUCERS)

    def work(producer: Transactions) -> int:
        aborted = set(random.Random(each).sample(range(each), each // ABORTED))
        for number in range(each):
            producer.write()
            producer.abort() if number in aborted else producer.commit()
        return each - len(aborted)

    committed, _ = _run_in_threads(
        _factories(bootstrap, topic, FILL_PRODUCERS, partitions=1, records=FILL_RECORDS), work
    )
    return {"records": each * FILL_PRODUCERS * FILL_RECORDS, "committed": sum(committed) * FILL_RECORDS}

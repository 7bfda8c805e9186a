"""Transactions, a consumer group and a share group under faults, and the rules for their records."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from soak.cluster.load import IMPATIENT, PATIENCE_S
from tests.server_process import wait_until

from barnabas.clients.admin import Admin, ConfigChange
from barnabas.clients.share_consumer import ShareConsumer
from barnabas.protocol.config_resources import ConfigResource, ConfigResourceType
from barnabas.protocol.errors import KafkaError as BarnabasError

Place = tuple[int, int]
"""Partition and offset."""
MAX_VIOLATIONS = 20


class ClientThreads:
    """Clients in separate threads, with the violations that they find. Leaving the context ends the clients."""

    def __init__(self, bodies: Iterable[Callable[[], None]]) -> None:
        self.violations: list[str] = []
        self.ending = threading.Event()
        self.lock = threading.Lock()
        self._threads = [threading.Thread(target=self._guarded, args=(body,)) for body in bodies]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the clients and wait for their threads."""
        self.ending.set()
        for thread in self._threads:
            thread.join()

    def violate(self, violation: str) -> None:
        """Record a violation."""
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(violation)

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            self.violate(f"client: {type(error).__name__}: {error}")


class TransactionLoad(ClientThreads):
    """Transactional producers: each transaction writes one record to each partition; every fourth is aborted."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, producers: int = 2) -> None:
        names = [f"{topic}.{number}" for number in range(producers)]
        super().__init__([lambda name=name: self._write(name) for name in names])  # type: ignore[misc]
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self.outcomes: dict[bytes, str] = {}
        """The outcome of each value, in order: "committed", "aborted" or "lost" (aborted by the cluster)."""

    @property
    def committed(self) -> int:
        """Return the number of committed transactions."""
        return Counter(self.outcomes.values())["committed"]

    def grows(self) -> None:
        """Wait until further transactions are committed."""
        before = self.committed

        def goes_on() -> bool:
            assert not self.violations, self.violations
            return self.committed > before + len(self._threads)

        wait_until(goes_on, timeout_s=PATIENCE_S, what="transactions are committed")

    def _write(self, name: str) -> None:
        settings = {"transactional.id": name, "transaction.timeout.ms": 30_000, "retry.backoff.ms": 20}
        producer = Producer({"bootstrap.servers": self._bootstrap, **IMPATIENT, **settings, "linger.ms": 1})
        self._retried(producer.init_transactions)
        number = 0
        while not self.ending.is_set():
            number += 1
            value = b"%s:%d" % (name.encode(), number)
            try:
                producer.begin_transaction()
                for partition in range(self._partitions):
                    producer.produce(self._topic, value, partition=partition)
                if number % 4:
                    self._retried(producer.commit_transaction)
                    self.outcomes[value] = "committed"
                else:
                    # librdkafka may end a transaction before its partitions are added, while the markers of the
                    # previous transaction are being written. The coordinator rejects the request, as Kafka's does,
                    # and the producer fails with a fatal error.
                    producer.flush(PATIENCE_S)
                    self._retried(producer.abort_transaction)
                    self.outcomes[value] = "aborted"
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._retried(producer.abort_transaction)
                self.outcomes[value] = "lost"
            time.sleep(0.02)

    @staticmethod
    def _retried(call: Callable[..., object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call(5.0)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def check(self) -> list[str]:
        """Return all violations: the committed records must contain each committed transaction, completely and once."""
        violations = list(self.violations)
        expected = {value for value, outcome in self.outcomes.items() if outcome == "committed"}
        order = {value: number for number, value in enumerate(self.outcomes)}
        for partition, values in read_committed(self._bootstrap, self._topic, self._partitions).items():
            found = Counter(values)
            violations += [f"transaction: {one!r} is lost in {partition}" for one in expected if not found[one]]
            violations += [f"transaction: {one!r} is {n} times in {partition}" for one, n in found.items() if n > 1]
            violations += [
                f"transaction: {one!r} is in {partition}, but was {self.outcomes.get(one)}"
                for one in found
                if one not in expected
            ]
            last: dict[bytes, int] = {}
            for value in values:
                writer = value.partition(b":")[0]
                if order.get(value, -1) < last.get(writer, -1):
                    violations.append(f"transaction: {value!r} is out of order in {partition}")
                last[writer] = order.get(value, -1)
        return violations[:MAX_VIOLATIONS]


def read_committed(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """Return the committed records of each partition in the order of their offsets."""
    settings = {"group.id": "check", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **IMPATIENT, **settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    at_end: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"committed records of {topic} are read to the end of {at_end}"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()].append(message.value())
                at_end.discard(message.partition())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    finally:
        consumer.close()
    return found


class GroupLoad(ClientThreads):
    """Two members of a consumer group that commit the offsets of the records they have read."""

    def __init__(self, bootstrap: str, topic: str, group_id: str, *, protocol: str) -> None:
        super().__init__([self._read, self._read])
        self._bootstrap, self._topic, self._group_id, self._protocol = bootstrap, topic, group_id, protocol
        self.read: set[Place] = set()
        self._committed: dict[int, int] = {}

    def _read(self) -> None:
        settings = {"group.id": self._group_id, "group.protocol": self._protocol, "enable.auto.commit": False}
        if self._protocol == "classic":
            settings |= {"session.timeout.ms": 6000}
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, **IMPATIENT, **settings, "auto.offset.reset": "earliest"}
        )
        position: dict[int, int] = {}

        def changed(_: Consumer, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                position.pop(one.partition, None)

        consumer.subscribe([self._topic], on_assign=changed, on_revoke=changed, on_lost=changed)
        unread, committed_at = 0, time.monotonic()
        while not self.ending.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._delivered(message.partition(), message.offset(), position)
                unread += 1
            if unread and (unread >= 50 or time.monotonic() > committed_at + 0.5):
                self._commit(consumer)
                unread, committed_at = 0, time.monotonic()
        consumer.close()

    def _delivered(self, partition: int, offset: int, position: dict[int, int]) -> None:
        with self.lock:
            committed = self._committed.get(partition, 0)
            if offset < committed:
                self.violate(f"group: offset {offset} of {partition} is read after the commit of {committed}")
            if partition not in position and offset and (partition, offset - 1) not in self.read:
                self.violate(f"group: {partition} begins at {offset}; offset {offset - 1} was not read")
            if offset != position.get(partition, offset):
                self.violate(f"group: offset {offset} of {partition} is read instead of {position[partition]}")
            position[partition] = offset + 1
            self.read.add((partition, offset))

    def _commit(self, consumer: Consumer) -> None:
        # A commit without a response may have succeeded. Errors during a rebalance are not failures of the cluster.
        with contextlib.suppress(KafkaException):
            results = consumer.commit(asynchronous=False)
            with self.lock:
                for one in results:
                    if one.error is None and one.offset > self._committed.get(one.partition, 0):
                        self._committed[one.partition] = one.offset

    def wait_for(self, places: Iterable[Place]) -> None:
        """Wait until the group has read all these records."""
        wanted = set(places)

        def is_done() -> bool:
            assert not self.violations, self.violations
            return wanted <= self.read

        try:
            wait_until(is_done, timeout_s=PATIENCE_S, what="the group has read all records", interval_s=0.1)
        except TimeoutError:
            self.violate(f"group: {len(wanted - self.read)} records were not read, {sorted(wanted - self.read)[:5]}")


class ShareLoad(ClientThreads):
    """Two members of a share group that accept records and sometimes release a record first.

    A former leader that has not yet received the metadata of its successor may deliver a record that is already
    accepted. Only the acknowledgement of that delivery fails.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, group_id: str) -> None:
        super().__init__([lambda: asyncio.run(self._live())])
        self._bootstrap, self._topic, self._partitions, self._group_id = bootstrap, topic, partitions, group_id
        self.accepted: set[Place] = set()
        """Acceptances with a response without an error."""
        self.requested: set[Place] = set()
        """Acceptances that were requested. An acceptance without a response may be durable."""

    async def _live(self) -> None:
        resource = ConfigResource(ConfigResourceType.GROUP, self._group_id)
        async with Admin(self._bootstrap) as admin:
            changes = {resource: [ConfigChange("share.auto.offset.reset", "earliest")]}
            await admin.alter_configs(changes)
        async with asyncio.TaskGroup() as members:
            members.create_task(self._read())
            members.create_task(self._read())

    async def _read(self) -> None:
        async with ShareConsumer(
            self._bootstrap,
            self._group_id,
            [self._topic],
            share_acknowledgement_mode="explicit",
            request_timeout_ms=5000,
            retry_backoff_max_ms=200,
        ) as consumer:
            while not self.ending.is_set():
                found = await consumer.getmany(timeout_ms=200, max_records=100)
                accepted: dict[int, list[int]] = defaultdict(list)
                again: set[Place] = set()
                for partition, records in found.items():
                    for record in records:
                        place = (partition.partition, record.offset)
                        if place in self.accepted:
                            again.add(place)
                        if record.delivery_count == 1 and record.offset % 17 == 0 and place not in self.accepted:
                            record.release()
                        else:
                            record.accept()
                            accepted[partition.partition].append(record.offset)
                            self.requested.add(place)
                if not found:
                    continue
                results = await consumer.commit(timeout_ms=20_000)
                for partition, error in results.items():
                    if error is not None:
                        continue
                    for offset in accepted[partition.partition]:
                        place = (partition.partition, offset)
                        if place in again:
                            self.violate(f"share: {place} was delivered and accepted again")
                        self.accepted.add(place)

    def wait_for(self, places: Iterable[Place]) -> None:
        """Wait until the members have accepted all these records and the coordinator reports no lag."""
        wanted = set(places)

        def is_done() -> bool:
            assert not self.violations, self.violations
            return wanted <= self.requested and asyncio.run(self._lag()) == 0

        try:
            wait_until(is_done, timeout_s=PATIENCE_S, what="the share group has accepted all records", interval_s=0.3)
        except TimeoutError:
            missing = sorted(wanted - self.requested)
            self.violate(f"share: lag {asyncio.run(self._lag())}, {len(missing)} not accepted: {missing[:5]}")

    async def _lag(self) -> int | None:
        """Return the number of records that are not acknowledged; None if a coordinator or leader does not respond."""
        async with Admin(self._bootstrap) as admin:
            found = (await admin.list_share_group_offsets([self._group_id]))[self._group_id]
            if isinstance(found, BarnabasError):
                return None
            lags = [offset.lag for offset in found.values()]
            return None if len(lags) < self._partitions or None in lags else sum(lags)

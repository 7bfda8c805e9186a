"""Clients of a cluster that has faults. Their acknowledgements and the records they read form a history to check."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from soak.sim.history import History, Place, WriterKind
from tests.java import JVM_FLAGS, java_command
from tests.kafka import NEWEST, TOOL_CLASSES, kafka_jars, logging_flags
from tests.server_process import wait_until

PATIENCE_S = 120
IMPATIENT = {
    "log_level": 0,
    "socket.timeout.ms": 5000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 5000,
    "topic.metadata.refresh.fast.interval.ms": 50,
}

JAVA_SETTINGS = {
    "enable.idempotence": "true",
    "retries": str(2**31 - 1),
    "request.timeout.ms": "5000",
    "reconnect.backoff.max.ms": "200",
}
"""Without these settings the tool does not retry."""


class Load:
    """Idempotent producers of librdkafka with acks=all in one thread, and a consumer of their records in another."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        producers: int = 2,
        per_second: int = 400,
        delivery_timeout_s: int = PATIENCE_S,
    ) -> None:
        self.history = History(kinds=defaultdict(WriterKind))
        self.acknowledged_at: dict[int, list[float]] = defaultdict(list)
        """The times (monotonic) of the acknowledgements of each partition."""
        self._unplaced: list[bytes] = []
        """Values acknowledged without an offset, as in the response to a repeated batch."""
        self._bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self._delivery_timeout_s = delivery_timeout_s
        promises = {"acks": "all", "enable.idempotence": True, "linger.ms": 2, "retry.backoff.ms": 20}
        limits = {
            "request.timeout.ms": 5000,
            "message.timeout.ms": delivery_timeout_s * 1000,
            "retry.backoff.max.ms": 200,
        }
        settings = {"bootstrap.servers": bootstrap, **IMPATIENT, **promises, **limits}
        self._producers = [Producer(settings) for _ in range(producers)]
        self._pause_s = producers / per_second
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._read)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def finish(self) -> None:
        """Stop writing, and wait until every record is acknowledged or refused."""
        self._ending.set()
        self._threads[0].join()
        for producer in self._producers:
            producer.flush(self._delivery_timeout_s)
        heard = len(self.history.acknowledged) + len(self._unplaced) + len(self.history.refused)
        unheard = len(self.history.sent) - heard
        assert unheard == 0, f"{unheard} records were neither acknowledged nor refused"

    def read_back(self, read: Callable[[str, str, int], Mapping[Place, bytes]] | None = None) -> History:
        """Add the records that `read` returns (default: `read_log`), and return the whole history."""
        history = self.history
        history.final.update((read or read_log)(self._bootstrap, self.topic, self.partitions))
        places = {value: place for place, value in history.final.items()}
        history.acknowledged.update({value: places.get(value, (-1, -1)) for value in self._unplaced})
        return history

    def grows(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until every partition has acknowledged further records."""
        before = {index: len(self.acknowledged_at[index]) for index in range(self.partitions)}

        def more() -> bool:
            return all(len(self.acknowledged_at[index]) > count for index, count in before.items())

        wait_until(more, timeout_s=timeout_s, what="records of every partition are acknowledged")

    def grows_to(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until this number of records is acknowledged."""

        def enough() -> bool:
            return sum(map(len, self.acknowledged_at.values())) >= count

        wait_until(enough, timeout_s=timeout_s, what=f"{count} records are acknowledged")

    def longest_gap_s(self, since: float) -> float:
        """Return the longest time after `since` without an acknowledgement from a partition."""
        gaps = [0.0]
        for moments in self.acknowledged_at.values():
            later = [moment for moment in moments if moment >= since]
            gaps += [after - before for before, after in zip([since, *later], later, strict=False)]
        return max(gaps)

    def _write(self) -> None:
        number = 0
        while not self._ending.is_set():
            for writer, producer in enumerate(self._producers):
                partition = number // len(self._producers) % self.partitions
                value = b"%d:" % number + bytes(number % 200)
                self.history.sent[value] = f"{writer}-{partition}"
                producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                producer.poll(0)
                number += 1
            time.sleep(self._pause_s)
        while any(len(producer) for producer in self._producers) and not self._gave_up():
            for producer in self._producers:
                producer.poll(0.01)

    def _gave_up(self) -> bool:
        return bool(self.history.refused)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes) and partition is not None
        if error is not None:
            self.history.refused[value] = error.str()
            return
        if offset is None:
            self._unplaced.append(value)
        else:
            self.history.acknowledged[value] = (partition, offset)
        self.acknowledged_at[partition].append(time.monotonic())

    def _read(self) -> None:
        reads: list[tuple[int, int, bytes]] = []
        self.history.seen.append(reads)
        settings = {"group.id": "readers", "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **IMPATIENT, **settings})
        consumer.assign([TopicPartition(self.topic, index, 0) for index in range(self.partitions)])
        while not self._ending.is_set():
            for message in consumer.consume(500, timeout=0.1):
                value, partition, offset = message.value(), message.partition(), message.offset()
                if message.error() is None:
                    assert isinstance(value, bytes) and partition is not None and offset is not None
                    reads.append((partition, offset, value))
                elif message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    reads.append((partition or 0, -1, message.error().str().encode()))
        consumer.close()


class JavaLoad:
    """kafka-verifiable-producer 4.4.0: Java's idempotent producer with acks=all. It prints its acknowledgements."""

    def __init__(self, bootstrap: str, topic: str, *, delivery_timeout_s: int = PATIENCE_S) -> None:
        flags = [*JVM_FLAGS, *logging_flags(NEWEST, "error")]
        limits = ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "100", "--acks", "-1"]
        self._folder = tempfile.TemporaryDirectory()
        settings = Path(self._folder.name, "producer.properties")
        wanted = {**JAVA_SETTINGS, "delivery.timeout.ms": str(delivery_timeout_s * 1000)}
        settings.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
        limits += ["--producer.config", str(settings)]
        command = java_command(TOOL_CLASSES["kafka-verifiable-producer"], kafka_jars(NEWEST), limits, flags)
        self.acknowledged: dict[bytes, Place] = {}
        self.refused: dict[bytes, str] = {}
        self._is_up = False
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            if event["name"] == "startup_complete":
                self._is_up = True
            elif event["name"] == "producer_send_success":
                self.acknowledged[event["value"].encode()] = (event["partition"], event["offset"])
            elif event["name"] == "producer_send_error":
                self.refused[event["value"].encode()] = event["message"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait_until_it_writes(self) -> None:
        # On a busy machine Java takes long to start, before it connects to a broker.
        wait_until(lambda: self._is_up, timeout_s=PATIENCE_S, what="Java's producer has started")
        wait_until(lambda: bool(self.acknowledged), timeout_s=60, what="a record of Java's producer is acknowledged")

    def finish(self) -> None:
        """Stop writing, and wait until every record is acknowledged or refused."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def add_to(self, history: History) -> None:
        """Add the acknowledgements. Values are numbers in the order of the calls; the producer chose the partitions."""
        history.acknowledged.update(self.acknowledged)
        history.refused.update(self.refused)
        found = {value: place[0] for place, value in history.final.items() if value.isdigit()}
        promised = {value: partition for value, (partition, _) in self.acknowledged.items()}
        for value, partition in sorted({**promised, **found}.items(), key=lambda item: int(item[0])):
            history.sent[value] = f"java-{partition}"


def read_log(bootstrap: str, topic: str, partitions: int) -> dict[Place, bytes]:
    """Return the committed records from the start of each partition to its end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **IMPATIENT, "group.id": "check", "enable.auto.commit": False})
    found: dict[Place, bytes] = {}
    deadline = time.monotonic() + PATIENCE_S
    try:
        for index in range(partitions):
            position, end = _bounds(consumer, TopicPartition(topic, index))
            consumer.assign([TopicPartition(topic, index, position)])
            while position < end:
                assert time.monotonic() < deadline, f"{topic}-{index} is read to {position}, not to {end}"
                for message in consumer.consume(10_000, timeout=0.2):
                    value, offset = message.value(), message.offset()
                    assert message.error() is None and isinstance(value, bytes) and offset is not None, message.error()
                    found[index, offset] = value
                    position = offset + 1
    finally:
        consumer.close()
    return found


def _bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the log start offset and the log end offset of a partition, and retry while its leader changes."""
    found: list[tuple[int, int]] = []

    def known() -> bool:
        with contextlib.suppress(KafkaException):
            found.append(consumer.get_watermark_offsets(place, timeout=60))
        return bool(found)

    wait_until(known, timeout_s=PATIENCE_S, what=f"the bounds of {place.topic}-{place.partition}", interval_s=0.2)
    return found[0]

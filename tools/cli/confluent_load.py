"""The same load through librdkafka: the throughput of an application with a fast client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck

from .load import LoadResult, Workload, record_value

_CHUNK = 1000
_QUIET_SECONDS = 10
_MOST = 10_000


def produce(bootstrap: str, workload: Workload, progress: Callable[[float], None]) -> LoadResult:
    """Produce for `seconds`; every record is acknowledged when this returns. Raises KafkaException."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": workload.acks,
            "compression.type": workload.codec,
            "batch.size": max(workload.batch_size, 16_384),
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 256 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = record_value(workload.record_size)
    measured = LoadResult()
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < workload.seconds:
        progress(elapsed / workload.seconds)
        for _ in range(_CHUNK):
            try:
                producer.produce(
                    workload.topic, value, partition=measured.records % workload.partitions, on_delivery=delivered
                )
            except BufferError:
                producer.poll(0.01)
            else:
                measured.records += 1
        producer.poll(0)
    producer.flush()
    measured.seconds = time.perf_counter() - started
    measured.bytes = measured.records * workload.record_size
    if failed:
        raise ck.KafkaException(failed[0])
    return measured


def fetch(bootstrap: str, workload: Workload, progress: Callable[[float], None]) -> LoadResult:
    """Read all records from the beginning once. Raises KafkaException, TimeoutError if no more records arrive."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": workload.topic,
            "enable.auto.commit": False,
            "fetch.max.bytes": 64 << 20,
        }
    )
    partitions = [ck.TopicPartition(workload.topic, index, ck.OFFSET_BEGINNING) for index in range(workload.partitions)]
    total = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    measured = LoadResult()
    started = time.perf_counter()
    while measured.records < total:
        messages = consumer.consume(min(_MOST, total - measured.records), timeout=_QUIET_SECONDS)
        if not messages:
            raise TimeoutError(f"no record for {_QUIET_SECONDS} s")
        for message in messages:
            if message.error() is not None:
                raise ck.KafkaException(message.error())
        measured.records += len(messages)
        progress(measured.records / (total or 1))
    measured.seconds = time.perf_counter() - started
    measured.bytes = measured.records * workload.record_size
    consumer.close()
    return measured

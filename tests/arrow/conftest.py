"""What the tests of `barnabas.arrow` share: a broker, and folders of segments written batch by batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Broker
from barnabas.protocol.record_batch import RecordBatchBuilder

try:
    import pyarrow  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_*"]
    if os.environ.get("CI") == "true":
        raise

BEGIN_MS = 1_700_000_000_000
KEEP_ALL = {"log.retention.ms": "-1"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=KEEP_ALL) as broker:
        yield broker


def produce(broker: Broker, topic: str, rows: Iterable[dict[str, Any]], **settings: str) -> None:
    """Write with librdkafka; a row is the keyword arguments of its `produce`."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0, **settings})
    for row in rows:
        while True:
            try:
                producer.produce(topic, **row)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def batch(
    first: int, count: int, *, codec: int = 0, producer: int = -1, transactional: bool = False, size: int = 0
) -> bytes:
    """A batch whose records are known by their offsets: key, value, a header, and one second between them."""
    builder = RecordBatchBuilder(
        base_offset=first, codec=codec, producer_id=producer, producer_epoch=0, is_transactional=transactional
    )
    for offset in range(first, first + count):
        value = b"v%d" % offset + b"x" * size
        builder.append(b"k%d" % offset, value, [("h", b"%d" % offset)], BEGIN_MS + 1000 * offset, offset)
    return builder.build()


def folder_of(root: Path, *segments: tuple[int, bytes], name: str = "t-0") -> Path:
    """Write segments by base offset, without indexes."""
    folder = root / name
    folder.mkdir()
    for base, data in segments:
        (folder / f"{base:020}.log").write_bytes(data)
    return folder

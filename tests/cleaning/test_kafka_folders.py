"""Folders that Apache Kafka wrote for Java clients, cleaned by its broker and by our cleaner: the same is left.

And Kafka's tools accept what our cleaner wrote, and a Kafka broker serves it.
"""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from soak.cleaning.contents import BatchRow, RecordRow, batches_of, data_records, latest, markers, tombstones
from soak.cleaning.promises import verify_all_indexes
from tests.cleaning.kafka_broker import CompactingKafka, Filling, compacting_kafka
from tests.compat.test_kafka_files import COMPLAINTS
from tests.kafka import CLEANER_REFERENCE, LAST_WITH_ZOOKEEPER, KafkaTools
from tests.nightly import mark_rest_nightly
from tests.server_process import wait_until

from barnabas.storage.cleaning.clean_job import GroupCleaned, PassFinished
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.log_to_clean import CleanerSettings, log_to_clean
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(900)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALLEST_SEGMENT = 1_048_576
"""Kafka 4 has no smaller ones."""
RETENTION_MS = 4000

MODERN = [
    *(Filling(f"{codec}-100b-90", codec, "idempotent", 100, 90, 20_000) for codec in CODECS),
    Filling("none-1k-90", "none", "plain", 1000, 90, 4000),
    Filling("none-1k-10", "none", "plain", 1000, 10, 4000),
    Filling("zstd-1k-10", "zstd", "idempotent", 1000, 10, 4000),
    Filling("none-100b-10", "none", "idempotent", 100, 10, 24_000),
    *(Filling(f"{codec}-transactions", codec, "transactional", 100, 90, 30_000) for codec in ("none", "lz4")),
]
LEGACY = [
    *(Filling(f"{codec}-90", codec, "plain", 100, 90, 3000) for codec in CODECS[:-1]),
    Filling("none-1k-10", "none", "plain", 1000, 10, 1000),
    Filling("gzip-10", "gzip", "plain", 100, 10, 3000),
]


@dataclass(frozen=True)
class Stage:
    """The folders of all topics before a cleaning and after it."""

    dirty: Path
    cleaned: Path
    clean_offsets: dict[str, int]
    """What the cleaner's checkpoint said before."""
    delete_retention_ms: int
    segment_bytes: int


def checkpointed(folder: Path) -> dict[str, int]:
    """The offsets in a cleaner's checkpoint, by topic."""
    path = folder / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {topic: int(offset) for topic, _, offset in (line.split() for line in lines)}


def stage(kafka: CompactingKafka, topics: list[str], folder: Path, retention_ms: int, segment_bytes: int) -> Stage:
    """Stop Kafka and keep what is there, let it clean, stop it and keep that; it runs again afterwards."""
    dirty, cleaned = folder / "dirty", folder / "cleaned"
    for path in (dirty, cleaned):
        path.mkdir(parents=True)
    kafka.stop_and_copy(topics, dirty)
    kafka.server.start()
    kafka.let_clean(topics)
    kafka.stop_and_copy(topics, cleaned)
    kafka.server.start()
    return Stage(dirty, cleaned, checkpointed(dirty), retention_ms, segment_bytes)


def stages(version: str, folder: Path, fillings: list[Filling], settings: dict[str, str]) -> list[Stage]:
    """Fill topics and have them cleaned; write more when the tombstones of the first round may go, and clean again."""
    topics = [filling.topic for filling in fillings]
    segment_bytes = int(settings["segment.bytes"])
    found = []
    with compacting_kafka(folder, version) as kafka:
        kafka.create(topics, {**settings, "delete.retention.ms": str(RETENTION_MS)})
        kafka.fill(fillings)
        found.append(stage(kafka, topics, folder / "first", RETENTION_MS, segment_bytes))
        first_cleaned = time.monotonic()
        wait_until(
            lambda: time.monotonic() - first_cleaned > 1.2 * RETENTION_MS / 1000,
            timeout_s=60,
            what="the horizon of the first round has passed",
        )
        kafka.fill(fillings, seed=2)
        found.append(stage(kafka, topics, folder / "second", RETENTION_MS, segment_bytes))
    return found


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Stage]]:
    """Kafka 4.1: format v2, every codec, idempotent and transactional producers."""
    folder = tmp_path_factory.mktemp("modern")
    yield stages(CLEANER_REFERENCE, folder, MODERN, {"segment.bytes": str(SMALLEST_SEGMENT)})


@pytest.fixture(scope="module", params=mark_rest_nightly(("0.9.0", "0.10.0"), 1))
def legacy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Stage]]:
    """Kafka 3.9 writing v0 and v1, wrapper messages included."""
    folder = tmp_path_factory.mktemp("legacy")
    settings = {"segment.bytes": "60000", "message.format.version": request.param}
    yield stages(LAST_WITH_ZOOKEEPER, folder, LEGACY, settings)


def clean_with_ours(one: Stage, topic: str, to: Path) -> Path:
    """A copy of a dirty folder, cleaned by our cleaner as often as it takes."""
    folder = to / f"{topic}-0"
    shutil.copytree(one.dirty / f"{topic}-0", folder)
    fs = OsFileSystem()
    config = LogConfig(
        cleanup_policy="compact", segment_bytes=one.segment_bytes, delete_retention_ms=one.delete_retention_ms
    )
    log = Log.open(
        str(folder),
        config=config,
        fs=fs,
        now_ms=lambda: time.time_ns() // 1_000_000,
        rng=random.Random(0),
        recovery_point=0,
        log_start_offset=0,
        clean_shutdown=False,
    )
    log.update_high_watermark(log.log_end_offset)
    clean_offset = one.clean_offsets.get(topic, 0)
    now_ms = time.time_ns() // 1_000_000
    while (found := log_to_clean(log.topic_partition, log, clean_offset, now_ms)).is_cleanable:
        for event in clean(found.job(CleanerSettings(), now_ms), fs, lambda size: None):
            if isinstance(event, GroupCleaned):
                for path in log.begin_swap([event.base_offset]).run(event.replaced):
                    fs.unlink(path)
            elif isinstance(event, PassFinished):
                clean_offset = event.next_dirty_offset
    log.close()
    return folder


def without_clock(row: BatchRow) -> BatchRow:
    """Whether there is a horizon, not when: the two cleaners ran at different times."""
    return row._replace(delete_horizon_ms=None if row.delete_horizon_ms is None else 0)


def as_kept(records: list[RecordRow]) -> set[tuple[int, bytes | None, bytes | None]]:
    return {(record.offset, record.key, record.value) for record in records}


def compare(one: Stage, topic: str, to: Path) -> Path:
    """Our result has the records, tombstones, markers and batches of Kafka's, and is smaller than what was there."""
    folder = clean_with_ours(one, topic, to)
    before, theirs = batches_of(str(one.dirty / f"{topic}-0")), batches_of(str(one.cleaned / f"{topic}-0"))
    ours = batches_of(str(folder))
    assert as_kept(data_records(ours)) == as_kept(data_records(theirs)), topic
    assert tombstones(ours) == tombstones(theirs), topic
    assert markers(ours) == markers(theirs), topic
    assert [without_clock(row) for row in ours] == [without_clock(row) for row in theirs], topic
    assert len(data_records(ours)) < len(data_records(before)), topic
    verify_all_indexes(OsFileSystem(), str(folder))
    return folder


def test_every_folder_of_kafka_4_is_cleaned_alike(modern: list[Stage], tmp_path: Path) -> None:
    first, second = modern
    for filling in MODERN:
        compare(first, filling.topic, tmp_path / "first")
        compare(second, filling.topic, tmp_path / "second")
        gone = tombstones(batches_of(str(second.dirty / f"{filling.topic}-0"))) - tombstones(
            batches_of(str(second.cleaned / f"{filling.topic}-0"))
        )
        assert gone, f"{filling.topic}: no tombstone was due, so the second round shows nothing"


def test_every_folder_of_old_formats_is_cleaned_alike(legacy: list[Stage], tmp_path: Path) -> None:
    for number, one in enumerate(legacy):
        for filling in LEGACY:
            compare(one, filling.topic, tmp_path / str(number))


def test_transactions_were_committed_and_aborted(modern: list[Stage]) -> None:
    """The folders have what they are there for."""
    rows = batches_of(str(modern[0].dirty / "none-transactions-0"))
    ends = [record.key for row in rows if row.is_control for record in row.records]
    assert {key[3] for key in ends if key} == {0, 1}, "markers of commits and aborts"
    assert len({row.producer for row in rows if row.is_transactional}) > 50
    kept = batches_of(str(modern[0].cleaned / "none-transactions-0"))
    assert len(aborted_offsets(kept)) < len(aborted_offsets(rows)), "aborted records that went"


def test_kafkas_tools_accept_our_segments(modern: list[Stage], tmp_path: Path) -> None:
    tools = KafkaTools()
    folders = [clean_with_ours(modern[1], filling.topic, tmp_path) for filling in MODERN]
    logs = ",".join(str(path) for folder in folders for path in sorted(folder.glob("*.log")))
    text = tools.output("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", logs)
    # Gaps between offsets are what compaction leaves.
    complaints = [line for line in text.splitlines() if COMPLAINTS.search(line) and "on-consecutive" not in line]
    assert not complaints, complaints[:5]
    printed = len(re.findall(r"^\| offset: ", text, re.MULTILINE))
    held = sum(len(row.records) for folder in folders for row in batches_of(str(folder)))
    assert printed == held
    indexes = ",".join(str(path) for folder in folders for path in sorted(folder.glob("*index")) if path.stat().st_size)
    for check in ("--index-sanity-check", "--verify-index-only"):
        text = tools.output("kafka-dump-log", check, "--files", indexes)
        found = [line for line in text.splitlines() if COMPLAINTS.search(line)]
        assert not found, (check, found[:5])


def test_a_kafka_broker_serves_what_ours_cleaned(modern: list[Stage], tmp_path: Path) -> None:
    names = [filling.topic for filling in MODERN]
    folders = {name: clean_with_ours(modern[0], name, tmp_path / "ours") for name in names}
    with compacting_kafka(tmp_path, CLEANER_REFERENCE) as kafka:
        kafka.create(names, {})
        for name in names:
            wait_until((kafka.server.log_dir / f"{name}-0").is_dir, timeout_s=60, what=f"the folder of {name}")
        kafka.server.stop()
        for name, folder in folders.items():
            place = kafka.server.log_dir / f"{name}-0"
            identity = (place / "partition.metadata").read_bytes()
            shutil.rmtree(place)
            shutil.copytree(folder, place)
            (place / "partition.metadata").write_bytes(identity)
        kafka.server.start()
        for name, folder in folders.items():
            assert read_map(kafka.server.bootstrap, name) == stable_map(batches_of(str(folder))), name
        problems = [line for line in kafka.server.log_tail().splitlines() if " ERROR " in line]
        assert not problems, problems


def aborted_offsets(rows: list[BatchRow]) -> set[int]:
    """Offsets of the records whose transactions end with the marker of an abort."""
    ends = [(row.producer[0], row.base_offset, row.records[0].key) for row in rows if row.is_control and row.records]
    aborted: set[int] = set()
    for row in rows:
        if row.is_transactional and not row.is_control:
            own = (key for producer, at, key in ends if producer == row.producer[0] and at > row.last_offset)
            end = next(own, None)
            if end is not None and end[3] == 0:
                aborted.update(record.offset for record in row.records)
    return aborted


def stable_map(rows: list[BatchRow]) -> dict[bytes | None, bytes]:
    """What a reader of committed records ends with."""
    aborted = aborted_offsets(rows)
    return latest(record for record in data_records(rows) if record.offset not in aborted)


def read_map(bootstrap: str, topic: str) -> dict[bytes | None, bytes]:
    """What a consumer of committed records that fills a map ends with."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: dict[bytes | None, bytes] = {}
    deadline = time.monotonic() + 60
    is_over = False
    while not is_over and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                is_over = True
            elif message.value() is None:
                found.pop(message.key(), None)
            else:
                found[message.key()] = message.value()
    consumer.close()
    assert is_over, f"the end of {topic} was not reached"
    return found

"""Apache Kafka's own DumpLogSegments finds nothing to complain about in folders of every format and codec."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.java import run_java
from tests.kafka import TOOL_CLASSES, kafka_jars, logging_flags
from tests.storage.lanes import load, shut_down

from barnabas.protocol.compression import Compression
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.dump import dump_file, verify_indexes
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager
from barnabas.storage.log_validator import COORDINATOR_RULES, AppendRules

NOW_MS = 1_700_000_000_000
NEWEST = "4.4.0"
NO_OFFSET_BEFORE = re.compile(r"Non-consecutive offsets in \S+\n +-1 is followed by \d+\n(?! +\d+ is followed by)")
"""Kafka 4.4.0 takes -1 for the offset before the first record of a file."""
COMPLAINT = re.compile(r"mismatch|exception|non-?(con)?secutive|out of order|isvalid: false|invalid bytes|error", re.I)
FORMAT_OF_MAGIC = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
CODECS_OF_MAGIC = {0: 4, 1: 4, 2: 5}
FORMATS = [(magic, codec) for magic, count in CODECS_OF_MAGIC.items() for codec in list(Compression)[:count]]

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


def topic(magic: int, codec: Compression) -> str:
    return f"v{magic}-{codec.name.lower()}"


def config_for(name: str) -> LogConfig:
    magic = int(name[1])
    return LogConfig(
        segment_bytes=20_000, index_interval_bytes=500, message_format_version=FORMAT_OF_MAGIC[magic], retention_ms=-1
    )


def records(first: int) -> Iterator[Record]:
    for index in range(first, first + 10):
        key = None if index % 7 == 0 else b"key %d" % index
        value = None if index % 11 == 0 else b"value %d " % index * 10
        yield Record(index - first, NOW_MS + index, key, value)


def produced(magic: int, codec: Compression, number: int) -> bytes:
    if magic < 2:
        return build_message_set(records(number * 10), magic=magic, codec=codec)
    builder = RecordBatchBuilder(codec=codec, producer_id=9, producer_epoch=0, base_sequence=number * 10)
    for record in records(number * 10):
        builder.append(record.key, record.value, [("header", b"value"), ("null", None)], record.timestamp)
    return builder.build()


def transact(log: Log) -> None:
    """A committed and an aborted transaction."""
    for producer_id, outcome in ((50, ControlType.COMMIT), (51, ControlType.ABORT)):
        builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        builder.append(b"k", b"v", (), NOW_MS)
        log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=3)
        end = control_batch(outcome, producer_id=producer_id, producer_epoch=0, coordinator_epoch=4, timestamp=NOW_MS)
        log.append_as_leader(memoryview(bytearray(end)), leader_epoch=3, rules=COORDINATOR_RULES)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a partition per format and codec; stopped cleanly, or killed and started once more."""
    root = tmp_path_factory.mktemp("logs")
    for start in range(1 if request.param == "stopped" else 2):
        manager = LogManager(
            [str(root)], fs=OsFileSystem(), config_for=config_for, now_ms=lambda: NOW_MS, rng=random.Random(1)
        )
        manager.open_dirs()
        manager.write_identity(1, "cluster")
        load(manager)
        for magic, codec in FORMATS:
            log = manager.creation.get_or_create_log(TopicPartition(topic(magic, codec), 0))
            numbers = range(start * 40, start * 40 + 40)
            for number in numbers:
                buffer = bytearray(produced(magic, codec, number))
                log.append_as_leader(memoryview(buffer), leader_epoch=start, rules=AppendRules())
            if magic == 2 and codec == Compression.NONE and start == 0:
                transact(log)
        if request.param == "killed" and start == 0:
            manager.close()
        else:
            shut_down(manager)
    return root


def kafka_dump(files: list[Path], *options: str) -> str:
    arguments = [*options, "--files", ",".join(map(str, files))]
    flags = logging_flags(NEWEST, "warn")
    result = run_java(TOOL_CLASSES["kafka-dump-log"], kafka_jars(NEWEST), arguments, timeout=200, flags=flags)
    assert result.returncode == 0, result.stdout + result.stderr
    printed = NO_OFFSET_BEFORE.sub("", result.stdout + result.stderr)
    complaints = [line for line in printed.splitlines() if COMPLAINT.search(line)]
    assert not complaints, complaints[:5]
    return result.stdout


def test_kafka_reads_every_record(folder: Path) -> None:
    logs = sorted(folder.glob("v*/*.log"))
    text = kafka_dump(logs, "--deep-iteration")
    assert len(logs) > len(FORMATS)
    ours = [str(entry) for log in logs for entry in dump_file(OsFileSystem(), str(log), deep_iteration=True)]
    assert text.count("| offset:") == sum(1 for line in ours if line.startswith("| offset:"))


def test_the_dump_says_of_each_batch_what_kafka_says(folder: Path) -> None:
    logs = sorted(folder.glob("v2*/*.log"))
    text = kafka_dump(logs, "--deep-iteration")
    ours = [str(entry) for log in logs for entry in dump_file(OsFileSystem(), str(log), deep_iteration=True)]
    assert batch_checksums(text.splitlines()) == batch_checksums(ours)


def batch_checksums(lines: list[str]) -> list[str]:
    """The checksum of each batch in a dump."""
    return re.findall(r"crc: (\d+)", "\n".join(line for line in lines if line.startswith("baseOffset:")))


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_finds_the_indexes_sane(folder: Path, option: str) -> None:
    indexes = sorted([*folder.glob("v*/*.index"), *folder.glob("v*/*.timeindex")])
    assert len(indexes) > 2 * len(FORMATS)
    kafka_dump(indexes, option)


def test_kafka_reads_the_other_files(folder: Path) -> None:
    snapshots, aborted = sorted(folder.glob("v2*/*.snapshot")), sorted(folder.glob("v2*/*.txnindex"))
    assert "producerId: 9" in kafka_dump(snapshots)
    assert "producerId: 51" in kafka_dump(aborted)


def test_our_own_reading_agrees(folder: Path) -> None:
    for log in folder.glob("v*/*.log"):
        assert list(verify_indexes(OsFileSystem(), str(log))) == []

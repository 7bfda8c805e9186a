"""Our records against Apache Kafka's: each reads what the other wrote, in every format, with every codec."""

import random
from pathlib import Path

import pytest
from tests.java import compile_for_kafka, jars, run_java

from barnabas.protocol.compression import Compression
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record, TimestampType
from barnabas.protocol.record_batch import (
    Batch,
    ControlType,
    RecordBatch,
    RecordBatchBuilder,
    control_batch,
    iter_batches,
)
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_validator import AppendRules, validate_messages_and_assign_offsets
from barnabas.storage.record_conversion import down_convert

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

RELEASES = ("3.9.1", "4.4.0")
CODEC_NAMES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FORMATS = [
    (magic, codec, time_type)
    for magic, time_types in (
        (0, ["NoTimestampType"]),
        (1, ["CreateTime", "LogAppendTime"]),
        (2, ["CreateTime", "LogAppendTime"]),
    )
    for codec in CODEC_NAMES
    for time_type in time_types
    if magic == 2 or codec != "zstd"
]


def ask(release: str, questions: list[str]) -> list[str]:
    classpath = jars(f"org.apache.kafka:kafka-clients:{release}")
    classes = compile_for_kafka(Path(__file__).parent / "java_records", classpath, release)
    result = run_java("RecordOracle", [classes, *classpath], stdin="\n".join(questions) + "\n")
    assert result.returncode == 0, result.stderr
    answers = result.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def hexed(data: bytes | None) -> str:
    return "null" if data is None else data.hex()


def describe_batch(batch: Batch) -> str:
    assert batch.is_valid
    head = (
        f"batch,{batch.magic},{batch.codec},{int(batch.timestamp_type)},{batch.max_timestamp},{batch.base_offset},"
        f"{batch.last_offset},{batch.producer_id},{batch.producer_epoch},{batch.base_sequence},"
        f"{batch.partition_leader_epoch},{batch.is_transactional},{batch.is_control};"
    ).replace("True", "true")
    lines = [head.replace("False", "false")]
    for offset, timestamp, key, value, headers in batch.records():
        fields = [str(offset), str(timestamp), hexed(key), hexed(value)]
        fields += [f"{name.encode().hex()}={hexed(content)}" for name, content in headers]
        lines.append(",".join(fields) + ";")
    return "".join(lines)


def describe(records: bytes | memoryview) -> str:
    batches = list(iter_batches(records))
    assert sum(batch.size for batch in batches) == len(records)
    return "".join(map(describe_batch, batches))


@pytest.mark.parametrize("release", RELEASES)
def test_we_read_what_kafka_wrote(release: str) -> None:
    questions = [
        f"write {seed} {magic} {codec} {time_type}" for seed in range(4) for magic, codec, time_type in FORMATS
    ]
    questions += [f"marker {seed}" for seed in range(4)]
    for question, answer in zip(questions, ask(release, questions), strict=True):
        data, _, expected = answer.partition(" ")
        assert data != "error", (question, expected)
        assert describe(bytes.fromhex(data)) == expected, question


def random_records(rng: random.Random, base_offset: int, *, with_headers: bool, with_timestamps: bool) -> list[Record]:
    def some_bytes(most: int) -> bytes | None:
        if rng.random() < 0.2:
            return None
        size = rng.randrange(most)
        return rng.randbytes(size) if rng.random() < 0.5 else b"ab" * (size // 2)

    count = rng.choice([1, 2, 5, 150])
    return [
        Record(
            base_offset + i,
            1_700_000_000_000 + rng.randrange(-50_000, 50_000) if with_timestamps else -1,
            some_bytes(30),
            some_bytes(rng.choice([100] * 40 + [70_000])),
            tuple((f"höader{i}", some_bytes(50)) for i in range(rng.choice([0, 0, 1, 3]))) if with_headers else (),
        )
        for i in range(count)
    ]


def our_batch(rng: random.Random, codec: int, log_append_time: int | None) -> bytes:
    has_id = rng.random() < 0.5
    builder = RecordBatchBuilder(
        codec=codec,
        base_offset=rng.randrange(1 << 40),
        partition_leader_epoch=rng.randrange(100),
        producer_id=rng.randrange(1 << 40) if has_id else -1,
        producer_epoch=rng.randrange(100) if has_id else -1,
        base_sequence=rng.randrange(1 << 31) if has_id else -1,
        is_transactional=has_id and rng.random() < 0.5,
        log_append_time=log_append_time,
    )
    for record in random_records(rng, 0, with_headers=True, with_timestamps=True):
        assert builder.append(record.key, record.value, record.headers, record.timestamp)
    return builder.build()


def our_records() -> list[bytes]:
    rng = random.Random(20)
    made = []
    for _ in range(3):
        for codec in Compression:
            made += [our_batch(rng, codec, append_time) for append_time in (None, 1_700_000_001_234)]
            for magic in (0, 1) if codec != Compression.ZSTD else ():
                for time_type in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)[: magic + 1]:
                    records = random_records(
                        rng, rng.randrange(1, 1 << 40), with_headers=False, with_timestamps=magic == 1
                    )
                    made.append(build_message_set(records, magic=magic, codec=codec, timestamp_type=time_type))
    made += [
        control_batch(
            control_type,
            producer_id=77,
            producer_epoch=3,
            coordinator_epoch=9,
            timestamp=1_700_000_000_000,
            base_offset=55,
            partition_leader_epoch=4,
        )
        for control_type in (ControlType.ABORT, ControlType.COMMIT)
    ]
    return made


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_reads_what_we_wrote(release: str) -> None:
    made = our_records()
    for data, answer in zip(made, ask(release, [f"read {data.hex()}" for data in made]), strict=True):
        assert answer == describe(data)


def test_kafka_reads_what_was_validated_recompressed_or_converted() -> None:
    rng = random.Random(21)
    made: list[bytes] = []
    for codec in Compression:
        for wanted in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"):
            for time_type in ("CreateTime", "LogAppendTime"):
                config = LogConfig(
                    compression_type=wanted, message_timestamp_type=time_type, max_message_bytes=100_000_000
                )
                produced = bytearray(our_batch(rng, codec, None))
                produced[:8] = bytes(8)
                sources = [produced]
                if codec != Compression.ZSTD:
                    records = random_records(rng, 0, with_headers=False, with_timestamps=True)
                    sources += [bytearray(build_message_set(records, magic=magic, codec=codec)) for magic in (0, 1)]
                for source in sources:
                    result = validate_messages_and_assign_offsets(
                        memoryview(source),
                        AppendRules(),
                        base_offset=1234,
                        now_ms=1_700_000_000_000,
                        config=config,
                        leader_epoch=7,
                    )
                    made.append(bytes(result.records))
                    if next(iter_batches(result.records)).codec != Compression.ZSTD:
                        made += [down_convert(result.records, magic, fetch_offset=1234) for magic in (0, 1)]
    for data, answer in zip(made, ask(RELEASES[0], [f"read {data.hex()}" for data in made]), strict=True):
        assert answer == describe(data)


def test_markers_say_what_they_should() -> None:
    for answer in ask(RELEASES[-1], [f"marker {seed}" for seed in range(20)]):
        data, _, _ = answer.partition(" ")
        (batch,) = iter_batches(bytes.fromhex(data))
        assert isinstance(batch, RecordBatch) and batch.end_marker is not None

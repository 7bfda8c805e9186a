"""Apache Kafka and the broker on each other's files: Kafka's dump-log and broker on ours, ours on Kafka's."""

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.test_java import program
from tests.java import require_java, run_java
from tests.kafka import LAST_WITH_ZOOKEEPER, NEWEST, KafkaServer, KafkaTools, ZooKeeperServer
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPLAINTS = re.compile(
    r"mismatch|non-?consecutive|non-?secutive|out of order|isvalid: false|exception|error", re.IGNORECASE
)

Rows = list[tuple[bytes | None, bytes | None, int]]


def create(bootstrap: str, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result(30)


def fill(bootstrap: str, topic: str, codec: str, *, partition: int = 0, count: int = 500) -> Rows:
    """Write `count` records with keys, timestamps and some nulls, and return them as they have to come back."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "batch.num.messages": 20}
    )
    begin = 1_700_000_000_000
    rows: Rows = []
    failed: list[object] = []
    for number in range(count):
        key = None if number % 7 == 0 else b"key %d" % number
        value = None if number % 11 == 0 else b"%s value %d " % (codec.encode(), number) + b"x" * 100
        rows.append((key, value, begin + number))
        producer.produce(
            topic,
            key=key,
            value=value,
            timestamp=begin + number,
            partition=partition,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
        if number % 100 == 99:
            producer.flush(30)
    assert producer.flush(30) == 0
    assert not failed, failed[0]
    return rows


def read(bootstrap: str, topic: str, count: int, partition: int = 0) -> Rows:
    """The first `count` records of a partition; their offsets must be 0, 1, 2, ..."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.list_topics(topic, timeout=30)  # who knows no leader yet asks for offsets after half a second
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    rows: Rows = []
    deadline = time.monotonic() + 60
    while len(rows) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(rows), 0.5):
            assert not message.error(), message.error()
            assert message.offset() == len(rows)
            rows.append((message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    assert len(rows) == count, f"{len(rows)} of {count} records came"
    return rows


@pytest.fixture(scope="module")
def tools() -> KafkaTools:
    require_java()
    return KafkaTools()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Our log directory after a clean stop: a topic for each codec, one by the 0.8 client, one of many segments."""
    require_java()
    folder = tmp_path_factory.mktemp("written")
    with BarnabasServer(folder) as server:
        for codec in CODECS:
            create(server.bootstrap, f"codec-{codec}", config={"index.interval.bytes": "100"})
            fill(server.bootstrap, f"codec-{codec}", codec)
        create(server.bootstrap, "segments", config={"segment.bytes": "20000", "index.interval.bytes": "200"})
        fill(server.bootstrap, "segments", "none", count=2000)
        classpath = program(("v0_8", "report"), "org.apache.kafka:kafka_2.11:0.8.2.2", folder)
        for codec in ("none", "gzip"):
            create(server.bootstrap, f"old-{codec}")
            arguments = [*server.bootstrap.split(":"), "write", f"old-{codec}", "300", codec]
            result = run_java("Client08", classpath, arguments)
            assert result.returncode == 0, result.stdout + result.stderr
        server.stop()
    yield server.log_dir


def files(folder: Path, suffix: str) -> str:
    found = sorted(folder.glob(f"*/*{suffix}"))
    assert found, f"no {suffix} below {folder}"
    return ",".join(str(path) for path in found)


def test_dump_log_reads_every_record(written: Path, tools: KafkaTools) -> None:
    logs = files(written, ".log")
    text = tools.output("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", logs)
    complaints = [line for line in text.splitlines() if COMPLAINTS.search(line)]
    assert not complaints, complaints[:5]
    for codec in CODECS:
        assert len(re.findall(rf"payload: {codec} value \d+ x", text)) >= 454, codec
    assert len(re.findall(r"payload: old \d+", text)) == 600
    for codec in CODECS:
        assert f"compresscodec: {codec}" in text


def test_dump_log_finds_the_indexes_sane(written: Path, tools: KafkaTools) -> None:
    indexes = ",".join([files(written, ".index"), files(written, ".timeindex")])
    for check in ("--index-sanity-check", "--verify-index-only"):
        text = tools.output("kafka-dump-log", check, "--files", indexes)
        assert not COMPLAINTS.search(text), (check, COMPLAINTS.search(text), text[:2000])
        if check == "--index-sanity-check":
            passed, empty = text.count("passed sanity check"), text.count(" is empty.")
            assert passed + empty == len(list(written.glob("*/*index"))), text
            assert passed > 30, text


def test_kafka_3_9_serves_a_folder_we_wrote(written: Path, tmp_path: Path) -> None:
    """Topics are created in Kafka, which is stopped; their folders get our files, and Kafka reads them."""
    names = [f"codec-{codec}" for codec in CODECS] + ["segments"]
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        KafkaServer(
            tmp_path / "kafka",
            version=LAST_WITH_ZOOKEEPER,
            mode="zookeeper",
            zookeeper=zookeeper.address,
            heap="512m",
            log_level="error",
        ) as kafka,
    ):
        for name in names:
            create(kafka.bootstrap, name)
            wait_until((kafka.log_dir / f"{name}-0").is_dir, timeout_s=60, what=f"the folder of {name}")
        kafka.stop()
        for name in names:
            folder = kafka.log_dir / f"{name}-0"
            identity = (folder / "partition.metadata").read_bytes()
            shutil.rmtree(folder)
            shutil.copytree(written / f"{name}-0", folder)
            (folder / "partition.metadata").write_bytes(identity)
        kafka.start()
        for codec in CODECS:
            rows = read(kafka.bootstrap, f"codec-{codec}", 500)
            assert [value for _, value, _ in rows[1:3]] == [
                b"%s value %d " % (codec.encode(), number) + b"x" * 100 for number in (1, 2)
            ]
            assert (
                fill(kafka.bootstrap, f"codec-{codec}", codec, count=10)
                == read(kafka.bootstrap, f"codec-{codec}", 510)[500:]
            )
        assert len(read(kafka.bootstrap, "segments", 2000)) == 2000
        problems = [line for line in kafka.log_tail().splitlines() if " ERROR " in line]
        assert not problems, problems


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("version", [LAST_WITH_ZOOKEEPER, NEWEST])
def test_we_serve_a_folder_kafka_left(version: str, end: str, tmp_path: Path) -> None:
    """Started with Kafka's own server.properties on Kafka's own log directory, all partitions are there."""
    left: dict[tuple[str, int], Rows] = {}
    identities: dict[str, str] = {}
    with KafkaServer(tmp_path / "kafka", version=version, heap="512m") as kafka:
        for codec in CODECS:
            create(kafka.bootstrap, f"codec-{codec}", 2)
            for partition in range(2):
                sent = fill(kafka.bootstrap, f"codec-{codec}", codec, partition=partition, count=200)
                # A topic just made may refuse a batch and take the next: the order that counts is Kafka's.
                rows = read(kafka.bootstrap, f"codec-{codec}", 200, partition)
                assert set(rows) == set(sent)
                left[f"codec-{codec}", partition] = rows
        create(kafka.bootstrap, "empty")
        wait_until((kafka.log_dir / "empty-0/partition.metadata").is_file, timeout_s=60, what="the folder of empty")
        for path in kafka.log_dir.glob("*-0/partition.metadata"):
            identities[path.parent.name[:-2]] = re.findall(r"topic_id: (\S+)", path.read_text())[0]
        if end == "stopped":
            kafka.stop()
        else:
            kafka.kill()
    settings = kafka.folder / "server.properties"
    with BarnabasServer(tmp_path / "ours", settings=settings, port=kafka.port) as ours:
        admin = AdminClient({"bootstrap.servers": ours.bootstrap})
        listed = admin.list_topics(timeout=60).topics
        expected = {f"codec-{codec}": 2 for codec in CODECS} | {"empty": 1}
        assert {name: len(topic.partitions) for name, topic in listed.items() if name[:2] != "__"} == expected
        for (topic, partition), rows in left.items():
            assert read(ours.bootstrap, topic, len(rows), partition) == rows
            more = fill(ours.bootstrap, topic, "none", partition=partition, count=5)
            assert read(ours.bootstrap, topic, len(rows) + 5, partition) == rows + more
        for path in kafka.log_dir.glob("*-0/partition.metadata"):
            name = path.parent.name[:-2]
            if name in expected:
                assert re.findall(r"topic_id: (\S+)", path.read_text()) == [identities[name]], name


def abort_and_commit(bootstrap: str, topic: str, name: str, *, rounds: int = 6) -> list[bytes]:
    """Run transactions, every second of which is aborted; return the values that were committed."""
    committed: list[bytes] = []
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for number in range(rounds):
        producer.begin_transaction()
        values = [b"%s %d %d " % (name.encode(), number, each) + b"x" * 300 for each in range(10)]
        for value in values:
            producer.produce(topic, value=value)
        producer.flush(30)
        if number % 2:
            producer.commit_transaction(60)
            committed += values
        else:
            producer.abort_transaction(60)
    return committed


def read_committed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The values that a read_committed consumer gets: all of them once `count` have arrived, and one more second."""
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    consumer = Consumer({**config, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.list_topics(topic, timeout=60)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes] = []
    deadline, ended = time.monotonic() + 60, False
    while (len(values) < count or not ended) and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.5):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended = True
            else:
                values.append(message.value() or b"")
    consumer.close()
    return values


def test_kafka_ignores_the_checksums_of_transaction_indexes_and_makes_them_void(tmp_path: Path) -> None:
    """Barnabas → Kafka → Barnabas on one folder: no false alarm, and lost indexes are rebuilt."""
    properties = {
        "log.segment.bytes": "1048576",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with KafkaServer(tmp_path / "kafka", heap="512m", properties=properties) as kafka:
        create(kafka.bootstrap, "aborted", config={"segment.bytes": "1048576"})
        committed = abort_and_commit(kafka.bootstrap, "aborted", "kafka")
        kafka.stop()
        checksums = kafka.log_dir / "transaction-index-checkpoint"
        settings = kafka.folder / "server.properties"
        with BarnabasServer(tmp_path / "first", settings=settings, port=kafka.port) as ours:
            committed += abort_and_commit(ours.bootstrap, "aborted", "ours")
            assert read_committed(ours.bootstrap, "aborted", len(committed)) == committed
            ours.stop()
        stale = checksums.read_text()
        assert re.findall(r"^aborted 0 0 \d+ (\d+) \d+$", stale, re.MULTILINE) == ["6"]
        kafka.start()
        # With an existing transactional id: the metadata log of Kafka lacks the producer ids that Barnabas assigned.
        committed += abort_and_commit(kafka.bootstrap, "aborted", "kafka")
        assert read_committed(kafka.bootstrap, "aborted", len(committed)) == committed
        kafka.stop()
        problems = [line for line in kafka.log_tail().splitlines() if "aborted-0" in line or checksums.name in line]
        assert not problems, problems
        assert checksums.read_text() == stale
        with BarnabasServer(tmp_path / "second", settings=settings, port=kafka.port) as ours:
            assert read_committed(ours.bootstrap, "aborted", len(committed)) == committed
            assert "rebuilt" not in ours.log_tail()
            assert checksums.name not in ours.log_tail()
            ours.stop()
        (index,) = (kafka.log_dir / "aborted-0").glob("*.txnindex")
        index.unlink()
        with BarnabasServer(tmp_path / "third", settings=settings, port=kafka.port) as ours:
            assert read_committed(ours.bootstrap, "aborted", len(committed)) == committed
            assert "its 0 entries are not the 9 entries of the last clean stop" in ours.log_tail()

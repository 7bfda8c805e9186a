"""A real Kafka broker that compacts when it is told to: what it wrote, and what its cleaner made of it, as folders."""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.java import compile_java, run_java
from tests.kafka import CLEANER_REFERENCE, KafkaServer, ZooKeeperServer, kafka_jars
from tests.server_process import wait_until

PROGRAM = Path(__file__).parent / "java" / "writer"
NEVER_MS = str(10 * 365 * 86_400_000)
AT_ONCE = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4000000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.threads": "1",
}
# ZooKeeper and an old protocol between brokers: what a broker needs to write v0 and v1.
OLD_PROTOCOL = {"inter.broker.protocol.version": "2.8"}


@dataclass(frozen=True)
class Filling:
    """What a topic is filled with by the Java producer, and its settings beside."""

    topic: str
    codec: str
    kind: str = "plain"
    size: int = 100
    duplicates: int = 90
    records: int = 3000

    def argument(self) -> str:
        return f"{self.topic},{self.codec},{self.kind},{self.size},{self.duplicates},{self.records}"


class CompactingKafka:
    """Kafka with topics that it leaves alone until `let_clean`."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        classpath = kafka_jars(server.version)
        self._classpath = [compile_java(PROGRAM, classpath), *classpath]

    def create(self, topics: Iterable[str], settings: Mapping[str, str]) -> None:
        """Topics of one partition, compacted, but not for the next ten years."""
        config = {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": NEVER_MS,
            "min.cleanable.dirty.ratio": "0.0001",
            **settings,
        }
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        for future in admin.create_topics([NewTopic(topic, 1, 1, config=config) for topic in topics]).values():
            future.result(30)

    def fill(self, fillings: Sequence[Filling], seed: int = 1) -> None:
        """Let the Java producer write."""
        arguments = [self.server.bootstrap, str(seed), *(filling.argument() for filling in fillings)]
        result = run_java("Writer", self._classpath, arguments, timeout=200)
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]

    def stop_and_copy(self, topics: Iterable[str], to: Path) -> None:
        """A clean stop, and the topics' folders as they are then."""
        self.server.stop()
        for topic in topics:
            shutil.copytree(self.server.log_dir / f"{topic}-0", to / f"{topic}-0")
        checkpoint = self.server.log_dir / "cleaner-offset-checkpoint"
        if checkpoint.exists():
            shutil.copy2(checkpoint, to)

    def let_clean(self, topics: Sequence[str]) -> dict[str, "Cleaned"]:
        """Take the lag away, and wait until each topic has been cleaned once."""
        already = len(self.server.log.read_bytes())
        wait_until(lambda: self._lead(topics), timeout_s=60, what=f"leaders of {topics}", interval_s=0.1)
        self._set_lag(topics, "0")
        found: dict[str, Cleaned] = {}

        def all_cleaned() -> bool:
            text = self.server.log.read_bytes()[already:].decode(errors="replace")
            found.update({entry.topic: entry for entry in cleaned_in(text)})
            return set(topics) <= set(found)

        wait_until(all_cleaned, timeout_s=60, what=f"Kafka has cleaned {topics}", interval_s=0.1)
        self._set_lag(topics, NEVER_MS)
        return found

    def _lead(self, topics: Iterable[str]) -> bool:
        known = AdminClient({"bootstrap.servers": self.server.bootstrap}).list_topics(timeout=60).topics
        return all(topic in known and known[topic].partitions[0].leader >= 0 for topic in topics)

    def _set_lag(self, topics: Iterable[str], lag_ms: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        entry = ConfigEntry("min.compaction.lag.ms", lag_ms, incremental_operation=AlterConfigOpType.SET)
        resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in topics]
        for future in admin.incremental_alter_configs(resources).values():
            future.result(30)


@dataclass(frozen=True)
class Cleaned:
    """One statistics line of Kafka's cleaner."""

    topic: str
    megabytes: float
    seconds: float
    mb_per_s: float


_STATISTICS = re.compile(
    r"cleaned log (?P<topic>\S+)-\d+ \(dirty section = \[\d+, \d+\]\)\s+"
    r"(?P<mb>[\d,.]+) MB of log processed in (?P<s>[\d,.]+) seconds \((?P<rate>[\d,.]+) MB/sec\)"
)


def cleaned_in(text: str) -> Iterator[Cleaned]:
    """What Kafka's cleaner says in a log."""
    for found in _STATISTICS.finditer(text):
        numbers = (float(found[name].replace(",", "")) for name in ("mb", "s", "rate"))
        yield Cleaned(found["topic"], *numbers)


@contextmanager
def compacting_kafka(folder: Path, version: str = CLEANER_REFERENCE, **properties: str) -> Iterator[CompactingKafka]:
    """A running broker of this version. 3.9.1 is one that can still write the formats v0 and v1."""
    settings = {**AT_ONCE, **{name.replace("_", "."): value for name, value in properties.items()}}
    common = {"version": version, "heap": "512m", "log_level": "info"}
    if version == CLEANER_REFERENCE:
        with KafkaServer(folder / "kafka", properties=settings, **common) as server:  # type: ignore[arg-type]
            yield CompactingKafka(server)
        return
    with (
        ZooKeeperServer(folder / "zookeeper") as zookeeper,
        KafkaServer(
            folder / "kafka",
            mode="zookeeper",
            zookeeper=zookeeper.address,
            properties={**settings, **OLD_PROTOCOL},
            **common,  # type: ignore[arg-type]
        ) as server,
    ):
        yield CompactingKafka(server)

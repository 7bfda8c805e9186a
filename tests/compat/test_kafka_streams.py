"""A Kafka Streams 4.4.0 program: topics that it makes itself, state that comes back from its changelog."""

import subprocess
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.compat.test_java import program
from tests.java import java_command
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

PARTITIONS = 2
KILLS = 4
PATIENCE_S = 60
LINES = ["the quick brown fox", "jumps over the lazy dog", "the end"]


class App:
    """One instance of the program, with a state directory of its own."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def printed(self) -> list[str]:
        return self._log.read_text().splitlines()

    def wait_running(self) -> None:
        """Wait until it has its tasks and their state."""

        def is_running() -> bool:
            assert self._process.poll() is None, self.printed[-30:]
            states = [line for line in self.printed if line.startswith("state ")]
            return bool(states) and states[-1] == "state RUNNING"

        wait_until(is_running, timeout_s=PATIENCE_S, what="the program runs")

    def close(self) -> None:
        """Have it commit and leave."""
        assert self._process.stdin
        self._process.stdin.write(b"\n")
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0, self.printed[-30:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def restored(self) -> int:
        """Records read back from the changelog."""
        return sum(int(line.split()[2]) for line in self.printed if line.startswith("restored "))


class Scene:
    """The topics around the program, what was written and what came out."""

    def __init__(self, bootstrap: str, replicas: int = 1) -> None:
        self.bootstrap = bootstrap
        self.id = f"count-{uuid.uuid4().hex[:8]}"
        self.source, self.sink = f"{self.id}-lines", f"{self.id}-counts"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(name, PARTITIONS, replicas) for name in (self.source, self.sink)]
        for made in self.admin.create_topics(new).values():
            made.result(30)
        self.expected: Counter[str] = Counter()
        self.counts: dict[str, int] = {}
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        self._reader.assign([TopicPartition(self.sink, partition, 0) for partition in range(PARTITIONS)])

    def write(self, times: int) -> None:
        """Write the lines some times."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(times):
            for line in LINES:
                producer.produce(self.source, line, partition=number % PARTITIONS)
                self.expected.update(line.split())
        assert producer.flush(30) == 0

    def _read(self) -> dict[str, int]:
        for message in self._reader.consume(1000, 0.1):
            if message.error() is None:
                self.counts[message.key().decode()] = int(message.value())
        return self.counts

    def wait_counted(self) -> None:
        """The output says for each word how often it was written."""
        wait_until(
            lambda: self._read() == self.expected, timeout_s=PATIENCE_S, what=f"{self.counts} becomes {self.expected}"
        )

    def wait_more(self) -> None:
        """Something has been counted since."""
        before = sum(self.counts.values())
        wait_until(lambda: sum(self._read().values()) > before, timeout_s=PATIENCE_S, what="words are counted")

    def wait_counted_at_least(self) -> None:
        """As `wait_counted`, but words may have been counted again."""
        wait_until(
            lambda: all(self._read().get(word, 0) >= count for word, count in self.expected.items()),
            timeout_s=PATIENCE_S,
            what=f"{self.counts} becomes at least {self.expected}",
        )

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        return str(self.admin.describe_configs([resource])[resource].result(30)[name].value)

    def starts(self, topic: str) -> list[int]:
        """Where the partitions of a topic begin."""
        return [
            self._reader.get_watermark_offsets(TopicPartition(topic, partition), 30)[0]
            for partition in range(PARTITIONS)
        ]


def test_word_count(broker: str, tmp_path: Path) -> None:
    classpath = program(("streams",), "org.apache.kafka:kafka-streams:4.4.0", tmp_path)
    scene = Scene(broker)
    apps: list[App] = []

    def start() -> App:
        name = str(len(apps))
        arguments = [broker, scene.id, scene.source, scene.sink, str(tmp_path / f"state-{name}"), "at_least_once"]
        apps.append(App(java_command("WordCount", classpath, arguments), tmp_path / f"app-{name}.log"))
        return apps[-1]

    try:
        scene.write(50)
        first = start()
        scene.wait_counted()
        repartition, changelog = f"{scene.id}-words-repartition", f"{scene.id}-counts-changelog"
        topics = scene.admin.list_topics(timeout=60).topics
        assert len(topics[repartition].partitions) == len(topics[changelog].partitions) == PARTITIONS
        assert scene.setting(repartition, "cleanup.policy") == "delete"
        assert scene.setting(repartition, "retention.ms") == "-1"
        assert scene.setting(changelog, "cleanup.policy") == "compact"
        # What is counted and committed, Streams deletes from the topic between.
        wait_until(lambda: sum(scene.starts(repartition)) > 0, timeout_s=PATIENCE_S, what="records are purged")
        first.close()
        assert first.restored == 0
        scene.write(50)
        second = start()
        scene.wait_counted()
        assert second.restored >= len(scene.expected)
        third = start()
        third.wait_running()
        second.wait_running()
        scene.write(50)
        scene.wait_counted()
        second.kill()
        scene.write(50)
        scene.wait_counted_at_least()
        third.close()
    finally:
        for app in apps:
            app.kill()


def test_words_are_counted_exactly_once_however_often_the_program_is_killed(broker: str, tmp_path: Path) -> None:
    classpath = program(("streams",), "org.apache.kafka:kafka-streams:4.4.0", tmp_path)
    scene = Scene(broker)
    arguments = [broker, scene.id, scene.source, scene.sink, str(tmp_path / "state"), "exactly_once_v2"]
    apps: list[App] = []
    try:
        for number in range(KILLS + 1):
            apps.append(App(java_command("WordCount", classpath, arguments), tmp_path / f"app-{number}.log"))
            apps[-1].wait_running()
            scene.write(50)
            if number == KILLS:
                break
            scene.wait_more()  # it is in the middle
            apps[-1].kill()
        scene.wait_counted()
        apps[-1].close()
    finally:
        for app in apps:
            app.kill()

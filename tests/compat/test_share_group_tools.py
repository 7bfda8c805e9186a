"""kafka-share-groups.sh, option by option: its output against this broker is that against Apache Kafka."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.share_member import ShareMember
from tests.compat.tool_session import ToolSession, scratch_file
from tests.kafka import KafkaServer

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(600)]

VERSION = "4.4.0"
TOPIC, OTHER, GROUP, NEW_GROUP = "jobs", "mails", "workers", "others"
PARTITIONS, RECORDS = 3, 20
START_MS, STEP_MS = 1_700_000_000_000, 60_000
ONE_BROKER = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolSession]:
    with ToolSession(VERSION) as session:
        yield session


class Session:
    """The commands for one broker and what they print."""

    def __init__(self, bootstrap: str, tools: ToolSession, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.printed: list[str] = []
        self._tools = tools
        self._folder = folder

    def prepare(self) -> None:
        """Create the topics, with records of known times."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"}) for name in (TOPIC, OTHER)]
        for future in admin.create_topics(topics).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, f"{number}", partition=partition, timestamp=START_MS + number * STEP_MS)
        assert producer.flush(30) == 0

    def run(self, *args: str) -> str:
        """Run the tool and note its output, without what differs from broker to broker."""
        status, text = self._tools.run("kafka-share-groups", "--bootstrap-server", self.bootstrap, *args)
        printed = f"$ {' '.join(args)}\n{normal(text)}\n= {status}"
        self.printed.append(re.sub(rf"{re.escape(str(self._folder))}/\S+", "FILE", printed))
        return text

    def wait_for(self, pattern: str, *args: str) -> None:
        """Run the tool until its output has the pattern; note only that output."""
        deadline = time.monotonic() + 60
        while True:
            text = self.run(*args)
            if re.search(pattern, text):
                return
            assert time.monotonic() < deadline, text
            self.printed.pop()
            time.sleep(0.5)

    def play(self) -> list[str]:
        """Run each option, with and without members; returns what was printed."""
        group, of_topic = ("--group", GROUP), ("--topic", TOPIC)
        self.run("--list")
        with ShareMember(self.bootstrap, GROUP, [TOPIC], partitions=PARTITIONS):
            for view in ((), ("--offsets",), ("--members",), ("--state",)):
                for detail in ((), ("--verbose",)):
                    self.run("--describe", *group, *view, *detail)
                self.run("--describe", "--all-groups", *view)
            self.run("--list")
            for state in ((), ("Stable",), ("Empty",), ("stable,dead",), ("Assigning",)):
                self.run("--list", "--state", *state)
            self.run("--delete", *group)
            self.run("--delete-offsets", *group, *of_topic)
            self.run("--reset-offsets", *group, *of_topic, "--to-earliest", "--execute")
        self.wait_for("Empty", "--list", "--state")
        self.run("--describe", *group)
        self.run("--describe", *group, "--members")
        self.run("--describe", *group, "--state", "--verbose")
        self.reset(*group)
        self.delete(*group)
        return self.printed

    def reset(self, *group: str) -> None:
        """All ways to change start offsets."""
        at = datetime.datetime.fromtimestamp((START_MS + 7 * STEP_MS) / 1000 - 1, datetime.UTC)
        plan = scratch_file(self._folder, "".join(f"{TOPIC},{index},{index + 3}\n" for index in range(PARTITIONS)))
        ways = (
            ("--to-earliest",),
            ("--to-latest",),
            ("--to-offset", "5"),
            ("--to-offset", "100000"),
            ("--to-current",),
            ("--to-datetime", at.strftime("%Y-%m-%dT%H:%M:%S.000+00:00")),
        )
        for way in ways:
            self.run("--reset-offsets", *group, "--topic", TOPIC, *way, "--dry-run")
            self.run("--reset-offsets", *group, "--topic", TOPIC, *way, "--execute")
            self.run("--describe", *group, "--verbose")
        self.run("--reset-offsets", *group, "--topic", f"{TOPIC}:0,2", "--to-earliest", "--execute")
        self.run("--reset-offsets", *group, "--all-topics", "--to-current", "--execute")
        self.run("--reset-offsets", *group, "--from-file", plan, "--execute")
        self.run("--reset-offsets", *group, "--topic", TOPIC, "--to-offset", "4", "--export", "--dry-run")
        self.run("--describe", *group)
        self.run("--reset-offsets", *group, "--topic", OTHER, "--to-earliest", "--execute")
        self.run("--describe", *group)
        self.run("--reset-offsets", *group, "--topic", "no-topic", "--to-earliest", "--execute")
        self.run("--reset-offsets", "--group", NEW_GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
        self.run("--describe", "--group", NEW_GROUP)
        self.run("--describe", "--group", NEW_GROUP, "--state", "--verbose")
        self.run("--list", "--state")

    def delete(self, *group: str) -> None:
        """Delete the offsets of topics, and groups."""
        self.run("--delete-offsets", *group, "--topic", OTHER)
        self.run("--delete-offsets", *group, "--topic", OTHER)
        self.run("--delete-offsets", *group, "--topic", TOPIC, "--topic", "no-topic")
        self.run("--delete-offsets", "--group", "no-group", "--topic", TOPIC)
        self.run("--describe", *group)
        self.run("--delete", *group)
        self.run("--delete", *group)
        self.run("--describe", *group)
        self.run("--describe", "--group", "no-group", "--state")
        self.run("--delete", "--all-groups")
        self.run("--list")


def normal(text: str) -> str:
    """The output with single spaces, sorted rows and no addresses, times or stack traces."""
    text = re.sub(r"127\.0\.0\.1:\d+ +\(\d+\)", "COORDINATOR", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    rows = [line for line in lines if line and not line.startswith(("at ", "... "))]
    return "\n".join([*rows[:1], *sorted(rows[1:])])


def test_each_option_prints_what_it_prints_for_apache_kafka(tools: ToolSession, tmp_path: Path) -> None:
    printed = {}
    for name, server in (
        ("kafka", KafkaServer(tmp_path / "kafka", version=VERSION, properties=ONE_BROKER)),
        ("barnabas", BarnabasServer(tmp_path / "barnabas", properties={"group.share.assignment.interval.ms": "0"})),
    ):
        with server as broker:
            session = Session(broker.bootstrap, tools, tmp_path)
            session.prepare()
            printed[name] = session.play()
    for ours, theirs in zip(printed["barnabas"], printed["kafka"], strict=True):
        assert ours == theirs

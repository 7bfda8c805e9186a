"""`kafka-streams-groups.sh` of Kafka 4.4.0, option by option, prints on Barnabas what it prints on Kafka 4.4.0."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.test_java import program
from tests.compat.test_kafka_streams import PATIENCE_S, App
from tests.compat.test_streams_groups import SETTINGS, STREAMS
from tests.java import java_command
from tests.kafka import KafkaServer, KafkaTools
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(900)]

GROUP = "words"
TOOL = "kafka-streams-groups"
RUNNING: Mapping[str, list[str]] = {
    "list": ["--list"],
    "list states": ["--list", "--state"],
    "list stable": ["--list", "--state", "Stable"],
    "list empty": ["--list", "--state", "Empty"],
    "describe": ["--describe", "--group", GROUP],
    "describe all": ["--describe", "--all-groups"],
    "describe verbose": ["--describe", "--group", GROUP, "--verbose"],
    "offsets": ["--describe", "--group", GROUP, "--offsets"],
    "members": ["--describe", "--group", GROUP, "--members"],
    "members verbose": ["--describe", "--group", GROUP, "--members", "--verbose"],
    "state": ["--describe", "--group", GROUP, "--state"],
    "state verbose": ["--describe", "--group", GROUP, "--state", "--verbose"],
    "topology": ["--describe", "--group", GROUP, "--topology"],
    "unknown group": ["--describe", "--group", "nothing"],
    "delete": ["--delete", "--group", GROUP],
    "reset": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-earliest", "--dry-run"],
    "delete offsets": ["--delete-offsets", "--group", GROUP, "--input-topic", "lines"],
}
STOPPED: Mapping[str, list[str]] = {
    "list": ["--list", "--state"],
    "describe": ["--describe", "--group", GROUP],
    "members": ["--describe", "--group", GROUP, "--members", "--verbose"],
    "state": ["--describe", "--group", GROUP, "--state", "--verbose"],
    "dry run": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-earliest", "--dry-run"],
    "all topics": ["--reset-offsets", "--group", GROUP, "--all-input-topics", "--to-latest", "--dry-run"],
    "partition": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines:1", "--to-offset", "3", "--execute"],
    "shift": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines:1", "--shift-by", "2", "--execute"],
    "current": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-current", "--execute"],
    "export": ["--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-current", "--dry-run", "--export"],
    "after the resets": ["--describe", "--group", GROUP],
    "delete offsets": ["--delete-offsets", "--group", GROUP, "--input-topic", "lines:0"],
    "delete other offsets": ["--delete-offsets", "--group", GROUP, "--input-topic", "other"],
    "without an offset": ["--describe", "--group", GROUP, "--offsets", "--verbose"],
    "delete": ["--delete", "--group", GROUP],
    "afterwards": ["--list"],
    "delete again": ["--delete", "--group", GROUP],
    "reset nothing": ["--reset-offsets", "--group", GROUP, "--all-input-topics", "--to-earliest", "--dry-run"],
}
"""Commands on a group with and without members, in this order."""

IDENTIFIERS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

MEMBER_IDS = re.compile(r"(?<= )[A-Za-z0-9_-]{22}(?= )")


def normalized(text: str, port: int) -> list[str]:
    """The lines without what differs between two runs: ids, addresses, widths of columns, logging."""
    text = IDENTIFIERS.sub("ID", text).replace(f":{port}", ":PORT")
    text = re.sub(r"StreamThread-\d", "StreamThread", MEMBER_IDS.sub("MEMBER", text))
    text = re.sub(r"(localhost|127\.0\.0\.1):PORT +\(\d\)", "BROKER", text)
    lines = (re.sub(r" +", " ", line).strip() for line in text.splitlines())
    return sorted(line for line in lines if line and not line.startswith(("[20", "at ", "SLF4J")))


def outputs(bootstrap: str, folder: Path) -> dict[str, list[str]]:
    """Count words with one instance, and run all commands while it runs and after it has closed."""
    folder.mkdir()
    tools, port = KafkaTools("4.4.0"), int(bootstrap.rpartition(":")[2])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in ("lines", "counts", "other")]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce("lines", "to be or not to be", partition=number % 2)
    assert producer.flush(30) == 0
    classpath = program(("streams",), STREAMS, folder)
    arguments = [bootstrap, GROUP, "lines", "counts", str(folder / "state"), "at_least_once", "streams"]
    app = App(java_command("WordCount", classpath, arguments), folder / "app.log")
    found: dict[str, list[str]] = {}

    def run(when: str, commands: Mapping[str, list[str]]) -> None:
        for name, args in commands.items():
            result = tools.run(TOOL, "--bootstrap-server", bootstrap, *args)
            found[f"{when}: {name}"] = [f"exit {result.returncode}", *normalized(result.stdout + result.stderr, port)]

    try:
        app.wait_running()
        wait_until(lambda: counts(bootstrap).get("be") == 40, timeout_s=PATIENCE_S, what="all words are counted")
        wait_until(lambda: is_committed(bootstrap), timeout_s=PATIENCE_S, what="all offsets are committed")
        run("running", RUNNING)
        app.close()
        wait_until(
            lambda: "Empty" in tools.output(TOOL, "--bootstrap-server", bootstrap, "--list", "--state"),
            timeout_s=PATIENCE_S,
            what="the group is empty",
        )
        run("stopped", STOPPED)
    finally:
        app.kill()
    found["topics"] = sorted(admin.list_topics(timeout=30).topics)
    return found


def counts(bootstrap: str) -> dict[str, int]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    reader.assign([TopicPartition("counts", partition, 0) for partition in range(2)])
    try:
        messages = reader.consume(1000, 3)
        return {message.key().decode(): int(message.value()) for message in messages if message.error() is None}
    finally:
        reader.close()


def is_committed(bootstrap: str) -> bool:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition(name, index) for name in ("lines", "words-words-repartition") for index in range(2)]
        ends = [reader.get_watermark_offsets(place, 30)[1] for place in places]
        return [one.offset for one in reader.committed(places, 30)] == ends
    finally:
        reader.close()


def test_the_tool_prints_the_same_as_on_kafka(tmp_path: Path) -> None:
    settings = SETTINGS | {"group.streams.num.standby.replicas": "0"}
    with BarnabasServer(tmp_path / "barnabas", properties=settings) as server:
        here = outputs(server.bootstrap, tmp_path / "here")
    with KafkaServer(tmp_path / "kafka", version="4.4.0", properties=settings) as kafka:
        there = outputs(kafka.bootstrap, tmp_path / "there")
    differences = {name: (here[name], there[name]) for name in there if here[name] != there[name]}
    assert differences == {}

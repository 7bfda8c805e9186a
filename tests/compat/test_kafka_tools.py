"""Kafka 4.4.0's command-line tools against the broker."""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.compat.report import ClientReport
from tests.compat.tool_session import ToolSession
from tests.java import require_java
from tests.kafka import NEWEST, KafkaTools

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolSession]:
    require_java()
    with ToolSession() as session:
        yield session


@pytest.fixture(scope="module")
def console() -> KafkaTools:
    """For tools that read what is typed, or whose output is told apart from their complaints."""
    require_java()
    return KafkaTools()


def test_tools(
    broker: str,
    compat: Callable[[str, str], ClientReport],
    tools: ToolSession,
    console: KafkaTools,
    tmp_path: Path,
) -> None:
    at = ("--bootstrap-server", broker)
    topic = f"tools-{uuid.uuid4().hex[:8]}"
    of_topic = ("--topic", topic)
    with compat("Kafka's command-line tools", NEWEST) as client:
        with client.feature("create"):
            tools.output(
                "kafka-topics", *at, "--create", *of_topic, "--partitions", "2", "--config", "retention.ms=1000000"
            )
            tools.output("kafka-topics", *at, "--alter", *of_topic, "--partitions", "3")
            described = tools.output("kafka-topics", *at, "--describe", *of_topic)
            assert re.search(
                r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=1000000", described
            ), described
            assert topic in tools.output("kafka-topics", *at, "--list").split()
        with client.feature("configs"):
            entity = ("--entity-type", "topics", "--entity-name", topic)
            tools.output("kafka-configs", *at, "--alter", *entity, "--add-config", "max.message.bytes=2000000")
            assert "max.message.bytes=2000000" in tools.output("kafka-configs", *at, "--describe", *entity)
            everything = tools.output("kafka-configs", *at, "--describe", "--all", *entity)
            assert "cleanup.policy=delete" in everything and "segment.bytes=1073741824" in everything
        with client.feature("headers"):
            options = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
            lines = "".join(f"h:{n}\tkey\tvalue {n}\n" for n in range(20))
            console.output("kafka-console-producer", *at, "--topic", topic, *options, stdin=lines)
        with client.feature("offsets"):
            offsets = tools.output("kafka-get-offsets", *at, *of_topic)
            numbers = [int(line.rsplit(":", 1)[1]) for line in offsets.split()]
            assert len(numbers) == 3 and sum(numbers) == 20, offsets
            partition = str(numbers.index(20))
            print_all = ("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
            at_start = (
                "--partition",
                partition,
                "--offset",
                "earliest",
                "--max-messages",
                "20",
                "--timeout-ms",
                "60000",
            )
            text = console.output("kafka-console-consumer", *at, *of_topic, *at_start, *print_all)
            assert text.splitlines() == [f"h:{n}\tkey\tvalue {n}" for n in range(20)]
            earliest = tools.output("kafka-get-offsets", *at, *of_topic, "--time", "earliest")
            assert [line.rsplit(":", 1)[1] for line in earliest.split()] == ["0", "0", "0"]
        with client.feature("timestamps"):
            newest = tools.output("kafka-get-offsets", *at, *of_topic, "--time", "max-timestamp")
            assert f"{topic}:{partition}:" in newest, newest
        with client.feature("delete-records"):
            asked = tmp_path / "delete.json"
            wanted = {"topic": topic, "partition": int(partition), "offset": 5}
            asked.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
            answer = tools.output("kafka-delete-records", *at, "--offset-json-file", str(asked))
            assert f"partition: {topic}-{partition}\tlow_watermark: 5" in answer, answer
        with client.feature("partitions"):
            answer = tools.output("kafka-log-dirs", *at, "--describe", "--topic-list", topic)
            described = json.loads(answer.splitlines()[-1])
            replicas = described["brokers"][0]["logDirs"][0]["partitions"]
            assert {each["partition"] for each in replicas} == {f"{topic}-{index}" for index in range(3)}
            assert sum(each["size"] for each in replicas) > 0
        for codec in ("none", "zstd"):
            with client.feature(codec):
                props = ["bootstrap.servers=" + broker, "compression.type=" + codec, "acks=all"]
                load = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
                answer = tools.output(
                    "kafka-producer-perf-test",
                    *of_topic,
                    *load,
                    "--command-property",
                    *props,
                )
                assert answer.splitlines()[-1].startswith("20000 records sent"), answer


def test_consumer_perf_test(broker: str, tools: ToolSession) -> None:
    """It reads as a member of a group."""
    topic = f"tools-{uuid.uuid4().hex[:8]}"
    load = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    tools.output("kafka-producer-perf-test", "--topic", topic, *load, "--bootstrap-server", broker)
    answer = tools.output(
        "kafka-consumer-perf-test", "--bootstrap-server", broker, "--topic", topic, "--num-records", "20000"
    )
    assert re.search(r", 20\d{3}, ", answer), answer


def test_consumer_groups(broker: str, tools: ToolSession, console: KafkaTools) -> None:
    """The console consumer reads and resumes in a group; the group is listed, described, reset and deleted."""
    at = ("--bootstrap-server", broker)
    topic, group = f"tools-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    of_topic, of_group = ("--topic", topic), ("--group", group)
    tools.output("kafka-topics", *at, "--create", *of_topic, "--partitions", "2")
    console.output("kafka-console-producer", *at, *of_topic, stdin="".join(f"value {n}\n" for n in range(10)))
    read = ("kafka-console-consumer", *at, *of_topic, *of_group, "--from-beginning", "--timeout-ms", "60000")
    first = console.output(*read, "--max-messages", "4").splitlines()
    rest = console.output(*read, "--max-messages", "6").splitlines()
    assert sorted(first + rest) == sorted(f"value {n}" for n in range(10))
    assert group in tools.output("kafka-consumer-groups", *at, "--list").split()
    described = tools.output("kafka-consumer-groups", *at, "--describe", *of_group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 10 and {row[5] for row in rows} == {"0"}, described
    state = tools.output("kafka-consumer-groups", *at, "--describe", "--state", *of_group)
    assert re.search(rf"{group}\s.*Empty\s+0", state), state
    reset = ("--reset-offsets", "--to-earliest", *of_topic, "--execute")
    tools.output("kafka-consumer-groups", *at, *of_group, *reset)
    again = console.output(*read, "--max-messages", "10").splitlines()
    assert sorted(again) == sorted(f"value {n}" for n in range(10))
    tools.output("kafka-consumer-groups", *at, "--delete-offsets", *of_group, "--topic", f"{topic}:0")
    assert "was successful" in tools.output("kafka-consumer-groups", *at, "--delete", *of_group)
    assert group not in tools.output("kafka-consumer-groups", *at, "--list").split()

"""Cordoned log directories (KIP-1066): Apache Kafka 4.4.0 and Barnabas give the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

BROKER = ConfigResourceType.BROKER
KEY = "cordoned.log.dirs"
NODE, TIMEOUT_MS, DEADLINE_S = 1, 30_000, 60


class Side:
    """One broker with the log directories `one` and `two`."""

    def __init__(self, client: ConfigClient, folder: Path) -> None:
        self._client = client
        self.one, self.two = str(folder / "one"), str(folder / "two")

    def named(self, text: str) -> str:
        """Replace the names of the directories by their paths."""
        return ",".join({"one": self.one, "two": self.two}.get(name, name) for name in text.split(","))

    def cordon(self, text: str) -> tuple[int, str | None]:
        """Set the cordoned directories, and wait until DescribeLogDirs reports them."""
        code, message = self._client.edit(BROKER, str(NODE), (KEY, ConfigOperation.SET, self.named(text)))
        if not code:
            wanted = {name: text == "*" or name in text.split(",") for name in ("one", "two")}
            wait_until(lambda: self.cordoned() == wanted, timeout_s=DEADLINE_S, what=f"cordoned directories {text}")
        return code, message and message.replace(self.one, "one").replace(self.two, "two")

    def cordoned(self) -> dict[str, bool]:
        found = self._client.call(ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=None)).results
        return {Path(result.log_dir).name: result.is_cordoned for result in found}

    def partitions(self, topic: str) -> dict[str, int]:
        """The number of partitions of a topic in each directory."""
        found = self._client.call(ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=None)).results
        return {
            Path(result.log_dir).name: sum(len(one.partitions) for one in result.topics if one.name == topic)
            for result in found
        }

    def create(self, topic: CreatableTopic) -> tuple[int, str | None]:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        (result,) = self._client.call(ApiKey.CREATE_TOPICS, 5, request).topics
        return result.error_code, result.error_message

    def grow(self, name: str, assignments: list[CreatePartitionsAssignment] | None) -> tuple[int, str | None]:
        topic = CreatePartitionsTopic(name=name, count=7, assignments=assignments)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=True)
        (result,) = self._client.call(ApiKey.CREATE_PARTITIONS, 3, request).results
        return result.error_code, result.error_message

    def move(self, name: str, path: str) -> list[int]:
        topic = AlterReplicaLogDirTopic(name=name, partitions=[0, 1, 2, 3, 4, 5])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        (result,) = self._client.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request).results
        return [partition.error_code for partition in result.partitions]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folders = [tmp_path_factory.mktemp(name) for name in ("theirs", "ours")]
    dirs = [{"log.dirs": f"{folder}/one,{folder}/two"} for folder in folders]
    with (
        KafkaServer(folders[0], properties=dirs[0]) as kafka,
        BarnabasServer(folders[1], properties=dirs[1]) as barnabas,
        closing(ConfigClient(kafka.bootstrap)) as theirs,
        closing(ConfigClient(barnabas.bootstrap)) as ours,
    ):
        yield Side(theirs, folders[0]), Side(ours, folders[1])


def topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=6, replication_factor=1)


def test_new_partitions_are_placed_in_other_directories(both: tuple[Side, Side]) -> None:
    for side in both:
        for cordoned, name, wanted in (
            ("", "spread", {"one": 3, "two": 3}),
            ("one", "second", {"one": 0, "two": 6}),
            ("two", "first", {"one": 6, "two": 0}),
        ):
            assert side.cordon(cordoned) == (0, None)
            assert side.create(topic(name)) == (0, None)

            def are_placed(side: Side = side, name: str = name, wanted: dict[str, int] = wanted) -> bool:
                return side.partitions(name) == wanted

            wait_until(are_placed, timeout_s=DEADLINE_S, what=f"the partitions of {name} in {wanted}")
        assert side.move("first", side.two) == [39] * 6
        assert side.move("first", side.one) == [0] * 6


@pytest.mark.parametrize("cordoned", ["*", "one,two"])
def test_no_topics_are_created_if_all_directories_are_cordoned(both: tuple[Side, Side], cordoned: str) -> None:
    answers = []
    for side in both:
        assert side.cordon("") == (0, None)
        side.create(topic("present"))
        wait_until(lambda: sum(side.partitions("present").values()) == 6, timeout_s=DEADLINE_S, what="the topic")  # noqa: B023
        assert side.cordon(cordoned) == (0, None)
        manual = CreatableTopic(name="manual", num_partitions=-1, replication_factor=-1)
        manual.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[NODE])]
        answers.append(
            [
                side.create(topic("new")),
                side.create(manual),
                side.grow("present", None),
                side.grow("present", [CreatePartitionsAssignment(broker_ids=[NODE])]),
                side.move("present", side.one),
            ]
        )
        side.cordon("")
    theirs, ours = answers
    assert theirs == ours
    assert [code for code, _ in theirs[:4]] == [38, 39, 38, 39]


@pytest.mark.parametrize("text", ["*,one", "/nope", "one,/nope,/other"])
def test_invalid_directories_are_refused(both: tuple[Side, Side], text: str) -> None:
    theirs, ours = (side.cordon(text) for side in both)
    assert theirs == ours
    assert theirs[0] == 42

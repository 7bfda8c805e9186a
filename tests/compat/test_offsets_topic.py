"""`__consumer_offsets` goes back and forth between Apache Kafka and the broker: the same groups, the same offsets."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.kafka import LAST_WITH_ZOOKEEPER, NEWEST, KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server_process import BrokerProcess, wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

pytestmark = [pytest.mark.java, pytest.mark.timeout(280)]

PARTITIONS = 4
PATIENCE_S = 60
TOPIC = "orders"
PLAIN_GROUPS = [f"plain-{number}" for number in range(20)]
LIVING = "living"
NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
)
"""What a commit is told while a coordinator comes or goes."""


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)


def produce(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(TOPIC, f"{number}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def commit(consumer: Consumer, **what: Any) -> None:
    """Commit, however often a coordinator that has just come says that it is none yet."""

    def is_committed() -> bool:
        try:
            return all(place.error is None for place in consumer.commit(**what, asynchronous=False))
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET:
                raise
            return False

    wait_until(is_committed, timeout_s=PATIENCE_S, what="the offsets are committed", interval_s=0.1)


def commit_plainly(bootstrap: str, offset: int) -> None:
    """Offsets of groups without members, each another one, with metadata."""
    for number, group in enumerate(PLAIN_GROUPS):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        places = [
            TopicPartition(TOPIC, partition, offset + number, metadata=f"{group} π", leader_epoch=0)
            for partition in range(number % PARTITIONS + 1)
        ]
        commit(consumer, offsets=places)
        consumer.close()


class NotYetError(Exception):
    """The coordinator has not loaded its groups."""


def checked(code: int) -> None:
    if code in NOT_YET:
        raise NotYetError(code)
    assert code == 0, code


def seen(bootstrap: str, protocol: str) -> dict[str, Any]:
    """All that the broker answers about its groups. Raises NotYetError."""
    with closing(ConfigClient(bootstrap)) as client:
        listed = client.call(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        checked(listed.error_code)
        answers: dict[str, Any] = {group.group_id: group for group in listed.groups}
        asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in [LIVING, *PLAIN_GROUPS]]
        for group in client.call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=asked)).groups:
            checked(group.error_code)
            for topic in group.topics:
                topic.partitions.sort(key=lambda each: each.partition_index)
            answers[f"{group.group_id} offsets"] = group.topics
        classic = [*PLAIN_GROUPS] if protocol == "consumer" else [LIVING, *PLAIN_GROUPS]
        for group in client.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=classic)).groups:
            checked(group.error_code)
            answers[f"{group.group_id} described"] = group
        if protocol == "consumer":
            request = ConsumerGroupDescribeRequest(group_ids=[LIVING])
            (group,) = client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
            checked(group.error_code)
            # The epochs rise when brokers of two kinds take turns: each has a hash of its own for a group's topics.
            group.group_epoch = group.assignment_epoch = 0
            for member in group.members:
                member.member_epoch = 0
                for place in [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]:
                    place.topic_id = UUID(int=0)
            answers[f"{LIVING} described"] = group
        return answers


def seen_once_loaded(bootstrap: str, protocol: str) -> dict[str, Any]:
    """The same, when no partition is about to be loaded."""
    answers: dict[str, Any] = {}

    def is_loaded() -> bool:
        try:
            answers.update(seen(bootstrap, protocol))
        except NotYetError:
            return False
        return True

    wait_until(is_loaded, timeout_s=PATIENCE_S, what="the groups are loaded", interval_s=0.1)
    return answers


@contextmanager
def living_member(bootstrap: str, protocol: str) -> Iterator[Consumer]:
    """A member of a group that has committed, and that lives on while brokers change."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": LIVING,
        "client.id": "living",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": protocol,
        "reconnect.backoff.ms": 200,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if protocol == "classic":
        config["session.timeout.ms"] = 45_000
    consumer = Consumer(config)
    consumer.subscribe([TOPIC])
    try:
        read_on(consumer, 40)
        yield consumer
    finally:
        consumer.close()


def read_on(consumer: Consumer, count: int) -> None:
    """Read so many records, no more, and commit."""
    read: list[tuple[int, int]] = []

    def is_read() -> bool:
        read.extend((each.partition(), each.offset()) for each in consumer.consume(100, 0.1) if each.error() is None)
        return len(read) >= count

    wait_until(is_read, timeout_s=PATIENCE_S, what=f"{count} records come")
    assert len(set(read)) == len(read) == count

    commit(consumer)


def wait_same(expected: dict[str, Any], bootstrap: str, protocol: str) -> None:
    """The broker gives these answers, once it has loaded its groups and heard of the member."""
    answers: dict[str, Any] = {}

    def is_same() -> bool:
        nonlocal answers
        try:
            answers = seen(bootstrap, protocol)
        except NotYetError:
            return False
        return answers == expected

    try:
        wait_until(is_same, timeout_s=60, what="the same groups are there", interval_s=0.2)
    except TimeoutError:
        assert answers == expected
        raise


def offsets_partitions(bootstrap: str) -> int:
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics
    return len(topics["__consumer_offsets"].partitions)


VERSIONS = [
    (LAST_WITH_ZOOKEEPER, "classic"),
    pytest.param(NEWEST, "classic", marks=pytest.mark.verify),
    (NEWEST, "consumer"),
]


@pytest.mark.parametrize(("version", "protocol"), VERSIONS)
def test_kafkas_folder_and_back(version: str, protocol: str, tmp_path: Path) -> None:
    """On Kafka's own log directory: the same groups, a member that goes on, and back to Kafka with what is new."""
    with KafkaServer(tmp_path / "kafka", version=version, heap="512m") as kafka:
        create_topic(kafka.bootstrap)
        produce(kafka.bootstrap, 40)
        commit_plainly(kafka.bootstrap, 100)
        with living_member(kafka.bootstrap, protocol) as member:
            before = seen_once_loaded(kafka.bootstrap, protocol)
            partitions = offsets_partitions(kafka.bootstrap)
            kafka.stop()
            ours = BarnabasServer(tmp_path / "ours", settings=kafka.folder / "server.properties", port=kafka.port)
            with ours:
                assert offsets_partitions(ours.bootstrap) == partitions == 50
                wait_same(before, ours.bootstrap, protocol)
                produce(ours.bootstrap, 40)
                read_on(member, 40)
                commit_plainly(ours.bootstrap, 200)
                after = seen_once_loaded(ours.bootstrap, protocol)
                assert after != before
                ours.stop()
            kafka.start()
            wait_same(after, kafka.bootstrap, protocol)
            produce(kafka.bootstrap, 40)
            read_on(member, 40)


@pytest.mark.verify
@pytest.mark.parametrize(("version", "protocol"), VERSIONS)
def test_our_folder(version: str, protocol: str, tmp_path: Path) -> None:
    """Kafka takes over the partitions of a folder that was never its own."""
    properties = {"offsets.topic.num.partitions": "8"}
    with KafkaServer(tmp_path / "kafka", version=version, heap="512m", properties=properties) as kafka:
        create_topic(kafka.bootstrap)
        commit_plainly(kafka.bootstrap, 1)
        kafka.stop()
        ours = BarnabasServer(tmp_path / "ours", port=kafka.port)
        for empty in kafka.log_dir.glob(f"{TOPIC}-*"):
            shutil.copytree(empty, ours.log_dir / empty.name)  # with the topic's id, which assignments name
        with ours:
            produce(ours.bootstrap, 40)
            commit_plainly(ours.bootstrap, 100)
            with living_member(ours.bootstrap, protocol) as member:
                before = seen_once_loaded(ours.bootstrap, protocol)
                assert offsets_partitions(ours.bootstrap) == 8
                ours.stop()
                take_over(ours, kafka)
                kafka.start()
                wait_same(before, kafka.bootstrap, protocol)
                produce(kafka.bootstrap, 40)
                read_on(member, 40)


def take_over(giver: BrokerProcess, taker: BrokerProcess) -> None:
    """Replace the partitions' files, but not their identities."""
    for source in giver.log_dir.glob("*-*"):
        target = taker.log_dir / source.name
        if source.is_dir() and target.is_dir():
            identity = (target / "partition.metadata").read_bytes()
            shutil.rmtree(target)
            shutil.copytree(source, target)
            (target / "partition.metadata").write_bytes(identity)

"""Consumer payloads and coordinator records, against `construct` and the classes Apache Kafka writes them with."""

import json
import random
from pathlib import Path
from uuid import UUID

import pytest
from tests.cases import in_one_test
from tests.java import compile_java, jars, run_java
from tests.protocol.kafka_definitions import assert_same_values
from tests.protocol.message_constructs import construct_for, to_plain
from tests.protocol.random_messages import random_message

from barnabas.protocol import (
    consumer_protocol,
    coordinator_records,
    share_coordinator_records,
    share_group_records,
    streams_group_records,
)
from barnabas.protocol.codec import decode_versioned, encode_versioned, peek_version
from barnabas.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from barnabas.protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentlyAssignedTopic,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogValue,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Message, versions_of

SHARE_AND_STREAMS = (share_coordinator_records, share_group_records, streams_group_records)
MODULES = (consumer_protocol, coordinator_records, *SHARE_AND_STREAMS)
CLASSES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Message) and value.__versions__
]
PACKAGES = {
    "ConsumerProtocol": "org.apache.kafka.common.message",
    "TransactionLog": "org.apache.kafka.coordinator.transaction.generated",
    "ShareSnapshot": "org.apache.kafka.coordinator.share.generated",
    "ShareUpdate": "org.apache.kafka.coordinator.share.generated",
    "": "org.apache.kafka.coordinator.group.generated",
}
# In the older release the number in front of a key is the version of its class; in the newer one it is a type, and the
# class has version 0.
RELEASES = ("3.9.1", "4.4.0")


def is_share_or_streams(cls: type) -> bool:
    return cls.__module__ in {module.__name__ for module in SHARE_AND_STREAMS}


LATER = {
    (OffsetCommitValue, 4),
    (TransactionLogValue, 1),
    (ConsumerGroupMetadataValue, 0),  # its hash, a tagged field
    (ConsumerGroupRegularExpressionKey, 16),
    (ConsumerGroupRegularExpressionValue, 0),
    (ConsumerGroupTargetAssignmentMetadataValue, 0),  # its timestamp, a tagged field
    (ConsumerGroupCurrentMemberAssignmentValue, 0),  # its assignment epochs, a tagged field
    *((cls, version) for cls in CLASSES if is_share_or_streams(cls) for version in versions_of(cls).numbers()),
}


@in_one_test("cls", CLASSES)
def test_agreement_with_construct(cls: type) -> None:
    for version in versions_of(cls).numbers():
        for seed in range(20):
            message = random_message(cls, version, random.Random(f"{cls.__name__} {version} {seed}"))
            data = encode_versioned(message, version)
            assert peek_version(data) == version
            assert data[2:] == construct_for(cls, version).build(to_plain(message, version))
            assert decode_versioned(cls, data) == message
            assert decode_versioned(cls, memoryview(data)) == message


def test_golden_offset_commit() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert encode_versioned(key, 1) == bytes.fromhex("0001 0001 67 0001 74 00000003")
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7)
    assert encode_versioned(value, 3) == bytes.fromhex("0003 0000000000000005 00000002 0001 6d 0000000000000007")
    assert encode_versioned(GroupMetadataKey(group="g"), 2) == bytes.fromhex("0002 0001 67")


def test_golden_member_of_the_consumer_protocol() -> None:
    """As Kafka 4.1.1 wrote it: that the member does not speak the classic protocol is an explicit null."""
    data = bytes.fromhex(
        "0000 00 00 07 6c6976696e67 0b 2f3132372e302e302e31 02 07 6f7264657273 01 000493e0 00 01 00 01 00"
    )
    value = ConsumerGroupMemberMetadataValue(
        client_id="living",
        client_host="/127.0.0.1",
        subscribed_topic_names=["orders"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=300_000,
        instance_id=None,
        rack_id=None,
        server_assignor=None,
        classic_member_metadata=None,
    )
    assert decode_versioned(ConsumerGroupMemberMetadataValue, data) == value
    assert encode_versioned(value, 0) == data


def test_assignment_epochs_of_kafka_4_4_and_of_older_versions() -> None:
    """The epochs are a tagged field that older versions omit, and null is another value than their absence."""
    topic = bytes(15) + b"\1"
    front, older, newer = (
        bytes.fromhex("0000 00000007 00000006 00 02"),
        "02 00000003",
        "02 00000003 01 00 05 02 00000007",
    )
    for data, epochs in (
        (bytes.fromhex(older + "00"), []),
        (bytes.fromhex(newer), [7]),
        (bytes.fromhex(older + "01 00 01 00"), None),
    ):
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            assigned_partitions=[
                CurrentlyAssignedTopic(topic_id=UUID(int=1), partitions=[3], assignment_epochs=epochs)
            ],
        )
        whole = front + topic + data + bytes.fromhex("01 00")
        assert decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, whole) == value
        assert encode_versioned(value, 0) == whole


def test_subscription_of_the_future() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["a"], owned_partitions=[TopicPartitions(topic="a", partitions=[1])]
    )
    data = bytes.fromhex("0007") + encode_versioned(subscription, 3)[2:] + b"what v7 adds"
    assert decode_versioned(ConsumerProtocolSubscription, data, later_is_newest=True) == subscription
    with pytest.raises(ProtocolError, match="version 7"):
        decode_versioned(ConsumerProtocolSubscription, data)


@pytest.mark.parametrize("data", ["", "00", "ffff", "0000", "0000 7fffffff", "0000 00000001 0002 61"])
def test_malformed(data: str) -> None:
    for later_is_newest in (True, False):
        with pytest.raises(ProtocolError):
            decode_versioned(ConsumerProtocolAssignment, bytes.fromhex(data), later_is_newest=later_is_newest)


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES)
def test_kafka_reads_and_writes_the_same_bytes(release: str) -> None:
    classpath = jars(
        f"org.apache.kafka:kafka-group-coordinator:{release}",
        f"org.apache.kafka:kafka-transaction-coordinator:{release}",
        *([f"org.apache.kafka:kafka-share-coordinator:{release}"] if release != RELEASES[0] else []),
        "com.fasterxml.jackson.core:jackson-databind:2.16.2",
    )
    asked = []
    for cls in CLASSES:
        is_typed = release != RELEASES[0] and cls.__name__.endswith("Key")
        for version in versions_of(cls).numbers():
            if release == RELEASES[0] and (cls, version) in LATER:
                continue
            if is_typed and version != max(versions_of(cls).numbers()):
                continue
            package = next(package for prefix, package in PACKAGES.items() if cls.__name__.startswith(prefix))
            for seed in range(20):
                message = random_message(cls, version, random.Random(f"{cls.__name__} {version} {seed}"))
                body = encode_versioned(message, version)[2:]
                question = f"record {package}.{cls.__name__} {0 if is_typed else version} {body.hex()}"
                asked.append((message, version, body, question))
    classes = compile_java(Path(__file__).parent / "java", classpath)
    questions = "\n".join(question for *_, question in asked) + "\n"
    result = run_java("MessageOracle", [classes, *classpath], stdin=questions)
    assert result.returncode == 0, result.stderr[-2000:]
    for (message, version, body, question), answer in zip(asked, result.stdout.splitlines(), strict=True):
        assert not answer.startswith("error"), f"{question[:200]}: {answer}"
        left, again, text = answer.split(" ", 2)
        assert (left, again) == ("0", body.hex()), question
        assert_same_values(type(message), message, json.loads(text), version, question)


def test_a_transaction_without_partitions() -> None:
    value = TransactionLogValue(producer_id=1, transaction_partitions=None)
    assert decode_versioned(TransactionLogValue, encode_versioned(value, 0)) == value

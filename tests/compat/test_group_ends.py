"""A group can be deleted as soon as its last member's `close()` has returned, with every client that says goodbye."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

ROUNDS = 12
TOPIC = "ends"


def read_with_confluent(bootstrap: str, group: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = ConfluentConsumer(settings)
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.close()


def read_with_kafka_python(bootstrap: str, group: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
    # A leader that assigns before it knows the topic gives out nothing, and this client may look again minutes later.
    assert consumer.partitions_for_topic(TOPIC)
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    consumer.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("read", [read_with_confluent, read_with_kafka_python])
def test_a_group_is_empty_when_its_last_member_has_closed(group_broker: str, read: Callable[[str, str], None]) -> None:
    admin = AdminClient({"bootstrap.servers": group_broker})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].exception(timeout=20)  # the first of these tests makes it
    for number in range(ROUNDS):
        group = f"{read.__name__}-{number}"
        read(group_broker, group)
        admin.delete_consumer_groups([group])[group].result(60)

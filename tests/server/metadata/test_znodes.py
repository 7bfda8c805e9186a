"""The JSON of the metadata tree is Apache Kafka's: its texts are read, ours have the same fields."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from barnabas.common.uuid_text import uuid_from_text, uuid_text
from barnabas.server.metadata import znodes
from barnabas.server.metadata.znodes import (
    BrokerEndpoint,
    BrokerInfo,
    LeaderIsrAndControllerEpoch,
    TopicRegistration,
)

TOPIC_ID = UUID("6f9619ff-8b86-4d01-b42d-00cf4fc964ff")


def test_uuid_text_is_22_characters_both_ways() -> None:
    text = uuid_text(TOPIC_ID)
    assert text == "b5YZ_4uGTQG0LQDPT8lk_w"
    assert uuid_from_text(text) == TOPIC_ID


def test_topic_of_every_version_is_read() -> None:
    newest = (
        b'{"removing_replicas":{},"partitions":{"1":[2,1],"0":[1,2]},"topic_id":"b5YZ_4uGTQG0LQDPT8lk_w",'
        b'"adding_replicas":{"0":[3]},"version":3}'
    )
    topic = znodes.decode_topic("t", newest)
    assert topic == TopicRegistration("t", TOPIC_ID, {0: (1, 2), 1: (2, 1)}, {0: (3,)}, {})
    assert list(topic.assignment) == [0, 1]
    oldest = znodes.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}')
    assert oldest == TopicRegistration("t", UUID(int=0), {0: (1,)})


def test_topic_is_written_as_kafka_writes_it() -> None:
    text = znodes.encode_topic(TopicRegistration("t", TOPIC_ID, {0: (1, 2)}))
    assert json.loads(text) == {
        "version": 3,
        "topic_id": "b5YZ_4uGTQG0LQDPT8lk_w",
        "partitions": {"0": [1, 2]},
        "adding_replicas": {},
        "removing_replicas": {},
    }


def test_partition_state_both_ways() -> None:
    kafka = b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'
    state = LeaderIsrAndControllerEpoch(1, 4, (1, 2), 9, partition_epoch=12)
    assert znodes.decode_state(kafka, 12) == state
    assert json.loads(znodes.encode_state(state)) == json.loads(kafka)
    recovering = LeaderIsrAndControllerEpoch(1, 4, (1,), 9, leader_recovery_state=1)
    assert json.loads(znodes.encode_state(recovering))["leader_recovery_state"] == 1


def test_broker_of_every_version_is_read() -> None:
    version_5 = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","OUT":"SSL"},'
        b'"endpoints":["PLAINTEXT://a:9092","OUT://[::1]:9093"],"jmx_port":-1,"port":9092,"host":"a","version":5,'
        b'"timestamp":"1700000000000","rack":"r1"}'
    )
    endpoints = (BrokerEndpoint("PLAINTEXT", "a", 9092), BrokerEndpoint("OUT", "::1", 9093, "SSL"))
    assert znodes.decode_broker(7, version_5, 99) == BrokerInfo(7, endpoints, "r1", 99)
    version_1 = b'{"version":1,"host":"a","port":9092,"jmx_port":-1,"timestamp":"1"}'
    assert znodes.decode_broker(7, version_1, 99) == BrokerInfo(7, (BrokerEndpoint("PLAINTEXT", "a", 9092),), None, 99)


def test_broker_is_written_for_old_clients_too() -> None:
    endpoints = (BrokerEndpoint("OUT", "b", 9093, "SSL"), BrokerEndpoint("IN", "a", 9092))
    value = json.loads(znodes.encode_broker(BrokerInfo(7, endpoints), 5))
    assert (value["host"], value["port"]) == ("a", 9092)
    assert value["endpoints"] == ["OUT://b:9093", "IN://a:9092"]
    assert value["listener_security_protocol_map"] == {"OUT": "SSL", "IN": "PLAINTEXT"}
    assert (value["version"], value["timestamp"], value["features"]) == (5, "5", {})
    assert "rack" not in value


def test_broker_without_a_plaintext_listener_names_none() -> None:
    value = json.loads(znodes.encode_broker(BrokerInfo(7, (BrokerEndpoint("OUT", "b", 9093, "SSL"),)), 5))
    assert (value["host"], value["port"]) == (None, -1)


def test_small_nodes() -> None:
    assert json.loads(znodes.encode_cluster_id("abc")) == {"version": "1", "id": "abc"}
    assert znodes.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"
    controller = znodes.encode_controller(3, 17)
    expected = {"version": 2, "brokerid": 3, "timestamp": "17", "kraftControllerEpoch": -1}
    assert json.loads(controller) == expected
    assert znodes.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"17"}') == 3
    assert json.loads(znodes.encode_config({"a": "b"})) == {"version": 1, "config": {"a": "b"}}
    assert znodes.decode_config(b'{"version":1,"config":{}}') == {}
    change = {"version": 2, "entity_path": "topics/t"}
    assert json.loads(znodes.encode_config_change("topics", "t")) == change
    block = znodes.encode_producer_id_block(1, 1000, 1999)
    assert json.loads(block) == {"version": 1, "broker": 1, "block_start": "1000", "block_end": "1999"}
    assert znodes.decode_producer_id_block(block) == (1000, 1999)


def test_a_node_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        znodes.decode_config(b"[]")

"""confluent-kafka's serializers, as they are, write and read through the registry, references among schemas too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from barnabas.testing import Broker

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "nyc",
    "fields": [{"name": "tail", "type": "string"}, {"name": "delay", "type": ["null", "int"], "default": None}],
}
DOCUMENT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Flight",
    "type": "object",
    "properties": {"tail": {"type": "string"}, "delay": {"type": "integer"}},
    "required": ["tail"],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["avro", "json", "protobuf"], schema_registry=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": broker.schema_registry_url})


def through(broker: Broker, topic: str, data: bytes) -> bytes:
    """Into the topic and out again."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, data)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def test_avro(broker: Broker, client: SchemaRegistryClient) -> None:
    place = SerializationContext("avro", MessageField.VALUE)
    row = {"tail": "N14228", "delay": 7}
    data = AvroSerializer(client, json.dumps(FLIGHT))(row, place)
    assert data is not None and data[0] == 0
    assert AvroDeserializer(client)(through(broker, "avro", data), place) == row
    older = {**FLIGHT, "fields": [FLIGHT["fields"][0]]}
    assert AvroDeserializer(client, json.dumps(older))(data, place) == {"tail": "N14228"}


def test_json(broker: Broker, client: SchemaRegistryClient) -> None:
    place = SerializationContext("json", MessageField.VALUE)
    row = {"tail": "N14228", "delay": 7}
    data = JSONSerializer(json.dumps(DOCUMENT), client)(row, place)
    assert data is not None
    assert (
        JSONDeserializer(json.dumps(DOCUMENT), schema_registry_client=client)(through(broker, "json", data), place)
        == row
    )


def flight_message() -> Any:
    """A message class as protoc would have made it, with an import, which becomes a reference."""
    kind = descriptor_pb2.FieldDescriptorProto
    plane = descriptor_pb2.FileDescriptorProto(name="plane.proto", package="nyc", syntax="proto3")
    plane.message_type.add(name="Plane").field.add(name="tail", number=1, type=kind.TYPE_STRING, label=1)
    flight = descriptor_pb2.FileDescriptorProto(
        name="flight.proto", package="nyc", syntax="proto3", dependency=["plane.proto"]
    )
    fields = flight.message_type.add(name="Flight").field
    fields.add(name="plane", number=1, type=kind.TYPE_MESSAGE, type_name=".nyc.Plane", label=1)
    fields.add(name="delay", number=2, type=kind.TYPE_INT32, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(plane)
    pool.Add(flight)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nyc.Flight"))


def test_protobuf(broker: Broker, client: SchemaRegistryClient) -> None:
    place = SerializationContext("protobuf", MessageField.VALUE)
    flight = flight_message()
    row = flight(delay=7)
    row.plane.tail = "N14228"
    data = ProtobufSerializer(flight, client, {"use.deprecated.format": False})(row, place)
    assert data is not None
    back = ProtobufDeserializer(flight, {"use.deprecated.format": False}, client)(
        through(broker, "protobuf", data), place
    )
    assert back == row
    version = client.get_latest_version("protobuf-value")
    assert [(one.name, one.subject, one.version) for one in version.schema.references or ()] == [
        ("plane.proto", "plane.proto", 1)
    ]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_version("plane.proto", 1)
    assert refused.value.error_code == 42206


def test_admin(client: SchemaRegistryClient) -> None:
    """What the library's client asks beside what its serializers need."""
    first = client.register_schema("orders-value", Schema(json.dumps(FLIGHT), "AVRO"))
    assert client.get_schema(first).schema_str == json.dumps(FLIGHT, separators=(",", ":"))
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    assert "orders-value" in client.get_subjects()
    changed = {**FLIGHT, "fields": [{"name": "tail", "type": "int"}]}
    assert not client.test_compatibility("orders-value", Schema(json.dumps(changed), "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("orders-value", Schema(json.dumps(changed), "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    client.set_compatibility("orders-value", "NONE")
    assert client.get_config("orders-value").compatibility_level == "NONE"
    assert (
        client.register_schema("orders-value", Schema(json.dumps(changed), "AVRO"))
        == first + client.get_version("orders-value", 2).schema_id - first
    )
    assert client.get_versions("orders-value") == [1, 2]
    referring = Schema(
        '{"type":"array","items":"nyc.Flight"}', "AVRO", [SchemaReference("nyc.Flight", "orders-value", 1)]
    )
    client.register_schema("lists-value", referring)
    assert client.get_latest_version("lists-value").schema.references == referring.references
    client.delete_subject("lists-value")
    assert client.delete_subject("orders-value") == [1, 2]
    with pytest.raises(SchemaRegistryError) as gone:
        client.get_latest_version("orders-value")
    assert gone.value.error_code == 40401
    assert client.delete_subject("orders-value", permanent=True) == [1, 2]

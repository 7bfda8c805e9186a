"""Values read by a registry's schemas: by the decoder, and by `barnabas consume`."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2

from barnabas.clients.decoding import registry_decoder, worker
from barnabas.clients.decoding.registry_decoder import RegistryDecoder
from barnabas.testing import Broker

from .test_serializers import DOCUMENT, FLIGHT, flight_message

PLACE = SerializationContext("flights", MessageField.VALUE)
ROW = {"tail": "N14228", "delay": 7}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["flights"], schema_registry=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": broker.schema_registry_url})


def framed(client: SchemaRegistryClient, kind: str) -> bytes:
    """The row, or what Protobuf has instead, under a subject of its own."""
    place = SerializationContext(kind, MessageField.VALUE)
    if kind == "avro":
        data = AvroSerializer(client, json.dumps(FLIGHT))(ROW, place)
    elif kind == "json":
        data = JSONSerializer(json.dumps(DOCUMENT), client)(ROW, place)
    else:
        flight = flight_message()
        row = flight(delay=7)
        row.plane.tail = "N14228"
        data = ProtobufSerializer(flight, client, {"use.deprecated.format": False})(row, place)
    assert data is not None
    return data


def test_what_serializers_write_is_read(broker: Broker, client: SchemaRegistryClient) -> None:
    decoder = RegistryDecoder(broker.schema_registry_url)
    assert decoder.decode(framed(client, "avro")) == ROW
    assert decoder.decode(framed(client, "json")) == ROW
    assert decoder.decode(framed(client, "protobuf")) == {"plane": {"tail": "N14228"}, "delay": 7}


def test_schemas_that_refer_to_others(broker: Broker, client: SchemaRegistryClient) -> None:
    client.register_schema("inner", Schema(json.dumps(FLIGHT), "AVRO"))
    reference = SchemaReference("nyc.Flight", "inner", 1)
    known = client.register_schema("outer", Schema('{"type":"array","items":"nyc.Flight"}', "AVRO", [reference]))
    flight = framed(client, "avro")[5:]
    data = b"\0" + known.to_bytes(4, "big") + b"\x02" + flight + b"\0"
    assert RegistryDecoder(broker.schema_registry_url).decode(data) == [ROW]


FIXED = {"type": "fixed", "name": "F", "size": 1}


def record(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ([record("A", FIXED), record("B", "F")], b"\x02z", {"x": b"z"}),
        ({"type": "array", "items": [FIXED, record("A", "F")]}, b"\x04\0y\x02z\0", [b"y", {"x": b"z"}]),
        ({"type": "map", "values": [FIXED, record("A", "F")]}, b"\x02\x02k\x02z\0", {"k": {"x": b"z"}}),
    ],
    ids=["union", "array", "map"],
)
def test_a_type_may_be_used_twice_below_a_union_an_array_or_a_map(
    broker: Broker, client: SchemaRegistryClient, schema: Any, data: bytes, value: Any
) -> None:
    known = client.register_schema("twice", Schema(json.dumps(schema), "AVRO"))
    client.delete_subject("twice")
    assert RegistryDecoder(broker.schema_registry_url).decode(b"\0" + known.to_bytes(4, "big") + data) == value


def test_a_union_of_references_that_share_one_is_read_after_all_were_soft_deleted(
    broker: Broker, client: SchemaRegistryClient
) -> None:
    client.register_schema("F", Schema(json.dumps(FIXED), "AVRO"))
    shared = [SchemaReference("F", "F", 1)]
    for name in ("A", "B"):
        client.register_schema(name, Schema(json.dumps(record(name, "F")), "AVRO", shared))
    references = [SchemaReference(name, name, 1) for name in ("A", "B")]
    known = client.register_schema("A-or-B", Schema('["A","B"]', "AVRO", references))
    data = b"\0" + known.to_bytes(4, "big") + b"\x02z"
    assert RegistryDecoder(broker.schema_registry_url).decode(data) == {"x": b"z"}
    for subject in ("A-or-B", "B", "A", "F"):
        client.delete_subject(subject)
    assert RegistryDecoder(broker.schema_registry_url).decode(data) == {"x": b"z"}


def test_a_schema_that_was_not_found_is_looked_up_again_after_a_while(
    broker: Broker, client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(registry_decoder, "monotonic_seconds", lambda: now)
    decoder = RegistryDecoder(broker.schema_registry_url)
    known = client.register_schema("earlier", Schema('{"type":"bytes","number":1}', "AVRO"))
    data = b"\0" + (known + 1).to_bytes(4, "big") + b"\x02z"
    with pytest.raises(LookupError, match="is not in the registry"):
        decoder.decode(data)
    assert client.register_schema("later", Schema('{"type":"bytes","number":2}', "AVRO")) == known + 1
    now += registry_decoder.FAILED_SECONDS - 1
    with pytest.raises(LookupError, match="is not in the registry"):
        decoder.decode(data)
    now += 1
    assert decoder.decode(data) == b"z"


def test_registered_descriptors_are_each_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many refer to one another; with a turn for each way to come to one, twenty would take a million."""
    kind = descriptor_pb2.FieldDescriptorProto
    files = []
    for n in range(20):
        file = descriptor_pb2.FileDescriptorProto(
            name=f"f{n}.proto", package="p", syntax="proto3", dependency=[f"f{n - 1}.proto"] if n else []
        )
        fields = file.message_type.add(name=f"M{n}").field
        fields.add(name="n", number=1, type=kind.TYPE_INT32, label=1)
        if n:
            fields.add(name="m", number=2, type=kind.TYPE_MESSAGE, type_name=f".p.M{n - 1}", label=1)
        files.append((file.name, base64.b64encode(file.SerializeToString()).decode()))
    read: list[str] = []
    monkeypatch.setattr(
        worker,
        "registered_descriptor",
        lambda text, real=worker.registered_descriptor: (read.append(text), real(text))[1],
    )
    *others, (_, main) = files
    decode = worker.decoder_of({"kind": "PROTOBUF", "text": main, "references": others})
    assert decode(b"\x08\x07\x12\x02\x08\x05", False) == {"n": 7, "m": {"n": 5}}
    assert len(read) == len(files)


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: b"", LookupError),
        (lambda data: b"\1" + data[1:], LookupError),
        (lambda data: b"\0\0\xff\xff\xff" + data[5:], LookupError),
        (lambda data: data[:-3], ValueError),
        (lambda data: data[:5], ValueError),
        (lambda data: data[:5] + b"\xff" * 20, ValueError),
    ],
)
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_what_is_none_of_it(
    broker: Broker, client: SchemaRegistryClient, kind: str, damage: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        RegistryDecoder(broker.schema_registry_url).decode(damage(framed(client, kind)))


def test_a_registry_that_is_none() -> None:
    with pytest.raises(ValueError, match="invalid address"):
        RegistryDecoder("localhost:8081")
    with Broker() as broker, pytest.raises(OSError, match="schema registry"):
        RegistryDecoder(f"http://{broker.bootstrap}").decode(b"\0\0\0\0\1x")


def consumed(broker: Broker, *options: str) -> list[str]:
    command = [sys.executable, "-m", "barnabas.tools.cli", "consume", "flights", "-e", "-b", broker.bootstrap]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_consume(broker: Broker, client: SchemaRegistryClient) -> None:
    """What is framed becomes JSON; what only looks like it stays what it is."""
    number = (7).to_bytes(8, "big")
    broker.produce("flights", [(number, framed(client, "avro")), ("plain", "text"), ("none", None)])
    registry = broker.schema_registry_url
    assert consumed(broker, "-r", registry, "-f", "%s\\n") == [json.dumps(ROW), "text", ""]
    envelopes = [json.loads(line) for line in consumed(broker, "-r", registry, "-J")]
    assert [one["payload"] for one in envelopes] == [ROW, "text", None]
    assert [one["key"] for one in envelopes] == [number.decode(), "plain", "none"]


def test_consume_prints_numbers_as_the_record_has_them(client: SchemaRegistryClient) -> None:
    document = '{"a": 12345678901234567.89, "a": 0.10, "b": [1e400, 9007199254740993], "c": "\\ud800"}'
    with Broker(topics=["flights"], schema_registry=True) as broker:
        registry = SchemaRegistryClient({"url": broker.schema_registry_url})
        as_json = registry.register_schema("numbers", Schema("{}", "JSON")).to_bytes(4, "big")
        as_avro = registry.register_schema("not-a-number", Schema('"double"', "AVRO")).to_bytes(4, "big")
        broker.produce("flights", [b"\0" + as_json + document.encode()])
        broker.produce("flights", [b"\0" + as_json + b'{"x":NaN,"y":[-Infinity]}'])
        broker.produce("flights", [b"\0" + as_avro + struct.pack("<d", float("nan"))])
        url = broker.schema_registry_url
        texts = [document, '{"x": "NaN", "y": ["-Infinity"]}', '"NaN"']
        assert consumed(broker, "-r", url) == texts
        for line, text in zip(consumed(broker, "-r", url, "-J"), texts, strict=True):
            assert line.endswith(f', "key": null, "payload": {text}}}')
            json.loads(line, parse_constant=pytest.fail)

"""Records of a KRaft quorum: round trips, Kafka's definitions, and rejection of unknown records."""

import json
import random
import re
import zipfile
from typing import Any

import pytest
from tests.cases import in_one_test
from tests.java import jars
from tests.protocol.kafka_definitions import kafka_tree, our_tree
from tests.protocol.random_messages import random_message

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.metadata_records import (
    CONTROL_TYPES,
    NUMBERS,
    TYPES,
    LeaderChangeMessage,
    NoOpRecord,
    TopicRecord,
    Voter,
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
)
from barnabas.protocol.record_batch_builder import CONTROL_RECORD_KEY
from barnabas.protocol.schema import parse_versions, versions_of

RENAMED_BEFORE = {"ZkMigrationRecord": "ZkMigrationStateRecord"}


def every_version(classes: dict[int, type]) -> list[tuple[type, int]]:
    return [(cls, version) for cls in classes.values() for version in versions_of(cls).numbers()]


@in_one_test(("cls", "version"), every_version(TYPES))
def test_record_round_trip(cls: type, version: int) -> None:
    for seed in range(20):
        record = random_message(cls, version, random.Random(f"{cls.__name__} {version} {seed}"))
        value = encode_metadata_record(record, version)
        assert value[:3] == bytes((1, NUMBERS[cls], version))
        assert decode_metadata_record(value) == record


@in_one_test(("cls", "version"), every_version(CONTROL_TYPES))
def test_control_record_round_trip(cls: type, version: int) -> None:
    for seed in range(20):
        record: Any = random_message(cls, version, random.Random(f"{cls.__name__} {version} {seed}"))
        record.version = version
        key, value = encode_control_record(record)
        assert decode_control_record(key, value) == record


def test_record_is_encoded_in_the_newest_version_by_default() -> None:
    assert encode_metadata_record(NoOpRecord()) == bytes((1, 20, 0, 0))
    assert decode_metadata_record(bytes((1, 20, 0, 0))) == NoOpRecord()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01\x02",
        b"\x02\x14\x00\x00",
        b"\x01\x06\x00\x00",
        b"\x01\x7f\x00\x00",
        b"\x01\x14\x01\x00",
        b"\x01\x02\x00",
    ],
    ids=["empty", "short", "frame version", "type 6", "type 127", "version", "truncated"],
)
def test_unknown_or_invalid_record_is_rejected(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata_record(value)


def test_unknown_control_record_is_rejected() -> None:
    key, value = encode_control_record(LeaderChangeMessage(version=1, leader_id=1, voters=[Voter(voter_id=1)]))
    for bad_key, bad_value in (
        (None, value),
        (CONTROL_RECORD_KEY.struct.pack(0, 7), value),
        (key, None),
        (key, b"\0\2"),
    ):
        with pytest.raises(ProtocolError):
            decode_control_record(bad_key, bad_value)


def test_version_that_cannot_carry_a_value_is_rejected() -> None:
    with pytest.raises(ProtocolError):
        encode_metadata_record(TopicRecord(name="t"), 1)


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", ["4.4.0", "4.1.1", "3.9.1"])
def test_fields_are_those_of_kafka(release: str) -> None:
    ours = {cls.__name__: cls for cls in (*TYPES.values(), *CONTROL_TYPES.values())}
    seen = set()
    for jar in jars(f"org.apache.kafka:kafka_2.13:{release}", f"org.apache.kafka:kafka-tools:{release}"):
        if jar.name not in (f"kafka-metadata-{release}.jar", f"kafka-clients-{release}.jar"):
            continue
        with zipfile.ZipFile(jar) as archive:
            for path in archive.namelist():
                if not re.fullmatch(r"common/(metadata|message)/\w+\.json", path):
                    continue
                definition = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", archive.read(path).decode()))
                name = RENAMED_BEFORE.get(definition["name"], definition["name"])
                if definition["type"] == "metadata" or name in ours:
                    cls = ours[name]
                    seen.add(name)
                    assert definition.get("apiKey") == NUMBERS.get(cls)
                    for version in parse_versions(definition["validVersions"]).numbers():
                        assert our_tree(cls, version) == kafka_tree(definition, version), (name, version)
    later = {"UnregisterControllerRecord"} if release != "4.4.0" else set()
    assert ours.keys() - seen <= later | ({"ClearElrRecord"} if release == "3.9.1" else set())

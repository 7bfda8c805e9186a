"""Settings that a KRaft quorum has left in a log directory are named in the log when the logs are adopted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas import Broker
from barnabas.protocol.codec import encode_item
from barnabas.protocol.metadata_records import (
    TYPES,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.controller.kraft_metadata import METADATA_FOLDER, KraftSettings, read_kraft_settings
from barnabas.storage.filesystem import OsFileSystem

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
NUMBERS = {cls: number for number, cls in TYPES.items()}


def batch(base_offset: int, *records: Any) -> bytes:
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(None, bytes((1, NUMBERS[type(record)], 0)) + encode_item(record, 0))
    data = bytearray(builder.build())
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def config(resource_type: int, resource: str, name: str, value: str | None = "1") -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)


def scram(name: str) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )


def acl(number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


def quota(user: str | None, key: str, *, remove: bool = False) -> ClientQuotaRecord:
    entity = [EntityData(entity_type="user", entity_name=user)]
    return ClientQuotaRecord(entity=entity, key=key, value=1.0, remove=remove)


RECORDS = (
    TopicRecord(name="t", topic_id=UUID(int=1)),
    TopicRecord(name="deleted", topic_id=UUID(int=2)),
    config(TOPIC, "t", "retention.ms"),
    config(TOPIC, "t", "cleanup.policy"),
    config(TOPIC, "deleted", "retention.ms"),
    RemoveTopicRecord(topic_id=UUID(int=2)),
    config(BROKER, "", "log.cleaner.threads"),
    config(BROKER, "1", "max.connections"),
    config(BROKER, "1", "max.connections", None),
    config(GROUP, "evil\n2026 ERROR", "consumer.session.timeout.ms"),
    config(CLIENT_METRICS, "m", "interval.ms"),
    quota("alice", "producer_byte_rate"),
    quota(None, "consumer_byte_rate"),
    quota("bob", "request_percentage"),
    quota("bob", "request_percentage", remove=True),
    scram("carol"),
    scram("dave"),
    RemoveUserScramCredentialRecord(name="dave", mechanism=1),
    acl(1),
    acl(2),
    RemoveAccessControlEntryRecord(id=UUID(int=2)),
)
SENTENCES = [
    "settings of topics: 1: t (cleanup.policy, retention.ms)",
    "settings of brokers: 1: <default> (log.cleaner.threads)",
    "settings of groups: 1: evil\\n2026 ERROR (consumer.session.timeout.ms)",
    "client metrics subscriptions: 1: m (interval.ms)",
    "quotas of clients: 2: user=<default> (consumer_byte_rate), user=alice (producer_byte_rate)",
    "SCRAM users: 1: carol",
    "ACLs: 1",
]


def read(folder: Path) -> KraftSettings:
    return read_kraft_settings(OsFileSystem(), str(folder))


def test_each_kind_of_settings_is_named_as_the_records_leave_it(tmp_path: Path) -> None:
    folder = tmp_path / METADATA_FOLDER
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(batch(0, *RECORDS))
    assert read(folder).sentences() == SENTENCES


def test_snapshot_is_read_first_and_the_log_from_its_end_on(tmp_path: Path) -> None:
    folder = tmp_path / METADATA_FOLDER
    folder.mkdir()
    (folder / f"{4:020d}-{1:010d}.checkpoint").write_bytes(batch(0, scram("in-snapshot")))
    (folder / f"{0:020d}.log").write_bytes(batch(0, *map(scram, "abcd")) + batch(4, scram("after")))
    assert read(folder).sentences() == ["SCRAM users: 2: after, in-snapshot"]


def test_damaged_batch_ends_the_reading(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / METADATA_FOLDER
    folder.mkdir()
    damaged = bytearray(batch(1, scram("b")))
    damaged[-1] ^= 1
    (folder / f"{0:020d}.log").write_bytes(batch(0, scram("a")) + damaged)
    assert read(folder).sentences() == ["SCRAM users: 1: a"]
    assert "is damaged" in caplog.text


def test_settings_that_are_not_adopted_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=tmp_path / "first", topics={"t": 1}) as broker:
        broker.produce("t", [b"1"])
    data = tmp_path / "second"
    data.mkdir()
    (tmp_path / "first" / "t-0").rename(data / "t-0")
    (data / METADATA_FOLDER).mkdir()
    (data / METADATA_FOLDER / f"{0:020d}.log").write_bytes(batch(0, *RECORDS))
    caplog.set_level(logging.WARNING)
    for expected in (SENTENCES, []):
        caplog.clear()
        with Broker(data_dir=data) as broker:
            assert broker.has_topic("t")
        lines = [one.getMessage() for one in caplog.records if "not adopted" in one.getMessage()]
        told = [line.partition(f"{METADATA_FOLDER}: ")[2] for line in lines if METADATA_FOLDER in line]
        assert told == expected
        assert not any("folders do not hold" in one.getMessage() for one in caplog.records)

"""Requests about the state of share-partitions are answered as by Apache Kafka 4.4.0, field by field."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.test_share_group_state_topic import SETTINGS, Leader, create, lead
from tests.kafka import KafkaServer
from tests.server.coordinator.share.share_requests import (
    delete,
    delete_data,
    initialize,
    initialize_data,
    read,
    read_data,
    summary,
    summary_data,
    write,
    write_data,
)

from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from barnabas.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from barnabas.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas.protocol.schema import Message, fields_of

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(280)]

UNKNOWN_ID = UUID("12345678-9abc-4def-8123-456789abcdef")
MAX_INT, MAX_LONG = (1 << 31) - 1, (1 << 63) - 1


def requests(topic_id: UUID) -> Iterator[tuple[Any, int]]:
    """The requests of a conversation, with their versions."""
    for group_id, topic in (("g", topic_id), ("g", UNKNOWN_ID), ("", topic_id)):
        yield read(group_id, topic, read_data()), 0
        yield write(group_id, topic, write_data()), 1
        yield summary(group_id, topic, summary_data()), 1
        yield delete(group_id, topic, delete_data()), 0
        yield initialize(group_id, topic, initialize_data()), 0
        yield read(group_id, topic, read_data()), 0
        yield write(group_id, topic), 1
        yield read(group_id, topic), 0
        yield summary(group_id, topic), 1
        yield delete(group_id, topic), 0
    for empty in (
        InitializeShareGroupStateRequest(group_id="g"),
        ReadShareGroupStateRequest(group_id="g"),
        WriteShareGroupStateRequest(group_id="g"),
        DeleteShareGroupStateRequest(group_id="g"),
        ReadShareGroupStateSummaryRequest(group_id="g"),
    ):
        yield empty, 0
    for index in (-1, 1, 3, 4, MAX_INT):
        yield initialize("h", topic_id, initialize_data(index)), 0
        yield read("h", topic_id, read_data(index)), 0
        yield write("h", topic_id, write_data(partition=index)), 0
        yield summary("h", topic_id, summary_data(index)), 0
        yield delete("h", topic_id, delete_data(index)), 0
    for epoch in (5, 4, -1, 5, MAX_INT):
        yield initialize("i", topic_id, initialize_data(state_epoch=epoch, start=epoch)), 0
        yield summary("i", topic_id, summary_data()), 1
    yield initialize("j", topic_id, initialize_data(state_epoch=5, start=-1)), 0
    yield summary("j", topic_id, summary_data()), 1
    for leader_epoch in (-1, 3, 3, 2, MAX_INT, 7):
        yield read("j", topic_id, read_data(leader_epoch=leader_epoch)), 0
        yield summary("j", topic_id, summary_data()), 1
    for state_epoch, leader_epoch in ((4, MAX_INT), (5, 7), (-1, MAX_INT), (5, -1), (5, MAX_INT), (9, MAX_INT)):
        yield write("j", topic_id, write_data(state_epoch=state_epoch, leader_epoch=leader_epoch)), 1
        yield read("j", topic_id, read_data(leader_epoch=MAX_INT)), 0
    yield initialize("k", topic_id, initialize_data(start=10)), 0
    for data in (
        write_data((10, 19, 2, 1), (20, 29, 0, 1), start=10, count=10),
        write_data((15, 24, 4, 3), (22, 22, 2, 3), (25, 25, 0, 9), start=12, count=4),
        write_data((10, 11, 2, 1), start=5, count=99),
        write_data(start=12, count=2),
        write_data((12, 40, 2, 1), start=13, count=0),
        write_data((MAX_LONG - 1, MAX_LONG - 1, 2, 32767), start=13, count=MAX_INT),
        write_data(start=30),
    ):
        yield write("k", topic_id, data), 1
        yield read("k", topic_id, read_data()), 0
        yield summary("k", topic_id, summary_data()), 1
        yield summary("k", topic_id, summary_data()), 0
    yield write("k", topic_id, write_data((31, 31, 2, 1), start=31)), 0
    yield summary("k", topic_id, summary_data()), 1
    yield delete("k", topic_id, delete_data()), 0
    yield read("k", topic_id, read_data()), 0
    yield delete("k", topic_id, delete_data()), 0


KEYS = (
    "",
    "g",
    "g:t",
    "g:{0}:0",
    "a:b:{0}:2",
    ":{0}:0",
    " :{0}:0",
    "g:{0}:x",
    "g:{0}:99",
    "g:{0}:-1",
    "g:{0}::",
    "g:x:0",
)


async def conversation(leader: Leader) -> list[Any]:
    """All responses, with the topic id of this broker replaced."""
    connection, topic_id = leader._connection, leader.topic_id
    # Until their coordinators are loaded.
    for group_id in "gghijk":
        await leader.ask(group_id, 0, summary(group_id, topic_id, summary_data()))
        await leader.ask(group_id, 1, summary(group_id, topic_id, summary_data(1)))
        await leader.ask(group_id, 3, summary(group_id, topic_id, summary_data(3)))
    found: list[Any] = []
    for request, version in requests(topic_id):
        response = await connection.send(request, version)
        found.append((request.__class__.__name__, version, replaced(response, topic_id)))
    name = uuid_text(topic_id)
    for version in (5, 6):
        for key in KEYS:
            request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key.format(name)])
            (one,) = (await connection.send(request, version)).coordinators
            found.append((key, version, one.error_code, one.node_id))
    return found


def replaced(value: Any, topic_id: UUID) -> Any:
    """The content of a response without the topic id and the wording of errors."""
    if isinstance(value, Message):
        fields = {field.name: getattr(value, field.name) for field in fields_of(type(value))}
        return {
            name: one is not None if name == "error_message" else replaced(one, topic_id)
            for name, one in fields.items()
        }
    if isinstance(value, list):
        return [replaced(one, topic_id) for one in value]
    return "t" if value == topic_id else value


def test_requests_are_answered_as_by_kafka(tmp_path: Path) -> None:
    answers = []
    ours = BarnabasServer(tmp_path / "ours", properties=SETTINGS)
    kafka = KafkaServer(tmp_path / "kafka", version="4.4.0", heap="512m", properties=SETTINGS)
    for server in (ours, kafka):
        with server:
            asyncio.run(create(server.bootstrap))
            answers.append(lead(server.bootstrap, conversation))
    assert len(answers[0]) == len(answers[1])
    for mine, kafkas in zip(*answers, strict=True):
        assert mine == kafkas

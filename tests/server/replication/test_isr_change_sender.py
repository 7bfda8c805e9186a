"""ISR changes that the controller refuses: how often they are sent, and what is logged of them."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import until

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.isr_change_sender import IsrChangeSender
from barnabas.server.replication.leader_and_isr import IsrChange

PARTITIONS = 7


@pytest.mark.parametrize(
    ("code", "level"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, logging.INFO),
        (ErrorCode.NEW_LEADER_ELECTED, logging.INFO),
        (ErrorCode.INVALID_REQUEST, logging.WARNING),
    ],
)
async def test_expected_refusals_of_many_partitions_are_one_line_and_no_warning(
    caplog: pytest.LogCaptureFixture, code: ErrorCode, level: int
) -> None:
    """A clean stop of a cluster has such a refusal for each partition."""
    sent: list[IsrChange] = []
    failed: list[ErrorCode] = []

    async def propose(change: IsrChange) -> Any:
        sent.append(change)
        raise KafkaError(code, "refused")

    partition: Any = SimpleNamespace(
        is_pending=lambda change: True, fail_isr_change=lambda change, error: failed.append(error)
    )
    changes: Any = SimpleNamespace(submit=propose)
    sender = IsrChangeSender(changes, asyncio.get_running_loop())
    with caplog.at_level(logging.INFO, "barnabas.replication"):
        for number in range(PARTITIONS):
            sender.submit(partition, IsrChange(TopicPartition("t", number), 1, 1, (1, 2)))
        await until(lambda: caplog.records)
    await sender.close()
    assert len(sent) == PARTITIONS
    assert failed == [code] * PARTITIONS
    (line,) = caplog.records
    assert (line.levelno, line.getMessage().count("t-")) == (level, 5)
    assert f"{PARTITIONS} partitions with {code.name}" in line.getMessage()

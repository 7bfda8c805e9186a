"""A coordinator with very many transactional ids is there soon after a start."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.clients import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from barnabas.server.coordinator.transaction.transaction_log import transaction_key, transaction_record
from barnabas.server.coordinator.transaction.transaction_metadata import (
    TV_2,
    TransactionEntry,
    TransactionMetadata,
    TransactionState,
)
from barnabas.server.coordinator.transaction.transaction_state_manager import TransactionStateManager
from barnabas.testing import Broker

COUNT = 100_000
MAX_SECONDS = 3.0
"""Of the processor, the broker's start included."""
SETTINGS: dict[str, Any] = {"transaction.state.log.num.partitions": 1, "log.cleaner.enable": "false"}


async def fill(broker: Broker) -> None:
    """One batch for each id, as a coordinator writes them."""
    async with Producer(broker.bootstrap, transactional_id="x"):
        pass
    coordinator = broker.server.state.transaction_coordinator.state_manager
    written, now_ms = 0, int(time.time() * 1000)

    def done(error: ErrorCode) -> None:
        nonlocal written
        assert error is ErrorCode.NONE
        written += 1

    for number in range(COUNT):
        known = TransactionMetadata(
            number, 1, 60_000, TransactionState.COMPLETE_COMMIT, now_ms, start_ms=now_ms, client_version=TV_2
        )
        coordinator._log.append(0, [transaction_record(f"copier-{number}", known, TV_2)], done, timeout_ms=600_000)
        if number % 500 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(120):
        while written < COUNT:
            await asyncio.sleep(0.01)


@pytest.mark.verify
@pytest.mark.timeout(300)
async def test_a_hundred_thousand_ids_are_loaded_in_three_seconds(tmp_path: Path) -> None:
    async with Broker(topics=["t"], data_dir=tmp_path, config=SETTINGS) as broker:
        await fill(broker)
    began = time.process_time()
    async with Broker(data_dir=tmp_path, config=SETTINGS) as broker:
        coordinator = broker.server.state.transaction_coordinator.state_manager
        async with asyncio.timeout(120):
            while coordinator.is_loading:
                await asyncio.sleep(0.005)
        taken = time.process_time() - began
        assert sum(1 for _ in coordinator.transactions) == COUNT + 1
    assert taken < MAX_SECONDS


def transaction(number: int, state: TransactionState, partitions: Any = ()) -> TransactionMetadata:
    """A transactional id with an epoch."""
    now_ms = int(time.time() * 1000)
    return TransactionMetadata(
        number, 1, 60_000, state, now_ms, start_ms=now_ms, client_version=TV_2, partitions=frozenset(partitions)
    )


async def append(broker: Broker, *records: tuple[bytes, bytes | None]) -> None:
    """Append records to the log of the coordinator, durably."""
    log, outcomes = broker.server.state.transaction_coordinator.state_manager._log, list[ErrorCode]()
    assert log.append(0, records, outcomes.append, timeout_ms=10_000)
    async with asyncio.timeout(20):
        while not outcomes:
            await asyncio.sleep(0.005)
    assert outcomes == [ErrorCode.NONE]


async def loaded(broker: Broker) -> TransactionStateManager:
    """The state manager, once it has loaded the log."""
    manager = broker.server.state.transaction_coordinator.state_manager
    async with asyncio.timeout(20):
        while manager.is_loading:
            await asyncio.sleep(0.005)
    return manager


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0\7bad", b"\0\0"),  # the key ends within the id
        (b"\0", b"\0\0"),
        (transaction_key("bad"), b"\0\0\xff"),
        (transaction_key("bad"), b"\0\x63" + bytes(40)),
        (transaction_key("bad"), b""),
    ],
)
async def test_a_damaged_record_costs_no_other_transactional_id_when_the_log_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: bytes, value: bytes
) -> None:
    async with Broker(topics=["t"], data_dir=tmp_path, config=SETTINGS) as broker:
        async with Producer(broker.bootstrap, transactional_id="a") as producer, producer.transaction():
            await producer.send("t", b"1")
        await append(broker, (key, value))
        await append(broker, transaction_record("z", transaction(99, TransactionState.COMPLETE_ABORT), TV_2))
    async with Broker(data_dir=tmp_path, config=SETTINGS) as broker:
        manager = await loaded(broker)
        assert "a record of a transactional id is skipped" in caplog.text
        assert {one.transactional_id for one in manager.transactions} == {"a", "z"}
        for transactional_id in ("a", "bad", "z"):
            async with (
                Producer(broker.bootstrap, transactional_id=transactional_id) as producer,
                producer.transaction(),
            ):
                await producer.send("t", b"2")


async def test_an_end_that_cannot_be_carried_out_costs_no_other_after_the_log_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ("a", "bad", "z")
    async with Broker(topics=["t"], data_dir=tmp_path, config=SETTINGS) as broker:
        async with Producer(broker.bootstrap, transactional_id="first"):
            pass
        for number, transactional_id in enumerate(ids):
            ending = transaction(500 + number, TransactionState.PREPARE_ABORT, [("t", 0)])
            await append(broker, transaction_record(transactional_id, ending, TV_2))
    send_markers = TransactionCoordinator._send_markers

    def failing(self: TransactionCoordinator, entry: TransactionEntry) -> None:
        if entry.transactional_id == "bad":
            raise ValueError("on purpose")
        send_markers(self, entry)

    monkeypatch.setattr(TransactionCoordinator, "_send_markers", failing)
    async with Broker(data_dir=tmp_path, config=SETTINGS) as broker:
        manager = await loaded(broker)

        def states() -> list[TransactionState]:
            return [manager.get_transaction(one).metadata.state for one in ids]

        async with asyncio.timeout(20):
            while states()[::2] != [TransactionState.COMPLETE_ABORT] * 2:
                await asyncio.sleep(0.005)
        assert states()[1] is TransactionState.PREPARE_ABORT
        assert "the end of bad could not be carried out" in caplog.text

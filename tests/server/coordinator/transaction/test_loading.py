"""A coordinator with very many transactional ids is there soon after a start."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.clients import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.transaction.transaction_log import transaction_record
from barnabas.server.coordinator.transaction.transaction_metadata import TV_2, TransactionMetadata, TransactionState
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

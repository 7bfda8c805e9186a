"""What counts of a coordinator's log, taken in some records at a time."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.protocol.record_batch import TRANSACTIONAL_MASK, iter_batches
from barnabas.protocol.record_batch_builder import batch_of_pairs
from barnabas.server.coordinator.compacted_records import CompactedRecords
from barnabas.server.runtime.loop_sharing import CountBudget
from barnabas.simulation.loop import SimLoop, run


@pytest.mark.parametrize(("attributes", "producer_id"), [(0, -1), (TRANSACTIONAL_MASK, 7)])
def test_others_are_served_while_a_large_batch_is_taken_in(attributes: int, producer_id: int) -> None:
    pairs: list[tuple[bytes | None, bytes | None]] = [(b"%d" % number, b"v") for number in range(100)]
    (batch,) = iter_batches(bytes(batch_of_pairs(pairs, 0, attributes, producer_id, 0)))
    turns = 0

    async def main(_: SimLoop) -> None:
        nonlocal turns
        records = CompactedRecords()
        taking = asyncio.ensure_future(records.take(batch, CountBudget(20)))
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        taken = records.pending() if attributes else records.drain()
        assert sum(1 for _ in taken) == len(pairs)

    run(main, seed=3)
    assert turns >= 5

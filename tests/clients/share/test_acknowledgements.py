"""Acknowledgements: batches on the wire, and results that several callers await."""

from __future__ import annotations

import asyncio
import random
from math import inf
from uuid import UUID

import pytest
from tests.cases import in_one_test

from barnabas.clients.share.acknowledgements import (
    GAP,
    AcknowledgementBatch,
    Acknowledgements,
    AcknowledgeType,
    TopicIdPartition,
)
from barnabas.protocol.errors import ErrorCode, KafkaError

PARTITION = TopicIdPartition(UUID(int=1), "t", 0)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def new(flush: list[str] | None = None) -> Acknowledgements:
    return Acknowledgements(PARTITION, inf, lambda: flush.append("flush") if flush is not None else None)


def expanded(batches: list[AcknowledgementBatch]) -> dict[int, int]:
    """Each offset with its type, as a broker reads the batches."""
    found: dict[int, int] = {}
    for first, last, types in batches:
        assert len(types) in (1, last - first + 1)
        for offset in range(first, last + 1):
            assert offset not in found
            found[offset] = types[0] if len(types) == 1 else types[offset - first]
    return found


def test_offsets_of_one_type_are_one_batch_with_one_type() -> None:
    taken = new()
    for offset in (3, 1, 2):
        taken.add(offset, ACCEPT)
    assert taken.batches() == [(1, 3, [1])]


def test_types_of_neighbours_share_a_batch_and_a_long_run_has_its_own() -> None:
    taken = new()
    for offset in range(3):
        taken.add(offset, [ACCEPT, RELEASE, REJECT][offset])
    taken.add_range(3, 12, GAP)
    taken.add(20, ACCEPT)
    assert taken.batches() == [(0, 2, [1, 2, 3]), (3, 12, [0]), (20, 20, [1])]


def test_a_later_acknowledgement_of_a_record_replaces_the_earlier() -> None:
    taken = new()
    taken.add(1, ACCEPT)
    taken.add(1, RELEASE)
    assert taken.batches() == [(1, 1, [2])]


def test_a_range_of_any_length_is_one_batch() -> None:
    taken = new()
    taken.add_range(0, 1 << 60, REJECT)
    assert taken.batches() == [(0, 1 << 60, [3])]


@in_one_test("seed", range(50))
def test_batches_have_every_offset_once_in_order(seed: int) -> None:
    rng = random.Random(seed)
    taken, expected = new(), dict[int, int]()
    offset = 0
    for _ in range(60):
        offset += rng.choice((0, 0, 0, 1, 5))
        count = rng.choice((1, 1, 1, 2, 15))
        kind = rng.choice((GAP, *AcknowledgeType))
        if kind == GAP or count > 1:
            taken.add_range(offset, offset + count - 1, kind)
        else:
            taken.add(offset, AcknowledgeType(kind))
        expected |= dict.fromkeys(range(offset, offset + count), int(kind))
        offset += count
    batches = taken.batches()
    assert expanded(batches) == expected
    assert [batch.first_offset for batch in batches] == sorted(batch.first_offset for batch in batches)


async def test_awaiting_sends_without_delay_and_returns_the_result() -> None:
    flushed: list[str] = []
    taken = new(flushed)
    waiters = [asyncio.ensure_future(taken.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    assert flushed
    taken.complete(None)
    await asyncio.gather(*waiters)
    await taken


async def test_every_caller_gets_the_error() -> None:
    taken = new()
    taken.complete(KafkaError(ErrorCode.INVALID_RECORD_STATE, "late"))
    for _ in range(2):
        with pytest.raises(KafkaError, match="INVALID_RECORD_STATE: late"):
            await taken


async def test_a_cancelled_caller_leaves_the_result_to_the_others() -> None:
    taken = new()
    first, second = (asyncio.ensure_future(taken.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    assert not second.done()
    taken.complete(None)
    await second

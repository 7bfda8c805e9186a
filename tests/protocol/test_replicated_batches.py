"""Records of a leader are checked in one step: the compiled function does what its twin does."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from barnabas.protocol.batch_header import BATCH_HEADER, write_crc
from barnabas.protocol.native import native
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.protocol.replicated_batches import ReplicatedBatches, check_replicated_batches_py

Check = Callable[[memoryview, int, int], tuple[object, ...]]
compiled = pytest.mark.skipif(not hasattr(native, "check_replicated_batches"), reason="nothing is compiled here")
FUNCTIONS = [
    pytest.param(check_replicated_batches_py, id="python"),
    pytest.param(getattr(native, "check_replicated_batches", None), id="compiled", marks=compiled),
]
both = pytest.mark.parametrize("check", FUNCTIONS)


def batch(offset: int, count: int = 1, *, epoch: int = 3, timestamp: int = 1000, producer_id: int = -1) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=offset, partition_leader_epoch=epoch, producer_id=producer_id, base_sequence=0
    )
    for _ in range(count):
        assert builder.append(b"key", b"value", (), timestamp)
    return bytes(builder.build())


def patched(data: bytes, **fields: int) -> bytes:
    """The batch with other header fields, and the right CRC."""
    made = bytearray(data)
    BATCH_HEADER.patch(memoryview(made), **fields)
    write_crc(memoryview(made))
    return bytes(made)


@both
def test_batches_are_described_together(check: Check) -> None:
    batches = [
        batch(5, 3, timestamp=1000),
        batch(8, 1, epoch=4, timestamp=3000, producer_id=7),
        batch(20, 2, epoch=4, timestamp=2000),
        batch(22, 1, epoch=6, producer_id=8),
    ]
    starts = [sum(map(len, batches[:number])) for number in range(5)]
    found = ReplicatedBatches(*check(memoryview(b"".join(batches)), 5, 6))  # type: ignore[arg-type]
    assert found == (starts[4], 5, 22, 7, 3000, [starts[1], starts[3]], [(3, 5), (4, 8), (6, 22)])
    assert check(memoryview(b""), 5, 6) == (0, -1, -1, 0, -1, [], [])


@both
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(batch(1), id="repeats an offset"),
        pytest.param(batch(2, epoch=6), id="of a later leader"),
        pytest.param(patched(batch(2), last_offset_delta=-1), id="ends before its start"),
        pytest.param(batch(2)[:-1], id="cut off"),
        pytest.param(batch(2)[:60], id="cut off in its header"),
        pytest.param(batch(2)[:-1] + b"x", id="wrong CRC"),
        pytest.param(patched(batch(2), magic=1), id="older format"),
        pytest.param(patched(batch(2), magic=3), id="unknown format"),
        pytest.param(patched(batch(2), length=48), id="shorter than a header"),
        pytest.param(patched(batch(2), length=-1), id="negative length"),
        pytest.param(patched(batch(2**63 - 1)), id="no offset after it"),
        pytest.param(patched(batch(2**63 - 2), last_offset_delta=5), id="offset of more than 63 bits"),
    ],
)
def test_the_first_other_entry_ends_them(check: Check, second: bytes) -> None:
    first = batch(0, 2)
    found = check(memoryview(first + second), 0, 5)
    assert found == (len(first), 0, 1, 2, 1000, [], [(3, 0)])


@both
def test_without_a_followed_epoch_any_epoch_is_taken(check: Check) -> None:
    data = batch(0, epoch=9) + batch(1, epoch=-1) + batch(2, epoch=9)
    assert check(memoryview(data), 0, -1)[-1] == [(9, 0)], "records without an epoch begin no epoch"


@compiled
def test_the_compiled_check_equals_its_twin_for_damaged_bytes() -> None:
    rng = random.Random(39)
    for _ in range(3000):
        offset, data = rng.randrange(3), bytearray()
        for _ in range(rng.randrange(1, 5)):
            data += batch(offset, rng.randrange(1, 4), epoch=rng.randrange(-1, 5), producer_id=rng.choice((-1, 3)))
            offset += rng.randrange(5)
        for _ in range(rng.choice((0, 0, 1, 3))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        view = memoryview(data)[: rng.choice((len(data), rng.randrange(len(data) + 1)))]
        arguments = view, rng.randrange(3), rng.choice((-1, 2, 5))
        assert native.check_replicated_batches(*arguments) == check_replicated_batches_py(*arguments)

"""The records of `__share_group_state`: the bytes of the schemas, and what is read from them."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from tests.cases import in_one_test

from barnabas.protocol.codec import encode_versioned
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.share_coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from barnabas.server.coordinator.coordinator_topic import partition_for
from barnabas.server.coordinator.share.persister_state_batch_combiner import PersisterStateBatch, normalize
from barnabas.server.coordinator.share.share_coordinator_record_helpers import (
    new_share_snapshot_record,
    new_share_state_tombstone_record,
    new_share_update_record,
    read_record,
)
from barnabas.server.coordinator.share.share_group_offset import ShareGroupOffset
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey

TOPIC_ID = UUID("12345678-9abc-4def-8123-456789abcdef")
MAX_INT, MAX_LONG = (1 << 31) - 1, (1 << 63) - 1


def random_offset(rng: random.Random) -> ShareGroupOffset:
    def number(most: int) -> int:
        return rng.choice((0, 1, rng.randrange(most + 1), most))

    batches = []
    for _ in range(rng.choice((0, 1, 5, 200))):
        first = number(1 << 40)
        batches.append(PersisterStateBatch(first, first + rng.randrange(9), rng.choice((0, 2, 4)), number(32767)))
    return ShareGroupOffset(
        number(MAX_INT),
        number(MAX_INT),
        number(MAX_INT),
        rng.choice((-1, number(MAX_LONG))),
        rng.choice((-1, number(MAX_INT))),
        normalize(batches),
        number(MAX_LONG),
        number(MAX_LONG),
    )


def schema_batches(offset: ShareGroupOffset) -> list[StateBatch]:
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in offset.state_batches
    ]


@in_one_test("seed", range(30))
def test_records_are_those_of_the_schemas(seed: int) -> None:
    offset = random_offset(random.Random(seed))
    key = SharePartitionKey("gründe:1", TOPIC_ID, seed)
    names: dict[str, Any] = {"group_id": key.group_id, "topic_id": TOPIC_ID, "partition": seed}
    snapshot = new_share_snapshot_record(key, offset)
    snapshot_value = ShareSnapshotValue(
        snapshot_epoch=offset.snapshot_epoch,
        state_epoch=offset.state_epoch,
        leader_epoch=offset.leader_epoch,
        start_offset=offset.start_offset,
        delivery_complete_count=offset.delivery_complete_count,
        create_timestamp=offset.create_timestamp,
        write_timestamp=offset.write_timestamp,
        state_batches=schema_batches(offset),
    )
    encoded = snapshot.encode()
    assert encoded == (encode_versioned(ShareSnapshotKey(**names), 0), encode_versioned(snapshot_value, 0))
    assert read_record(*encoded) == snapshot
    assert len(encoded[0]) + len(encoded[1] or b"") <= snapshot.size_limit
    update = new_share_update_record(key, offset)
    update_value = ShareUpdateValue(
        snapshot_epoch=offset.snapshot_epoch,
        leader_epoch=offset.leader_epoch,
        start_offset=offset.start_offset,
        delivery_complete_count=offset.delivery_complete_count,
        state_batches=schema_batches(offset),
    )
    encoded = update.encode()
    assert encoded == (encode_versioned(ShareUpdateKey(**names), 1), encode_versioned(update_value, 0))
    expected = update._replace(offset=offset._replace(state_epoch=0, create_timestamp=0, write_timestamp=0))
    assert read_record(*encoded) == expected
    tombstone = new_share_state_tombstone_record(key)
    assert tombstone.encode() == (encode_versioned(ShareSnapshotKey(**names), 0), None)
    assert read_record(*tombstone.encode()) == tombstone


def test_records_of_later_versions_are_ignored_and_broken_ones_refused() -> None:
    key, value = new_share_update_record(SharePartitionKey("g", TOPIC_ID, 0), random_offset(random.Random(1))).encode()
    assert read_record(b"\x00\x07" + key[2:], value) is None
    with pytest.raises(ProtocolError):
        read_record(key, None)
    with pytest.raises(ProtocolError):
        read_record(key[:-1], value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g:EjRWeJq8Te-BI0VniavN7w:3", SharePartitionKey("g", TOPIC_ID, 3)),
        ("g:EjRWeJq8Te-BI0VniavN7w==:+3", SharePartitionKey("g", TOPIC_ID, 3)),
        ("a:b:EjRWeJq8Te-BI0VniavN7w:-1", SharePartitionKey("a:b", TOPIC_ID, -1)),
        (":g:EjRWeJq8Te-BI0VniavN7w:0:::", SharePartitionKey(":g", TOPIC_ID, 0)),
        ("", None),
        ("g", None),
        ("g:EjRWeJq8Te-BI0VniavN7w", None),
        ("g:EjRWeJq8Te-BI0VniavN7w:", None),
        (" \t:EjRWeJq8Te-BI0VniavN7w:0", None),
        (":EjRWeJq8Te-BI0VniavN7w:0", None),
        ("g:EjRWeJq8Te-BI0VniavN7:0", None),
        ("g:EjRWeJq8Te+BI0VniavN7w:0", None),
        ("g:EjRWeJq8Te-BI0VniavN7w:2147483648", None),
        ("g:EjRWeJq8Te-BI0VniavN7w:x", None),
    ],
)
def test_keys_are_read_as_by_kafka(text: str, expected: SharePartitionKey | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"expected|empty|integer|UUID"):
            SharePartitionKey.parse(text)
    else:
        assert SharePartitionKey.parse(text) == expected


def test_the_coordinator_key_is_that_of_kafka() -> None:
    key = SharePartitionKey("g", TOPIC_ID, 3).coordinator_key
    assert key == "g:EjRWeJq8Te-BI0VniavN7w:3"
    # Utils.abs("g:EjRWeJq8Te-BI0VniavN7w:3".hashCode()) % 50 in Java
    assert 0 <= partition_for(key, 50) < 50

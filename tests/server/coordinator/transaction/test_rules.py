"""What a transactional id may do: the table of states, what EndTxn comes to, epochs and their end, and the records."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.codec import encode_versioned, peek_version
from barnabas.protocol.coordinator_records import TransactionLogKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.server.coordinator.transaction.transaction_coordinator import (
    Outcome,
    end_transaction_tv1,
    end_transaction_tv2,
)
from barnabas.server.coordinator.transaction.transaction_log import (
    read_transaction,
    read_transaction_key,
    transaction_record,
    transaction_value,
)
from barnabas.server.coordinator.transaction.transaction_metadata import (
    AT_REST,
    COMPLETED,
    LAST_EPOCH,
    TRANSITIONS,
    TV_0,
    TV_2,
    TransactionMetadata,
    TransactionState,
)

_S, _E = TransactionState, ErrorCode
ID, EPOCH, NOW = 7, 5, 1000


def known(state: TransactionState, **changes: Any) -> TransactionMetadata:
    fields = TransactionMetadata(
        producer_id=ID, producer_epoch=EPOCH, timeout_ms=60_000, state=state, update_ms=1, start_ms=1
    )
    return fields._replace(**changes)  # type: ignore[arg-type]


def test_every_state_leads_where_the_table_says() -> None:
    assert TRANSITIONS.keys() == set(TransactionState)
    for state, others in TRANSITIONS.items():
        if state in COMPLETED:
            assert others == {COMPLETED[state]}
        if state in AT_REST:
            assert _S.PREPARE_COMMIT not in others


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (_S.EMPTY, _E.INVALID_TXN_STATE, _E.INVALID_TXN_STATE),
        (_S.ONGOING, _S.PREPARE_ABORT, _S.PREPARE_COMMIT),
        (_S.PREPARE_COMMIT, _E.INVALID_TXN_STATE, _E.CONCURRENT_TRANSACTIONS),
        (_S.PREPARE_ABORT, _E.CONCURRENT_TRANSACTIONS, _E.INVALID_TXN_STATE),
        (_S.COMPLETE_COMMIT, _E.INVALID_TXN_STATE, _E.NONE),
        (_S.COMPLETE_ABORT, _E.NONE, _E.INVALID_TXN_STATE),
    ],
)
def test_an_end_by_the_first_protocol(state: TransactionState, abort: Outcome, commit: Outcome) -> None:
    assert end_transaction_tv1(known(state), ID, EPOCH, _S.PREPARE_ABORT) == abort
    assert end_transaction_tv1(known(state), ID, EPOCH, _S.PREPARE_COMMIT) == commit
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert end_transaction_tv1(known(state), ID, epoch, _S.PREPARE_ABORT) is _E.PRODUCER_FENCED
    assert end_transaction_tv1(known(state), ID + 1, EPOCH, _S.PREPARE_ABORT) is _E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("state", "abort_again", "abort", "commit_again", "commit"),
    [
        (_S.EMPTY, _E.PRODUCER_FENCED, _S.PREPARE_ABORT, _E.PRODUCER_FENCED, _E.INVALID_TXN_STATE),
        (_S.COMPLETE_ABORT, _E.NONE, _S.PREPARE_ABORT, _E.PRODUCER_FENCED, _E.INVALID_TXN_STATE),
        (_S.COMPLETE_COMMIT, _E.INVALID_TXN_STATE, _S.PREPARE_ABORT, _E.NONE, _E.INVALID_TXN_STATE),
        (_S.ONGOING, _E.PRODUCER_FENCED, _S.PREPARE_ABORT, _E.PRODUCER_FENCED, _S.PREPARE_COMMIT),
        (_S.PREPARE_ABORT, _E.CONCURRENT_TRANSACTIONS, _E.PRODUCER_FENCED, _E.PRODUCER_FENCED, _E.PRODUCER_FENCED),
        (_S.PREPARE_COMMIT, _E.INVALID_TXN_STATE, _E.PRODUCER_FENCED, _E.CONCURRENT_TRANSACTIONS, _E.PRODUCER_FENCED),
    ],
)
def test_an_end_by_the_second_protocol(
    state: TransactionState, abort_again: Outcome, abort: Outcome, commit_again: Outcome, commit: Outcome
) -> None:
    one = known(state)
    assert end_transaction_tv2(one, ID, EPOCH - 1, _S.PREPARE_ABORT) == abort_again
    assert end_transaction_tv2(one, ID, EPOCH, _S.PREPARE_ABORT) == abort
    assert end_transaction_tv2(one, ID, EPOCH - 1, _S.PREPARE_COMMIT) == commit_again
    assert end_transaction_tv2(one, ID, EPOCH, _S.PREPARE_COMMIT) == commit
    assert end_transaction_tv2(one, ID + 1, EPOCH, _S.PREPARE_COMMIT) is _E.INVALID_PRODUCER_ID_MAPPING


def test_the_last_epoch_leads_to_another_producer_id() -> None:
    last = known(_S.ONGOING, producer_epoch=LAST_EPOCH - 1)
    assert last.is_exhausted
    ending = last.prepare_abort_or_commit(_S.PREPARE_COMMIT, TV_2, 99, NOW)
    assert (ending.producer_id, ending.producer_epoch, ending.next_id) == (ID, LAST_EPOCH, 99)
    done = ending.prepare_complete(NOW)
    assert (done.producer_id, done.producer_epoch, done.previous_id, done.next_id) == (99, 0, ID, -1)
    # Its producer has had no answer, and asks again as who it was.
    assert end_transaction_tv2(done, ID, LAST_EPOCH - 1, _S.PREPARE_COMMIT) is _E.NONE
    assert end_transaction_tv2(done, ID, LAST_EPOCH - 1, _S.PREPARE_ABORT) is _E.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [TV_0, TV_2])
def test_a_fenced_producer_has_an_epoch_that_is_worth_nothing(version: int) -> None:
    fenced = known(_S.ONGOING, last_epoch=EPOCH - 1).prepare_fence_producer_epoch(version, -1, NOW)
    assert (fenced.state, fenced.producer_epoch) == (_S.PREPARE_ABORT, EPOCH + 1)
    assert fenced.last_epoch == (EPOCH if version == TV_2 else -1)


@pytest.mark.parametrize("version", [TV_0, TV_2])
@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_no_epoch_follows_the_last_one(version: int, epoch: int) -> None:
    fenced = known(_S.ONGOING, producer_epoch=epoch).prepare_fence_producer_epoch(
        version, 99 if version == TV_2 else -1, NOW
    )
    assert (fenced.producer_id, fenced.producer_epoch) == (ID, LAST_EPOCH)
    done = fenced.prepare_complete(NOW)
    assert (done.producer_id, done.producer_epoch) == ((99, 0) if version == TV_2 else (ID, LAST_EPOCH))


@pytest.mark.parametrize("state", [_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT, _S.COMPLETE_COMMIT])
@pytest.mark.parametrize("wanted", [_S.PREPARE_ABORT, _S.PREPARE_COMMIT])
def test_the_fencing_epoch_is_no_producers(state: TransactionState, wanted: TransactionState) -> None:
    last = known(state, producer_epoch=LAST_EPOCH)
    assert end_transaction_tv1(last, ID, LAST_EPOCH, wanted) is _E.PRODUCER_FENCED
    assert end_transaction_tv2(last, ID, LAST_EPOCH, wanted) is _E.PRODUCER_FENCED
    assert end_transaction_tv2(last, ID, LAST_EPOCH - 1, wanted) in (_E.PRODUCER_FENCED, _E.INVALID_TXN_STATE)


def test_who_comes_back_with_its_epoch_gets_the_next_one_once() -> None:
    first = known(_S.COMPLETE_COMMIT).prepare_increment_producer_epoch(1, EPOCH, NOW)
    assert isinstance(first, TransactionMetadata)
    assert (first.producer_epoch, first.last_epoch, first.state) == (EPOCH + 1, EPOCH, _S.EMPTY)
    again = first.prepare_increment_producer_epoch(1, EPOCH, NOW)
    assert isinstance(again, TransactionMetadata)
    assert (again.producer_epoch, again.last_epoch) == (EPOCH + 1, EPOCH)
    assert first.prepare_increment_producer_epoch(1, EPOCH - 1, NOW) is _E.PRODUCER_FENCED
    heir = first.prepare_increment_producer_epoch(1, None, NOW)
    assert isinstance(heir, TransactionMetadata)
    assert (heir.producer_epoch, heir.last_epoch) == (EPOCH + 2, -1)
    assert heir.prepare_increment_producer_epoch(1, EPOCH + 1, NOW) is _E.PRODUCER_FENCED


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_record_says_what_it_was_made_of(level: int) -> None:
    places = frozenset({("a", 0), ("a", 3), ("b", 1)})
    for one in (
        known(_S.ONGOING, partitions=places, client_version=TV_2 if level else TV_0),
        known(_S.EMPTY, start_ms=-1),
        known(_S.COMPLETE_ABORT, client_version=TV_2 if level else TV_0),
    ):
        key, value = transaction_record("x", one, level)
        assert (peek_version(key), read_transaction_key(key)) == (0, "x")
        assert value is not None and peek_version(value) == min(level, 1)
        assert read_transaction(value) == one._replace(last_epoch=-1)


names = st.text(min_size=1, max_size=4) | st.sampled_from(["t" * size for size in (126, 127, 128, 249)])


@given(
    st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=200),
    st.sampled_from([_S.EMPTY, _S.ONGOING, _S.PREPARE_COMMIT, _S.COMPLETE_ABORT]),
    st.sampled_from([TV_0, 1, TV_2]),
    st.sampled_from([-1, ID, ID + 1]),
    st.sampled_from([-1, ID + 2]),
)
def test_a_record_written_by_hand_is_that_of_the_schema(
    places: frozenset[tuple[str, int]], state: TransactionState, client: int, previous: int, following: int
) -> None:
    one = known(state, partitions=places, client_version=client, previous_id=previous, next_id=following)
    for level in (0, 1, 2):
        key, value = transaction_record("ид", one, level)
        assert value == transaction_value(one, level)
        assert key == encode_versioned(TransactionLogKey(transactional_id="ид"), 0)


@pytest.mark.parametrize("state", [_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.COMPLETE_COMMIT])
@pytest.mark.parametrize(("client", "count", "rest"), [(TV_0, 0, b""), (TV_2, 1, b"\2\2\0\2")])
def test_a_record_read_by_hand_is_that_of_the_schema(
    state: TransactionState, client: int, count: int, rest: bytes
) -> None:
    one = known(state, client_version=client)._replace(last_epoch=-1)
    value = transaction_value(one, 1)
    assert value.endswith(bytes([count]) + rest)
    unknown_tag = bytes([count + 1]) + rest + b"\11\0"  # which only the schema passes over
    assert read_transaction(value) == one == read_transaction(value[: -1 - len(rest)] + unknown_tag)


def test_records_of_later_kinds_are_passed_over_and_broken_ones_refused() -> None:
    assert read_transaction_key(b"\0\x09what") is None
    for level, state in itertools.product((0, 1), (6, 7, 99)):
        _, value = transaction_record("x", known(_S.ONGOING), level)
        assert value is not None
        with pytest.raises(ProtocolError):
            read_transaction(value[:16] + bytes([state]) + value[17:])

"""What a transactional id looks like as records of `__transaction_state`, byte for byte Kafka's (TransactionLog)."""

from __future__ import annotations

from struct import Struct

from ....protocol.codec import decode_versioned, encode_versioned, peek_version
from ....protocol.compiled_support import pack_many, uvarint
from ....protocol.coordinator_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ....protocol.errors import ProtocolError
from ....protocol.record import NO_PRODUCER_ID
from ....protocol.topic_partition import indexes_by_topic
from ..coordinator_log import Entry
from .metadata import V1, V2, Place, TransactionMetadata
from .states import TransactionState

KEY_VERSION = 0
FIRST_LEVEL_WITH_TAGS = 1
"""Of the feature `transaction.version`: values are written in version 1 from here on, with what only 2 needs."""

# Layouts by hand beside the schemas. Written so, a record takes half the time; read so, a coordinator with 100 000 ids
# is loaded in 1.05 s of the processor instead of 1.65 s. In `tests/server/coordinator/transaction/test_rules.py`
# test_a_record_written_by_hand_is_that_of_the_schema and test_a_record_read_by_hand_is_that_of_the_schema hold them to
# `TransactionLogKey` and `TransactionLogValue`.
_key_front = Struct(">hh").pack  # version and length
_front = Struct(">hqhib").pack  # version, producer id, epoch, timeout, state
_back = Struct(">qq").pack  # last update and start
_VERSION_OF_CLIENT = {V1: b"\x00", V2: b"\x01\x02\x02\x00\x02"}
"""How version 1 of a value ends that has no other producer ids: no tagged field, or the protocol's version."""
_at_rest = Struct(">hqhibBqq")  # all of that before, of one without partitions
_CLIENT_OF_END = {end: version for version, end in _VERSION_OF_CLIENT.items()}
_WRITTEN_STATES = {
    state.value: state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}
_NO_PARTITIONS = (0, 1)
"""Null, and none."""


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    name = transactional_id.encode()
    return _key_front(KEY_VERSION, len(name)) + name


def transaction_entry(transactional_id: str, metadata: TransactionMetadata, level: int) -> Entry:
    """The record of a transactional id at that level of `transaction.version`.

    Producers wait for nearly all of these, so the usual ones are written by hand, in half the time.
    """
    key = transaction_key(transactional_id)
    end = _VERSION_OF_CLIENT.get(metadata.client_version)
    is_usual = metadata.next_id == NO_PRODUCER_ID and metadata.previous_id in (metadata.producer_id, NO_PRODUCER_ID)
    if end is None or not is_usual or level < FIRST_LEVEL_WITH_TAGS:
        return key, transaction_value(metadata, level)
    number, epoch, timeout_ms, state, updated_ms, start_ms, partitions, *_ = metadata
    front, back = _front(1, number, epoch, timeout_ms, state), _back(updated_ms, start_ms)
    return key, front + _places(state, partitions) + back + end


def _places(state: TransactionState, partitions: frozenset[Place]) -> bytes:
    """The partitions as version 1 has them."""
    if state is TransactionState.EMPTY:
        return b"\x00"
    topics = indexes_by_topic(sorted(partitions))
    written = uvarint(len(topics) + 1)
    for topic, indexes in topics.items():
        name = topic.encode()
        written += uvarint(len(name) + 1) + name + uvarint(len(indexes) + 1) + pack_many("i", indexes) + b"\x00"
    return written


def transaction_value(metadata: TransactionMetadata, level: int) -> bytes:
    """The value of any record, by its schema.

    Kafka 4.1 never writes the producer ids before and after; here they are where they say something, which is when
    epochs are used up: a coordinator that loads them goes on where the one before was.
    """
    topics = indexes_by_topic(sorted(metadata.partitions))
    is_other = metadata.previous_id not in (metadata.producer_id, NO_PRODUCER_ID)
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_id if is_other else NO_PRODUCER_ID,
        next_producer_id=metadata.next_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None
        if metadata.state is TransactionState.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()],
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    if level < FIRST_LEVEL_WITH_TAGS:
        value.previous_producer_id = value.next_producer_id = NO_PRODUCER_ID
        value.client_transaction_version = 0
        return encode_versioned(value, 0)
    return encode_versioned(value, 1)


def read_transaction_key(key: bytes) -> str | None:
    """Whose record it is; None for a kind of record that later versions may write. Raises ProtocolError."""
    if peek_version(key) != KEY_VERSION:
        return None
    return decode_versioned(TransactionLogKey, key).transactional_id


def read_transaction(value: bytes) -> TransactionMetadata:
    """The transactional id in a record. Raises ProtocolError.

    Nearly all of a log at rest are of one shape, and whoever waits for a coordinator waits for all of them: that shape
    is read by hand, as it is written.
    """
    client_version = _CLIENT_OF_END.get(value[_at_rest.size :])
    if client_version is not None:
        version, number, epoch, timeout_ms, status, places, updated_ms, start_ms = _at_rest.unpack_from(value)
        if version == FIRST_LEVEL_WITH_TAGS and places in _NO_PARTITIONS:
            state = _written_state(status)
            return TransactionMetadata(
                number, epoch, timeout_ms, state, updated_ms, start_ms, client_version=client_version
            )
    read = decode_versioned(TransactionLogValue, value)
    state = _written_state(read.transaction_status)
    partitions = read.transaction_partitions if state is not TransactionState.EMPTY else None
    return TransactionMetadata(
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        state=state,
        update_ms=read.transaction_last_update_timestamp_ms,
        start_ms=read.transaction_start_timestamp_ms,
        partitions=frozenset((one.topic, index) for one in partitions or () for index in one.partition_ids),
        previous_id=read.previous_producer_id,
        next_id=read.next_producer_id,
        client_version=read.client_transaction_version,
    )


def _written_state(status: int) -> TransactionState:
    state = _WRITTEN_STATES.get(status)
    if state is None:
        raise ProtocolError(f"no transaction in state {status} is written down")
    return state

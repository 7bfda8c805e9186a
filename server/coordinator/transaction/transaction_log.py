"""Kafka's TransactionLog: the records of `__transaction_state`, byte for byte as Kafka."""

from __future__ import annotations

from struct import Struct

from ....protocol.codec import decode_versioned, encode_versioned, peek_version
from ....protocol.compiled_support import pack_many, uvarint
from ....protocol.coordinator_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ....protocol.errors import ProtocolError
from ....protocol.record import NO_PRODUCER_ID
from ....protocol.topic_partition import TopicPartitionKey, indexes_by_topic
from ..coordinator_log import CoordinatorRecord
from .transaction_metadata import TV_0, TV_2, TransactionMetadata, TransactionState

KEY_VERSION = 0
FIRST_LEVEL_WITH_TAGS = 1
"""The first level of the feature `transaction.version` with values of version 1, which has tagged fields."""

# Fixed layouts in addition to the schemas: a record is written in half the time, and a coordinator with 100 000 ids
# is loaded in 1.05 s of processor time instead of 1.65 s. In `tests/server/coordinator/transaction/test_rules.py`
# test_a_record_written_by_hand_is_that_of_the_schema and test_a_record_read_by_hand_is_that_of_the_schema hold them to
# `TransactionLogKey` and `TransactionLogValue`.
_key_front = Struct(">hh").pack  # version and length
_front = Struct(">hqhib").pack  # version, producer id, epoch, timeout, state
_back = Struct(">qq").pack  # last update and start
_VERSION_OF_CLIENT = {TV_0: b"\x00", TV_2: b"\x01\x02\x02\x00\x02"}
"""The end of a value of version 1 without further producer ids: no tagged field, or the client's version."""
_at_rest = Struct(">hqhibBqq")  # a value without partitions, up to its end
_CLIENT_OF_END = {end: version for version, end in _VERSION_OF_CLIENT.items()}
_WRITTEN_STATES = {
    state.value: state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}
_NO_PARTITIONS = (0, 1)
"""The encodings of a null array and of an empty array."""


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    name = transactional_id.encode()
    return _key_front(KEY_VERSION, len(name)) + name


def transaction_record(transactional_id: str, metadata: TransactionMetadata, level: int) -> CoordinatorRecord:
    """Return the record of a transactional id at this level of `transaction.version`.

    Producers wait for nearly all of these records: the usual ones are written without the schema, in half the time.
    """
    key = transaction_key(transactional_id)
    end = _VERSION_OF_CLIENT.get(metadata.client_version)
    is_usual = metadata.next_id == NO_PRODUCER_ID and metadata.previous_id in (metadata.producer_id, NO_PRODUCER_ID)
    if end is None or not is_usual or level < FIRST_LEVEL_WITH_TAGS:
        return key, transaction_value(metadata, level)
    number, epoch, timeout_ms, state, updated_ms, start_ms, partitions, *_ = metadata
    front, back = _front(1, number, epoch, timeout_ms, state), _back(updated_ms, start_ms)
    return key, front + _topic_partitions(state, partitions) + back + end


def _topic_partitions(state: TransactionState, partitions: frozenset[TopicPartitionKey]) -> bytes:
    """Encode partitions as in version 1."""
    if state is TransactionState.EMPTY:
        return b"\x00"
    topics = indexes_by_topic(sorted(partitions))
    written = uvarint(len(topics) + 1)
    for topic, indexes in topics.items():
        name = topic.encode()
        written += uvarint(len(name) + 1) + name + uvarint(len(indexes) + 1) + pack_many("i", indexes) + b"\x00"
    return written


def transaction_value(metadata: TransactionMetadata, level: int) -> bytes:
    """Encode the value of any record by its schema.

    Kafka 4.1 never writes the previous and the next producer id. Barnabas writes them when a producer id has no epoch
    left, so that the next coordinator can continue the rotation.
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
    """Return the transactional id in a key; None for record types of later versions. Raises ProtocolError."""
    if peek_version(key) != KEY_VERSION:
        return None
    return decode_versioned(TransactionLogKey, key).transactional_id


def read_transaction(value: bytes) -> TransactionMetadata:
    """Decode the value of a record. Raises ProtocolError.

    Nearly all records of a log at rest have no partitions: their layout is read without the schema, because producers
    wait for the whole load of a coordinator.
    """
    client_version = _CLIENT_OF_END.get(value[_at_rest.size :])
    if client_version is not None:
        version, number, epoch, timeout_ms, status, topic_partitions, updated_ms, start_ms = _at_rest.unpack_from(value)
        if version == FIRST_LEVEL_WITH_TAGS and topic_partitions in _NO_PARTITIONS:
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
        raise ProtocolError(f"{status} is not a valid state of a transaction in the log")
    return state

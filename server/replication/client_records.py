"""What a client may not append, wherever it is."""

from __future__ import annotations

from ...protocol.batch_header import ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record import MAGIC_POSITION
from ..metadata.topic_names import INTERNAL_TOPICS

ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1


def check_client_records(topic: str, records: memoryview, *, internal_topics_allowed: bool) -> None:
    """Raises KafkaError for records of an internal topic, and of a transaction, as none can be open."""
    if topic in INTERNAL_TOPICS and not internal_topics_allowed:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    is_marked = len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK
    if is_marked and records[MAGIC_POSITION] == 2:  # the bit means nothing in older formats
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction of this producer is open")

"""The largest requests of members of share groups."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.apis import ApiKey as K
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_acknowledge import AcknowledgementBatch as Acknowledged
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest

from .worst_requests import Known, Worst

GROUP, MEMBER = "sharing", "member"
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _fetch(partitions: list[FetchPartition], known: Known, epoch: int = 0) -> Any:
    return ShareFetchRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=1,
        topics=[FetchTopic(topic_id=known.topic_id, partitions=partitions)],
    )


def _acknowledge(partitions: list[AcknowledgePartition], known: Known) -> Any:
    return ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=1,
        topics=[AcknowledgeTopic(topic_id=known.topic_id, partitions=partitions)],
    )


def begin_session(known: Known) -> Any:
    """The first request of a session with one partition."""
    return _fetch([FetchPartition(partition_index=0)], known)


WORST_OF_SHARE_FETCHES = (
    Worst(
        "the same partition",
        K.SHARE_FETCH,
        2,
        lambda count, known: _fetch([FetchPartition(partition_index=0)] * count, known),
        NONE,
    ),
    Worst(
        "unknown partitions",
        K.SHARE_FETCH,
        2,
        lambda count, known: _fetch([FetchPartition(partition_index=index + 1) for index in range(count)], known),
        UNKNOWN,
    ),
    Worst(
        "many ranges",
        K.SHARE_FETCH,
        2,
        lambda count, known: _fetch(
            [
                FetchPartition(
                    partition_index=0,
                    acknowledgement_batches=[
                        AcknowledgementBatch(first_offset=index, last_offset=index, acknowledge_types=[1])
                        for index in range(count)
                    ],
                )
            ],
            known,
            1,
        ),
        NONE,  # each batch has a code of its own in the answer: nothing is acquired
    ),
    Worst(
        "the same partition",
        K.SHARE_ACKNOWLEDGE,
        2,
        lambda count, known: _acknowledge([AcknowledgePartition(partition_index=0)] * count, known),
        NONE,
    ),
    Worst(
        "unknown partitions",
        K.SHARE_ACKNOWLEDGE,
        2,
        lambda count, known: _acknowledge(
            [
                AcknowledgePartition(
                    partition_index=one + 1,
                    # A partition without ranges is not in the response, as in Kafka.
                    acknowledgement_batches=[Acknowledged(first_offset=0, last_offset=0, acknowledge_types=[1])],
                )
                for one in range(count)
            ],
            known,
        ),
        UNKNOWN,
    ),
    Worst(
        "many ranges",
        K.SHARE_ACKNOWLEDGE,
        2,
        lambda count, known: _acknowledge(
            [
                AcknowledgePartition(
                    partition_index=0,
                    acknowledgement_batches=[
                        Acknowledged(first_offset=index, last_offset=index, acknowledge_types=[1])
                        for index in range(count)
                    ],
                )
            ],
            known,
        ),
        ErrorCode.INVALID_RECORD_STATE,  # nothing is acquired
    ),
)

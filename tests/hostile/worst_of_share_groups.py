"""The worst requests about share groups, of members and operators."""

from __future__ import annotations

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_share_group_offsets as altered
from barnabas.protocol.messages import delete_share_group_offsets as deleted
from barnabas.protocol.messages import describe_share_group_offsets as described
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.server.coordinator.group.consumer_heartbeat import MAX_TOPICS

from .worst_requests import TOPIC, WIDE, WIDE_PARTITIONS, Known, Worst

MEMBERS_GROUP, EMPTY_SHARE_GROUP = "share group", "empty share group"
SHARE_MEMBER = "member"
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
K = ApiKey


def _names(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


def share_beat(
    member_id: str = SHARE_MEMBER, *topics: str, epoch: int = 0, group_id: str = MEMBERS_GROUP
) -> ShareGroupHeartbeatRequest:
    """A heartbeat with these topics."""
    return ShareGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=list(topics)
    )


def _altered(topics: list[tuple[str, list[int]]]) -> altered.AlterShareGroupOffsetsRequest:
    return altered.AlterShareGroupOffsetsRequest(
        group_id=EMPTY_SHARE_GROUP,
        topics=[
            altered.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    altered.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=1)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
    )


def _described(
    groups: list[str], topics: list[tuple[str, list[int]]] | None = None
) -> described.DescribeShareGroupOffsetsRequest:
    wanted = None
    if topics is not None:
        wanted = [
            described.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in topics
        ]
    return described.DescribeShareGroupOffsetsRequest(
        groups=[described.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=wanted) for name in groups]
    )


def _deleted(group_id: str, names: list[str]) -> deleted.DeleteShareGroupOffsetsRequest:
    topics = [deleted.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return deleted.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics)


def _wide(count: int, _: Known) -> altered.AlterShareGroupOffsetsRequest:
    return _altered([(WIDE, [number % WIDE_PARTITIONS for number in range(count)])])


WORST_OF_SHARE_GROUPS = (
    Worst(
        "topics",
        K.SHARE_GROUP_HEARTBEAT,
        1,
        lambda n, _: share_beat(SHARE_MEMBER, *_names(n)),
        ErrorCode.INVALID_REQUEST,
    ),
    Worst(
        "most topics",
        K.SHARE_GROUP_HEARTBEAT,
        1,
        lambda n, _: share_beat("other", *_names(min(n, MAX_TOPICS)), group_id="another share group"),
        ErrorCode.NONE,
    ),
    Worst(
        "unknown groups",
        K.SHARE_GROUP_DESCRIBE,
        1,
        lambda n, _: ShareGroupDescribeRequest(group_ids=_names(n)),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    Worst(
        "the same group",
        K.SHARE_GROUP_DESCRIBE,
        1,
        lambda n, _: ShareGroupDescribeRequest(group_ids=[MEMBERS_GROUP] * n),
        ErrorCode.NONE,
    ),
    Worst("partitions", K.ALTER_SHARE_GROUP_OFFSETS, 0, _wide, ErrorCode.NONE),
    Worst(
        "unknown topics",
        K.ALTER_SHARE_GROUP_OFFSETS,
        0,
        lambda n, _: _altered([(name, [0]) for name in _names(n)]),
        UNKNOWN,
    ),
    Worst(
        "unknown partitions",
        K.ALTER_SHARE_GROUP_OFFSETS,
        0,
        lambda n, _: _altered([(TOPIC, [number + 1 for number in range(n)])]),
        UNKNOWN,
    ),
    Worst("unknown groups", K.DESCRIBE_SHARE_GROUP_OFFSETS, 1, lambda n, _: _described(_names(n)), ErrorCode.NONE),
    Worst(
        "the same group",
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        lambda n, _: _described([EMPTY_SHARE_GROUP] * min(n, 500)),
        ErrorCode.NONE,
    ),
    Worst(
        "unknown topics",
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        lambda n, _: _described([EMPTY_SHARE_GROUP], [(name, [0]) for name in _names(n)]),
        ErrorCode.NONE,
    ),
    Worst(
        "unknown partitions",
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        lambda n, _: _described([EMPTY_SHARE_GROUP], [(WIDE, list(range(n)))]),
        ErrorCode.NONE,
    ),
    Worst(
        "unknown topics of a group with members",
        K.DELETE_SHARE_GROUP_OFFSETS,
        0,
        lambda n, _: _deleted(MEMBERS_GROUP, _names(n)),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    Worst(
        "the same topic",
        K.DELETE_SHARE_GROUP_OFFSETS,
        0,
        lambda n, _: _deleted(EMPTY_SHARE_GROUP, [WIDE] * n),
        ErrorCode.NONE,
    ),
    Worst(
        "unknown topics",
        K.DELETE_SHARE_GROUP_OFFSETS,
        0,
        lambda n, _: _deleted(EMPTY_SHARE_GROUP, _names(n)),
        UNKNOWN,
    ),
)

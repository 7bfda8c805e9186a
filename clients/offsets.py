"""Offset lookups at the leaders: by time or at either end (ListOffsets), and by leader epoch (OffsetForLeaderEpoch)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..protocol.apis import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ..protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ..protocol.replica_ids import CONSUMER_REPLICA_ID
from ..protocol.special_timestamps import FIRST_VERSIONS
from ..protocol.topic_partition import TopicPartition
from .client import Client
from .errors import code_of

_FIRST_EPOCH_VERSION_FOR_CONSUMERS = 3


class OffsetAndTimestamp(NamedTuple):
    """An offset with the timestamp of its record (-1 for either end of the log) and its leader epoch (-1: unknown).

    Offset -1 with timestamp -1: there is no record at or after the timestamp.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class LeaderEpochEnd(NamedTuple):
    """The end of a leader epoch in the leader's log: the largest epoch not above the requested one, and its end
    offset.
    """

    leader_epoch: int
    end_offset: int


class OffsetLookup:
    """Offset lookups, each with retries until `timeout_ms`."""

    def __init__(self, client: Client, *, isolation_level: int = 0) -> None:
        self._client = client
        self._isolation_level = isolation_level

    async def find(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the first offset at or after each timestamp (ms), or LATEST, EARLIEST, MAX_TIMESTAMP. Raises
        KafkaError.
        """
        found: dict[TopicPartition, OffsetAndTimestamp] = {}

        async def ask() -> None:
            missing = {tp: timestamp for tp, timestamp in timestamps.items() if tp not in found}
            if any(self._client.cluster.leader(tp) is None for tp in missing):
                await self._client.refresh_metadata()
            by_leader = by_leader_of(self._client, missing)
            errors = await asyncio.gather(
                *(self._ask_leader(leader, {tp: missing[tp] for tp in tps}, found) for leader, tps in by_leader.items())
            )
            for error in errors:
                if error is not None:
                    raise error

        with self._client.watching({partition.topic for partition in timestamps}):
            await self._client.retrying(ask, timeout_ms=timeout_ms)
        return {tp: found[tp] for tp in timestamps}

    async def _ask_leader(
        self, leader: int, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, OffsetAndTimestamp]
    ) -> KafkaError | None:
        """Add the leader's results to `found`; return one of the errors, so that the successful results are kept."""
        topics: dict[str, ListOffsetsTopic] = {}
        for tp, timestamp in wanted.items():
            topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic))
            epoch = self._client.cluster.leader_epoch(tp)
            topic.partitions.append(
                ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp)
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID, isolation_level=self._isolation_level, topics=list(topics.values())
        )
        lowest = max((FIRST_VERSIONS.get(timestamp, 0) for timestamp in wanted.values()), default=0)
        if self._isolation_level:
            lowest = max(lowest, 2)
        elif any(timestamp >= 0 for timestamp in wanted.values()):
            lowest = max(lowest, 1)
        try:
            connection = await self._client.connection(leader)
            version = connection.version_for(ApiKey.LIST_OFFSETS, lowest=lowest)
            if version < 2:
                request.isolation_level = 0
            response = await connection.send(request, version)
        except KafkaError as error:
            return error
        failure = None
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                tp = TopicPartition(topic_answer.name, answer.partition_index)
                if answer.error_code == ErrorCode.NONE:
                    found[tp] = _offset_of(answer)
                else:
                    failure = KafkaError(code_of(answer.error_code), f"offsets of {tp}")
        return failure

    async def end_of_epochs(
        self, leader: int, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LeaderEpochEnd | KafkaError]:
        """Return the end of each leader epoch; empty if the broker does not support it for consumers (before 2.3).

        One attempt. Raises KafkaError if the request fails as a whole.
        """
        connection = await self._client.connection(leader)
        if not connection.supports(ApiKey.OFFSET_FOR_LEADER_EPOCH, _FIRST_EPOCH_VERSION_FOR_CONSUMERS):
            return {}
        topics: dict[str, OffsetForLeaderTopic] = {}
        for tp, epoch in epochs.items():
            topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(topic=tp.topic))
            current = self._client.cluster.leader_epoch(tp)
            topic.partitions.append(
                OffsetForLeaderPartition(partition=tp.partition, current_leader_epoch=current, leader_epoch=epoch)
            )
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values()))
        response = await connection.send(request)
        return {
            TopicPartition(topic_answer.topic, answer.partition): LeaderEpochEnd(answer.leader_epoch, answer.end_offset)
            if answer.error_code == ErrorCode.NONE
            else KafkaError(code_of(answer.error_code), "leader epoch")
            for topic_answer in response.topics
            for answer in topic_answer.partitions
        }


def by_leader_of(client: Client, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """Group the partitions by leader. Raises KafkaError if a partition has no leader or does not exist."""
    groups: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        leader = client.cluster.leader(tp)
        if leader is None:
            topic = client.cluster.topics.get(tp.topic)
            known = topic is not None and tp.partition in topic.partitions
            code = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"partition {tp}")
        groups.setdefault(leader, []).append(tp)
    return groups


def _offset_of(answer: ListOffsetsPartitionResponse) -> OffsetAndTimestamp:
    if answer.old_style_offsets:
        return OffsetAndTimestamp(answer.old_style_offsets[0], -1, -1)
    return OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)

"""Offsets of partitions by time, and records that are dropped."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import KafkaError
from ...protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..offsets import OffsetAndTimestamp, OffsetLookup, by_leader_of
from .outcomes import outcome

HIGH_WATERMARK = -1


class RecordAdmin:
    """What `Admin` does with the records of partitions."""

    def __init__(self, client: Client, *, request_timeout_ms: int, timeout_ms: int) -> None:
        self._client = client
        self._request_timeout_ms = request_timeout_ms
        self._timeout_ms = timeout_ms

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by timestamp (ms), or one of `protocol.special_timestamps`. Raises KafkaError."""
        lookup = OffsetLookup(self._client, isolation_level=isolation_level)
        return await lookup.find(timestamps, timeout_ms=self._timeout_ms)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Drop all records before each offset (-1: the high watermark); returns the new log start offsets."""
        with self._client.watching({tp.topic for tp in before}):
            await self._client.refresh_metadata()
        outcomes: dict[TopicPartition, int | KafkaError] = {}
        for leader, partitions in by_leader_of(self._client, before).items():
            topics: dict[str, DeleteRecordsTopic] = {}
            for tp in partitions:
                topic = topics.setdefault(tp.topic, DeleteRecordsTopic(name=tp.topic))
                topic.partitions.append(DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp]))
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._request_timeout_ms)
            response = await self._client.ask(leader, request)
            for answer in response.topics:
                for p in answer.partitions:
                    tp = TopicPartition(answer.name, p.partition_index)
                    outcomes[tp] = outcome(p.error_code, f"partition {tp}") or p.low_watermark
        return outcomes

"""Kafka's PartitionMetadataClient: the end offsets of partitions, from the brokers that lead them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError, ProtocolError
from ....protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ....protocol.special_timestamps import LATEST
from ....protocol.topic_partition import TopicPartition, TopicPartitionKey
from ....storage.log_values import FetchIsolation

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.loop_sharing import SlicedWork, Steps
    from ...runtime.ports import SendRequest

CONSUMER_REPLICA_ID = -1
LOWEST_VERSION = 1
"""The first version of ListOffsets with a single offset for each partition."""

EndOffset = int | KafkaError


class PartitionMetadataClient:
    """Reads the end offsets of partitions from their leaders. Owned by the broker; used on the loop's thread only."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        sliced_work: SlicedWork,
        *,
        broker_id: int,
        send: SendRequest | None,
    ) -> None:
        """`send` sends requests to other brokers; None if there are none."""
        self._replica_manager = replica_manager
        self._metadata = metadata
        self._sliced_work = sliced_work
        self._broker_id = broker_id
        self._send = send

    async def list_latest_offsets(
        self, partitions: Iterable[TopicPartitionKey]
    ) -> Mapping[TopicPartitionKey, EndOffset]:
        """Return the high watermark of each partition, or its error."""
        by_leader: dict[int, list[TopicPartitionKey]] = {}
        for partition in partitions:
            image = self._metadata.partition(TopicPartition(*partition))
            by_leader.setdefault(-1 if image is None else image.leader, []).append(partition)
        if not by_leader:
            return {}
        found = await asyncio.gather(*(self._request_offsets(leader, wanted) for leader, wanted in by_leader.items()))
        return {partition: offset for offsets in found for partition, offset in offsets.items()}

    async def _request_offsets(
        self, leader: int, topic_partitions: list[TopicPartitionKey]
    ) -> dict[TopicPartitionKey, EndOffset]:
        if leader == self._broker_id:
            return await self._sliced_work.complete(self._read(topic_partitions))
        if leader < 0 or self._send is None:
            return dict.fromkeys(
                topic_partitions, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "The partition has no leader.")
            )
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, partition in topic_partitions:
            wanted = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
            topics.setdefault(topic, []).append(wanted)
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[ListOffsetsTopic(name=topic, partitions=wanted) for topic, wanted in topics.items()],
        )
        try:
            response = await self._send(leader, request, lowest=LOWEST_VERSION)
        except KafkaError as error:
            return dict.fromkeys(topic_partitions, error.as_result())
        except ProtocolError as error:
            return dict.fromkeys(topic_partitions, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The response has no offset for the partition.")
        result: dict[TopicPartitionKey, EndOffset] = dict.fromkeys(topic_partitions, missing)
        for answer in response.topics:
            for one in answer.partitions:
                code = ErrorCode(one.error_code)
                result[answer.name, one.partition_index] = one.offset if not code else KafkaError(code, code.name)
        return result

    def _read(self, partitions: list[TopicPartitionKey]) -> Steps[dict[TopicPartitionKey, EndOffset]]:
        result: dict[TopicPartitionKey, EndOffset] = {}
        for topic, partition in partitions:
            try:
                found = yield from self._replica_manager.fetch_offset_for_timestamp(
                    topic, partition, LATEST, isolation=FetchIsolation.HIGH_WATERMARK, current_leader_epoch=-1
                )
                result[topic, partition] = found.offset
            except KafkaError as error:
                result[topic, partition] = error.as_result()
            yield
        return result

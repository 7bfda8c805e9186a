"""What a follower asks of the brokers that lead its partitions, and how it gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.fetch_session import FetchSessionHandler, FetchTarget
from ...protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from ...protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ...protocol.topic_partition import TopicPartition
from ...storage.leader_epochs import EpochEnd
from .inter_broker_versions import highest_version

SINCE_TOPIC_IDS = 13
SINCE_REPLICA_STATE = 15


class Brokers(Protocol):
    """Connections to other brokers (`BrokerConnections`); a fetcher has its own, as its requests wait at the leader."""

    async def version_for(self, broker_id: int, api_key: ApiKey, *, highest: int) -> int:
        """The newest version, `highest` at most, that the other broker speaks, too. Raises KafkaError."""

    async def ask(self, broker_id: int, request: Any, *, version: int | None = None) -> Any:
        """Its response. Raises KafkaError."""

    def close(self) -> None:
        """End all connections."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`replica.fetch.*`, as they are at present."""

    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    """Of one partition."""
    response_max_bytes: int
    backoff_ms: int


class Leader:
    """One broker, as the fetcher that follows it sees it."""

    def __init__(
        self, brokers: Brokers, leader: int, own_id: int, broker_epoch: Callable[[], int], protocol: str
    ) -> None:
        """`broker_epoch` is this broker's, `protocol` is `inter.broker.protocol.version`."""
        self.broker_id = leader
        self._brokers = brokers
        self._own_id = own_id
        self._broker_epoch = broker_epoch
        self._protocol = protocol
        self._session = FetchSessionHandler()

    async def fetch_version(self) -> int:
        """Of the next fetch. Raises KafkaError."""
        return await self._version(ApiKey.FETCH)

    async def _version(self, api_key: ApiKey) -> int:
        highest = highest_version(api_key, self._protocol)
        return await self._brokers.version_for(self.broker_id, api_key, highest=highest)

    async def fetch(
        self, version: int, targets: Mapping[TopicPartition, FetchTarget], limits: FetchLimits
    ) -> FetchResponse:
        """What comes next in these partitions, or changed in them. Raises KafkaError."""
        request = FetchRequest(
            max_wait_ms=limits.wait_max_ms, min_bytes=limits.min_bytes, max_bytes=limits.response_max_bytes, topics=[]
        )
        if version >= SINCE_REPLICA_STATE:
            request.replica_state = ReplicaState(replica_id=self._own_id, replica_epoch=self._broker_epoch())
        else:
            request.replica_id = self._own_id
        self._session.fill(request, targets, uses_topic_ids=version >= SINCE_TOPIC_IDS)
        try:
            response: FetchResponse = await self._brokers.ask(self.broker_id, request, version=version)
        except BaseException:
            self._session.reset()
            raise
        error = ErrorCode(response.error_code)
        self._session.answered(error, response.session_id)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"broker {self.broker_id} does not answer a fetch")
        return response

    def forget_session(self) -> None:
        """Have all told again by the next fetch: of what an answer said, something was not taken over."""
        self._session.reset()

    async def epoch_ends(
        self, wanted: Iterable[tuple[TopicPartition, int, int]]
    ) -> dict[TopicPartition, EpochEnd | ErrorCode]:
        """Where epochs end there, for partitions with the leader's epoch and the one asked for. Raises KafkaError."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (topic, index), leader_epoch, epoch in wanted:
            place = topics.setdefault(topic, OffsetForLeaderTopic(topic=topic, partitions=[]))
            place.partitions.append(
                OffsetForLeaderPartition(partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch)
            )
        version = await self._version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        request = OffsetForLeaderEpochRequest(replica_id=self._own_id, topics=list(topics.values()))
        response = await self._brokers.ask(self.broker_id, request, version=version)
        return {
            TopicPartition(topic.topic, one.partition): ErrorCode(one.error_code)
            if one.error_code
            else EpochEnd(one.leader_epoch, one.end_offset)
            for topic in response.topics
            for one in topic.partitions
        }

    async def offset(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        """The leader's log end or start, by the special timestamps. Raises KafkaError."""
        version = await self._version(ApiKey.LIST_OFFSETS)
        wanted = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        if version == 0:
            wanted.max_num_offsets = 1
        request = ListOffsetsRequest(
            replica_id=self._own_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])]
        )
        response = await self._brokers.ask(self.broker_id, request, version=version)
        ((answer,),) = (topic.partitions for topic in response.topics)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"broker {self.broker_id} has no offset of {partition}")
        found: int = answer.old_style_offsets[0] if version == 0 else answer.offset
        return found

    def close(self) -> None:
        """End its connection."""
        self._brokers.close()

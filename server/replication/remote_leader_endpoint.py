"""Kafka's RemoteLeaderEndpoint: the requests of a follower to the broker that leads its partitions."""

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


class InterBrokerConnections(Protocol):
    """A port for `BrokerConnections` of the network, a layer above replication that this room must not import."""

    async def version_for(self, broker_id: int, api_key: ApiKey, *, highest: int) -> int:
        """Return the newest version up to `highest` that both brokers support. Raises KafkaError."""

    async def send_request(self, broker_id: int, request: Any, *, version: int | None = None) -> Any:
        """Send a request, and return the response. Raises KafkaError."""

    def close(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The current values of `replica.fetch.*`."""

    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    """The limit for one partition."""
    response_max_bytes: int
    backoff_ms: int


class RemoteLeaderEndpoint:
    """The leader of the partitions of one fetcher, which has connections of its own because its fetches wait."""

    def __init__(
        self,
        connections: InterBrokerConnections,
        leader: int,
        own_id: int,
        broker_epoch: Callable[[], int],
        protocol: str,
    ) -> None:
        """`broker_epoch` returns this broker's epoch, `protocol` is `inter.broker.protocol.version`."""
        self.broker_id = leader
        self._connections = connections
        self._own_id = own_id
        self._broker_epoch = broker_epoch
        self._protocol = protocol
        self._session = FetchSessionHandler()

    async def fetch_version(self) -> int:
        """Return the version of the next fetch. Raises KafkaError."""
        return await self._version(ApiKey.FETCH)

    async def _version(self, api_key: ApiKey) -> int:
        highest = highest_version(api_key, self._protocol)
        return await self._connections.version_for(self.broker_id, api_key, highest=highest)

    async def fetch(
        self, version: int, targets: Mapping[TopicPartition, FetchTarget], limits: FetchLimits
    ) -> FetchResponse:
        """Fetch the next records of these partitions, and their changes. Raises KafkaError."""
        request = FetchRequest(
            max_wait_ms=limits.wait_max_ms, min_bytes=limits.min_bytes, max_bytes=limits.response_max_bytes, topics=[]
        )
        if version >= SINCE_REPLICA_STATE:
            request.replica_state = ReplicaState(replica_id=self._own_id, replica_epoch=self._broker_epoch())
        else:
            request.replica_id = self._own_id
        self._session.fill(request, targets, uses_topic_ids=version >= SINCE_TOPIC_IDS)
        try:
            response: FetchResponse = await self._connections.send_request(self.broker_id, request, version=version)
        except BaseException:
            self._session.reset()
            raise
        error = ErrorCode(response.error_code)
        self._session.answered(error, response.session_id)
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"broker {self.broker_id} refused a fetch")
        return response

    def forget_session(self) -> None:
        """Make the next fetch a full one, because a part of the last response was not applied."""
        self._session.reset()

    async def fetch_epoch_end_offsets(
        self, wanted: Iterable[tuple[TopicPartition, int, int]]
    ) -> dict[TopicPartition, EpochEnd | ErrorCode]:
        """Return the end offsets of epochs at the leader.

        `wanted` has partitions, each with the leader's epoch and the requested epoch. Raises KafkaError.
        """
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (topic, index), leader_epoch, epoch in wanted:
            place = topics.setdefault(topic, OffsetForLeaderTopic(topic=topic, partitions=[]))
            place.partitions.append(
                OffsetForLeaderPartition(partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch)
            )
        version = await self._version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        request = OffsetForLeaderEpochRequest(replica_id=self._own_id, topics=list(topics.values()))
        response = await self._connections.send_request(self.broker_id, request, version=version)
        return {
            TopicPartition(topic.topic, one.partition): ErrorCode(one.error_code)
            if one.error_code
            else EpochEnd(one.leader_epoch, one.end_offset)
            for topic in response.topics
            for one in topic.partitions
        }

    async def fetch_offset(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        """Return the leader's log end or log start offset, by the special timestamps. Raises KafkaError."""
        version = await self._version(ApiKey.LIST_OFFSETS)
        wanted = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        if version == 0:
            wanted.max_num_offsets = 1
        request = ListOffsetsRequest(
            replica_id=self._own_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[wanted])]
        )
        response = await self._connections.send_request(self.broker_id, request, version=version)
        ((answer,),) = (topic.partitions for topic in response.topics)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"broker {self.broker_id} has no offset of {partition}")
        found: int = answer.old_style_offsets[0] if version == 0 else answer.offset
        return found

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

"""A broker in a simulation, with members of share groups that send raw requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from tests.server.data_plane import PAGE_CACHE, DataPlane, batch, play
from tests.server.share.fake_persister import FakePersister

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as Acknowledged,
)
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from barnabas.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import iter_batches

Acks = Mapping[int, list[tuple[int, int, list[int]]]]
"""Acknowledgements (first offset, last offset, types) by partition."""
Talk = Callable[["SharePlane"], Awaitable[None]]


class Member:
    """A member of a share group that fetches from one topic on one connection."""

    def __init__(self, connection: BrokerConnection, topic_id: UUID, group_id: str, member_id: str) -> None:
        self.connection = connection
        self.topic_id = topic_id
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 0

    async def fetch(
        self,
        partitions: tuple[int, ...] = (),
        acks: Acks | None = None,
        *,
        version: int = 2,
        max_wait_ms: int = 0,
        max_records: int = 500,
        epoch: int | None = None,
        **fields: Any,
    ) -> ShareFetchResponse:
        """Send the next request of the session; `partitions` are added to it."""
        acks = acks or {}
        wanted = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in acks.get(index, ())
                ],
            )
            for index in sorted({*partitions, *acks})
        ]
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            **{"min_bytes": 1, "max_bytes": 1 << 20, "batch_size": 500, **fields},
            max_records=max_records,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=wanted)] if wanted else [],
        )
        response: ShareFetchResponse = await self.connection.send(request, version)
        if not response.error_code:
            self.epoch += 1
        return response

    async def acknowledge(
        self, acks: Acks, *, version: int = 2, epoch: int | None = None, is_renew_ack: bool = False
    ) -> ShareAcknowledgeResponse:
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=is_renew_ack,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                Acknowledged(first_offset=first, last_offset=last, acknowledge_types=types)
                                for first, last, types in ranges
                            ],
                        )
                        for index, ranges in acks.items()
                    ],
                )
            ],
        )
        response: ShareAcknowledgeResponse = await self.connection.send(request, version)
        if not response.error_code:
            self.epoch += 1
        return response


class SharePlane(DataPlane):
    """A broker whose share groups begin at the first record."""

    async def member(self, member_id: str = "m1", *, group_id: str = "g", topic: str = "t") -> Member:
        return Member(await self.connect(), self.topic_id(topic), group_id, member_id)

    def serve_share_groups(self, level: int = 2) -> None:
        """Finalize a level of share.version."""
        manager = self.state.share_partition_manager
        manager._share_version = manager.config_provider._share_version = lambda: level

    def use_fake_persister(self) -> FakePersister:
        """Replace the share coordinator; before the first fetch."""
        fake = FakePersister()
        self.state.share_partition_manager._persister = fake  # type: ignore[assignment]
        return fake

    def set_group(self, group_id: str = "g", **settings: str) -> None:
        values = {name.replace("_", "."): value for name, value in settings.items()}
        self.state.dynamic_config.named_config_changed(
            ConfigResourceType.GROUP, group_id, {"share.auto.offset.reset": "earliest", **values}
        )

    async def produce(self, *values: bytes, index: int = 0, topic: str = "t") -> None:
        response = await self.append(batch(*values), index=index, topic=topic)
        assert response.error_code == 0


def only(response: ShareFetchResponse) -> PartitionData:
    """Return the only partition of a response."""
    assert response.error_code == 0, response
    ((data,),) = (topic.partitions for topic in response.responses)
    return data


def ranges(response: ShareFetchResponse) -> list[tuple[int, int, int]]:
    """Return the acquired ranges of the only partition of a response; none without a partition."""
    assert response.error_code == 0, response
    if not response.responses:
        return []
    data = only(response)
    assert data.error_code == 0, data
    return [(one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records]


def records(data: PartitionData) -> list[Record]:
    """Return the records of a partition, acquired or not."""
    return [record for one in iter_batches(data.records) for record in one.records()]


def play_share(talk: Talk, *, settings: Mapping[str, str] | None = None, **options: Any) -> None:
    """Play with a broker, and the settings of the group `g`."""

    async def begin(plane: DataPlane) -> None:
        share_plane = SharePlane(plane.world)
        share_plane.set_group()
        share_plane.serve_share_groups()
        await talk(share_plane)

    play(begin, settings={**PAGE_CACHE, **(settings or {})}, **options)

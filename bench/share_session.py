"""The share session of one member: ShareFetch, with and without acknowledgements, and ShareAcknowledge (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.share_group_member import ShareGroupMember

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import share_acknowledge, share_fetch
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from barnabas.protocol.messages.share_fetch import ShareFetchRequest

ACCEPT, RELEASE = 1, 2
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_WAIT_MS, MIN_BYTES, MAX_BYTES, MAX_POLL_RECORDS = 500, 1, 50 << 20, 500
"""The defaults of Kafka's share consumer."""
RETRY_S, OPEN_TIMEOUT_S = 0.05, 60.0


class Acquired(NamedTuple):
    """A range of records that the member has acquired; both offsets are inclusive."""

    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


Acknowledged = Sequence[tuple[Acquired, list[int]]]
"""Acquired ranges with their acknowledge types: one for all records of the range, or one for each of them."""


def accept(acquired: Iterable[Acquired]) -> Acknowledged:
    """Return an acknowledgement that accepts all records."""
    return [(one, [ACCEPT]) for one in acquired]


class ShareSession:
    """The session of a member with the only broker, over another connection than its heartbeats.

    There is one request at a time. Records are not decoded. Errors of the session, of a partition or of an
    acknowledgement are raised as KafkaError.
    """

    def __init__(self, connection: BrokerConnection, member: ShareGroupMember) -> None:
        self._connection = connection
        self._member = member
        self._partitions = sorted(index for _, index in member.assigned)
        (self._topic_id,) = {topic_id for topic_id, _ in member.assigned}
        self._epoch = INITIAL_EPOCH

    async def open(self) -> list[Acquired]:
        """Open the session with a fetch that does not wait, and return the acquired records.

        It is repeated while a partition has an error, as before the broker has the share state of a new group. Raises
        KafkaError after a minute.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OPEN_TIMEOUT_S
        while True:
            try:
                return await self.fetch(max_wait_ms=0)
            except KafkaError:
                if loop.time() > deadline:
                    raise
                if self._epoch != INITIAL_EPOCH:
                    await self.close()
            await asyncio.sleep(RETRY_S)

    async def fetch(self, acknowledged: Acknowledged = (), *, max_wait_ms: int = MAX_WAIT_MS) -> list[Acquired]:
        """Acknowledge records and acquire others with one ShareFetch. Raises KafkaError."""
        batches = _batches(acknowledged, share_fetch.AcknowledgementBatch)
        listed = self._partitions if self._epoch == INITIAL_EPOCH else batches
        partitions = [
            share_fetch.FetchPartition(partition_index=index, acknowledgement_batches=batches.get(index, []))
            for index in listed
        ]
        topics = [share_fetch.FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else []
        response = await self._connection.send(
            ShareFetchRequest(
                group_id=self._member.group_id,
                member_id=self._member.member_id,
                share_session_epoch=self._epoch,
                max_wait_ms=max_wait_ms,
                min_bytes=MIN_BYTES,
                max_bytes=MAX_BYTES,
                max_records=MAX_POLL_RECORDS,
                batch_size=MAX_POLL_RECORDS,
                topics=topics,
            )
        )
        self._check(response)
        return [
            Acquired(data.partition_index, one.first_offset, one.last_offset, one.delivery_count)
            for topic in response.responses
            for data in topic.partitions
            for one in data.acquired_records
        ]

    async def acknowledge(self, acknowledged: Acknowledged) -> None:
        """Send one ShareAcknowledge. Raises KafkaError."""
        partitions = [
            share_acknowledge.AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in _batches(acknowledged, share_acknowledge.AcknowledgementBatch).items()
        ]
        topic = share_acknowledge.AcknowledgeTopic(topic_id=self._topic_id, partitions=partitions)
        response = await self._connection.send(
            ShareAcknowledgeRequest(
                group_id=self._member.group_id,
                member_id=self._member.member_id,
                share_session_epoch=self._epoch,
                topics=[topic] if partitions else [],
            )
        )
        self._check(response)

    async def close(self) -> None:
        """Close the session; the broker releases the records that are not acknowledged."""
        self._epoch = FINAL_EPOCH
        await self.acknowledge(())
        self._epoch = INITIAL_EPOCH

    def disconnect(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _check(self, response: Any) -> None:
        """Continue the session. Raises KafkaError for the first error of a response."""
        _raise(response.error_code, response.error_message)
        if self._epoch != FINAL_EPOCH:
            self._epoch += 1
        for topic in response.responses:
            for data in topic.partitions:
                _raise(data.error_code, data.error_message)
                if isinstance(data, share_fetch.PartitionData):
                    _raise(data.acknowledge_error_code, data.acknowledge_error_message)


def _raise(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(code), message or "")


def _batches(acknowledged: Acknowledged, batch: type[Any]) -> Mapping[int, list[Any]]:
    """Return batches of acknowledgements by partition."""
    batches: dict[int, list[Any]] = {}
    for one, types in acknowledged:
        made = batch(first_offset=one.first_offset, last_offset=one.last_offset, acknowledge_types=types)
        batches.setdefault(one.partition, []).append(made)
    return batches

"""Producers with transactions in raw messages, for tests of the coordinator in a simulated world."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.server.data_plane import DataPlane, at, batch, fetch, only_fetched, only_produced, produce

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.record_batch import iter_batches
from barnabas.server.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.simulation.machines import START_MS

NONE = ErrorCode.NONE


class RawProducer:
    """One producer on a connection of its own. `version` is that of the transaction protocol, 1 or 2."""

    plane: DataPlane

    def __init__(self, connection: BrokerConnection, transactional_id: str, version: int) -> None:
        self.connection = connection
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    @classmethod
    async def open(
        cls, plane: DataPlane, transactional_id: str = "x", *, version: int = 2, timeout_ms: int = 60_000
    ) -> RawProducer:
        """A producer that has been given an id."""
        one = cls(await plane.connect(), transactional_id, version)
        one.plane = plane
        assert await one.init(timeout_ms=timeout_ms) == NONE
        return one

    async def init(self, *, timeout_ms: int = 60_000, keep: bool = False, version: int = 4) -> ErrorCode:
        """InitProducerId; again and again while the transaction before ends."""
        await self.connection.send(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id]), 4)
        while True:
            request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
            if keep:
                request.producer_id, request.producer_epoch = self.producer_id, self.epoch
            answer = await self.connection.send(request, version)
            if answer.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                break
            await asyncio.sleep(0.01)
        if not answer.error_code:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return ErrorCode(answer.error_code)

    async def add(self, *indexes: int, topic: str = "t", version: int = 3) -> list[ErrorCode]:
        """AddPartitionsToTxn of protocol 1."""
        answer = await self.connection.send(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
            ),
            version,
        )
        return [
            ErrorCode(one.partition_error_code)
            for result in answer.results_by_topic_v3_and_below
            for one in result.results_by_partition
        ]

    async def append(
        self, *values: bytes, topic: str = "t", index: int = 0, api_version: int | None = None, acks: int = -1
    ) -> ErrorCode:
        """Produce one batch of the transaction."""
        sequence = self.sequences.get((topic, index), 0)
        records = batch(
            *values,
            timestamp=START_MS,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        version = api_version or (12 if self.version == 2 else 9)
        request = produce(records, topic=topic, index=index, acks=acks, transactional_id=self.transactional_id)
        answer = only_produced(await self.connection.send(request, version))
        if not answer.error_code:
            self.sequences[topic, index] = sequence + len(values)
        return ErrorCode(answer.error_code)

    async def send(self, *values: bytes, topic: str = "t", index: int = 0) -> None:
        """A batch in a transaction, by whichever protocol; it has to work."""
        if self.version == 1:
            errors = [ErrorCode.CONCURRENT_TRANSACTIONS]
            while errors == [ErrorCode.CONCURRENT_TRANSACTIONS]:
                errors = await self.add(index, topic=topic)
            assert errors == [NONE]
        assert await self.append(*values, topic=topic, index=index) == NONE

    async def end(self, *, is_commit: bool, api_version: int | None = None) -> ErrorCode:
        """EndTxn; with protocol 2 there is a new epoch afterwards."""
        version = api_version if api_version is not None else (5 if self.version == 2 else 3)
        answer = await self.connection.send(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=is_commit,
            ),
            version,
        )
        if not answer.error_code and version >= 5:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return ErrorCode(answer.error_code)

    async def commit(self) -> None:
        assert await self.end(is_commit=True) == NONE

    async def abort(self) -> None:
        assert await self.end(is_commit=False) == NONE

    async def add_offsets(self, group: str, version: int = 3) -> ErrorCode:
        answer = await self.connection.send(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            ),
            version,
        )
        return ErrorCode(answer.error_code)

    async def commit_offset(self, group: str, offset: int, **member: Any) -> ErrorCode:
        """TxnOffsetCommit for one partition of `t`."""
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
            **member,
        )
        answer = await self.connection.send(request, 5 if self.version == 2 else 3)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def known(self) -> TransactionMetadata:
        """What the coordinator knows of it."""
        found = self.plane.state.transaction_coordinator.state_manager.find_transaction(self.transactional_id)
        assert found is not None
        return found.metadata


def is_busy(plane: DataPlane, transactional_id: str = "x") -> bool:
    """Return whether a decision about an id is not durable yet, or its markers are not written."""
    found = plane.state.transaction_coordinator.state_manager.find_transaction(transactional_id)
    return found is not None and found.is_busy


async def find(connection: BrokerConnection, group: str) -> None:
    """Have the coordinator of a group there."""
    await connection.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)


async def committed_offset(
    plane: DataPlane, group: str, *, index: int = 0, stable: bool = True
) -> tuple[int, ErrorCode]:
    """What a group has committed for a partition of `t`."""
    connection = await plane.connect()
    wanted = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[index])]
    )
    answer = await connection.send(OffsetFetchRequest(groups=[wanted], require_stable=stable), 8)
    connection.close()
    (part,) = answer.groups[0].topics[0].partitions
    return part.committed_offset, ErrorCode(part.error_code)


async def committed_values(plane: DataPlane, *, topic: str = "t", index: int = 0) -> list[bytes | None]:
    """What a consumer that reads committed records gets to see: aborted transactions are for it to leave out."""
    connection = await plane.connect()
    data = only_fetched(await connection.send(fetch(at(0, index), topic=topic, isolation_level=1), 12))
    connection.close()
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    values: list[bytes | None] = []
    open_aborts: set[int] = set()
    for one in iter_batches(bytes(data.records or b"")):
        while aborted and aborted[0][0] <= one.last_offset:
            open_aborts.add(aborted.pop(0)[1])
        if one.is_control:  # type: ignore[union-attr]
            open_aborts.discard(one.producer_id)  # type: ignore[union-attr]
        elif not (one.is_transactional and one.producer_id in open_aborts):  # type: ignore[union-attr]
            values += [record.value for record in one.records()]
    return values

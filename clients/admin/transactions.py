"""Transactions: which there are, what they hold up, and ending those that nobody else ends (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ...protocol.messages.describe_transactions import DescribeTransactionsRequest
from ...protocol.messages.list_transactions import ListTransactionsRequest
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ...protocol.topic_partition import TopicPartition, indexes_by_topic
from ..client import Client
from ..connection import BrokerConnection
from ..errors import code_of
from ..group.find_coordinators import TRANSACTION
from .coordinators import Coordinators
from .outcomes import raise_error

NO_OFFSET = -1
NO_EPOCH = -1


class TransactionListing(NamedTuple):
    """One transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionDescription(NamedTuple):
    """One transactional id as its coordinator knows it; `start_ms` -1 if nothing has begun."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]


class OpenTransaction(NamedTuple):
    """A producer's open transaction on one partition, as the partition's leader knows it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionAdmin:
    """What `Admin` does with transactions."""

    def __init__(self, client: Client, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._coordinators = Coordinators(client, timeout_ms=timeout_ms, key_type=TRANSACTION)

    async def list_transactions(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers, by name. Raises KafkaError."""
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))

        async def ask(broker_id: int) -> list[TransactionListing]:
            response = await self._client.ask(broker_id, request)
            raise_error(response.error_code, f"transactions of broker {broker_id}")
            return [
                TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, broker_id)
                for one in response.transaction_states
            ]

        async def ask_all() -> list[list[TransactionListing]]:
            return await asyncio.gather(*(ask(broker_id) for broker_id in sorted(self._client.cluster.brokers)))

        found = await self._client.retrying(ask_all, timeout_ms=self._timeout_ms)
        return sorted(one for listed in found for one in listed)

    async def describe_transactions(self, names: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """Each transactional id, or why it cannot be told of."""

        async def ask(connection: BrokerConnection, some: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            response = await connection.send(DescribeTransactionsRequest(transactional_ids=some))
            answers: dict[str, TransactionDescription | KafkaError] = {}
            for one in response.transaction_states:
                if one.error_code != ErrorCode.NONE:
                    text = f"transactional id {one.transactional_id!r}"
                    answers[one.transactional_id] = KafkaError(code_of(one.error_code), text)
                    continue
                answers[one.transactional_id] = TransactionDescription(
                    one.transactional_id,
                    one.transaction_state,
                    one.producer_id,
                    one.producer_epoch,
                    one.transaction_timeout_ms,
                    one.transaction_start_time_ms,
                    [TopicPartition(topic.topic, index) for topic in one.topics for index in topic.partitions],
                )
            return answers

        return await self._coordinators.ask(names, ask)

    async def open_transactions(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """What is open on these partitions, as their leaders know it. Raises KafkaError."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(await self._leader_of(partition), []).append(partition)

        async def ask(leader: int, led: list[TopicPartition]) -> list[OpenTransaction]:
            wanted = [
                TopicRequest(name=name, partition_indexes=indexes) for name, indexes in indexes_by_topic(led).items()
            ]
            response = await self._client.ask(leader, DescribeProducersRequest(topics=wanted))
            found = []
            for topic in response.topics:
                for part in topic.partitions:
                    raise_error(part.error_code, f"{topic.name}-{part.partition_index}")
                    place = TopicPartition(topic.name, part.partition_index)
                    found += [
                        OpenTransaction(
                            place,
                            one.producer_id,
                            one.producer_epoch,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                            one.last_timestamp,
                        )
                        for one in part.active_producers
                        if one.current_txn_start_offset != NO_OFFSET
                    ]
            return found

        answers = await asyncio.gather(*(ask(leader, topics) for leader, topics in by_leader.items()))
        return sorted(one for found in answers for one in found)

    async def abort_transaction(self, transaction: OpenTransaction) -> None:
        """Abort what a producer has open on one partition by its marker, whatever its coordinator knows.

        Only for transactions that hang: its coordinator is not told. Raises KafkaError.
        """
        partition = transaction.partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await self._client.ask(await self._leader_of(partition), request)
        for one in response.markers:
            for topic in one.topics:
                for part in topic.partitions:
                    raise_error(part.error_code, f"{topic.name}-{part.partition_index}")

    async def find_hanging(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int
    ) -> list[OpenTransaction]:
        """What has been open on a partition for so long without a coordinator that knows of it.

        Raises KafkaError, also if a coordinator does not say what it knows: whoever takes its transactions for nobody's
        ends them.
        """
        candidates = [
            one for one in await self.open_transactions(partitions) if now_ms - one.last_timestamp_ms >= older_than_ms
        ]
        if not candidates:
            return []
        listed = await self.list_transactions(producer_ids={one.producer_id for one in candidates})
        described = await self.describe_transactions([one.transactional_id for one in listed])
        known: set[tuple[int, TopicPartition]] = set()
        for one in described.values():
            if not isinstance(one, KafkaError):
                known.update((one.producer_id, partition) for partition in one.partitions)
            elif one.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise one
        return [one for one in candidates if (one.producer_id, one.partition) not in known]

    async def _leader_of(self, partition: TopicPartition) -> int:
        """Raises KafkaError: no such topic, LEADER_NOT_AVAILABLE."""
        await self._client.topic(partition.topic, self._timeout_ms)
        leader = self._client.cluster.leader(partition)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return leader

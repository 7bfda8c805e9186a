"""A producer's transactions (KIP-98): read_committed consumers read all records of a transaction or none.

With the first version of the protocol, supported since 0.11, a partition is added at the coordinator before its first
record is sent. With the second version, if the cluster's `transaction.version` is 2, the append adds it, and each
transaction has its own epoch (KIP-890). A failure in a transaction fails the whole transaction; fencing ends the
producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from ..common.room_logger import room_logger
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ..protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ..protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ..protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ..protocol.producer_identity import ProducerIdentity
from ..protocol.topic_partition import TopicPartition
from .client import Client
from .errors import code_of
from .group.coordinator_link import CoordinatorLink
from .group.find_coordinators import TRANSACTION
from .group.group_metadata import GroupMetadata
from .group.offset_requests import OffsetAndMetadata

logger = room_logger("clients")

_LAST_ADD_PARTITIONS, _LAST_INIT = 3, 5
_FIRST_BUMP = 3
"""InitProducerId version with the producer's present identity (KIP-360, brokers since 2.5)."""
_LAST_END_V1, _END_V2 = 4, 5
_LAST_OFFSET_COMMIT_V1, _OFFSET_COMMIT_V2 = 4, 5
LAST_PRODUCE_V1, FIRST_PRODUCE_V2 = 11, 12
FEATURE, TV_2 = "transaction.version", 2
CONCURRENT_SECONDS = 0.01
"""Pause before a retry while the previous transaction is being completed, a matter of milliseconds."""
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors after which the producer cannot be used any more."""


Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


class TransactionManager:
    """The transactional state of a producer and its requests to the coordinator. Runs on the producer's event loop."""

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        *,
        transaction_timeout_ms: int,
        max_block_ms: int,
        use: Callable[[ProducerIdentity], None],
    ) -> None:
        """`use` sets the producer identity for later batches; no batch is in flight then."""
        self._client = client
        self._id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._max_block_ms = max_block_ms
        self._link = CoordinatorLink(client, transactional_id, TRANSACTION)
        self._use = use
        self._identity = ProducerIdentity(-1, -1)
        self.is_open = False
        self.is_v2 = False
        """Whether the present transaction uses the second version of the protocol."""
        self._is_epoch_of_v1 = False
        """Whether a transaction of the first version used the present epoch. A transaction of the second must not use
        it, too: its appends would be added to the former transaction while its markers are pending.
        """
        self.is_end_in_doubt = False
        """Whether the last transaction may be open at its coordinator, because the result of its end is unknown."""
        self._added: set[TopicPartition] = set()
        self._adding = asyncio.Lock()
        self._has_offsets = False
        self._failure: KafkaError | None = None
        self._fatal: KafkaError | None = None

    async def init(self) -> None:
        """Initialize the transactional id: fences the previous producer with this id and aborts its open transaction.

        Raises KafkaError.
        """
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)
        response = await self._ask(request, _LAST_INIT, "no producer id: the request failed")
        self._become(response)

    async def bump_epoch(self) -> None:
        """Continue with another epoch, in which sequences start at 0.

        Raises KafkaError, after which the producer cannot be used: another producer has taken over the id.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
        )
        try:
            self._become(await self._ask(request, _LAST_INIT, "no other epoch: the request failed", lowest=_FIRST_BUMP))
        except KafkaError as error:
            self._fatal = self._fatal or error
            raise

    def _become(self, response: InitProducerIdResponse | EndTxnResponse) -> None:
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self._is_epoch_of_v1 = self.is_end_in_doubt = False
        self._use(self._identity)

    async def begin(self) -> None:
        """Begin a transaction. Raises KafkaError if the producer is fenced, RuntimeError if a transaction is open."""
        self._check_fatal()
        if self.is_open:
            raise RuntimeError("a transaction is open already")
        if self.is_end_in_doubt:
            await self._settle()
        if self._brokers_know_v2 and self._is_epoch_of_v1:
            await self.bump_epoch()
        self.is_open, self._has_offsets, self._failure = True, False, None
        self._added.clear()
        self.is_v2 = self._brokers_know_v2 and not self._is_epoch_of_v1
        self._is_epoch_of_v1 = not self.is_v2

    async def _settle(self) -> None:
        """Abort the last transaction unless it has ended, so that later records do not become part of it."""
        try:
            await self.end(is_commit=False)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
            await self.bump_epoch()
        else:
            if self.has_failed and not self.is_v2:
                await self.bump_epoch()

    def leave(self) -> None:
        """Mark the transaction as abandoned: its block was left before the transaction could be ended."""
        self.is_open, self.is_end_in_doubt = False, True

    @property
    def _brokers_know_v2(self) -> bool:
        return self._link.features.get(FEATURE, 0) >= TV_2

    def failed(self, error: KafkaError) -> None:
        """Record that a record of the transaction was not delivered."""
        self._failure = self._failure or error
        if error.code in _FENCED:
            self._fatal = self._fatal or error

    @property
    def has_failed(self) -> bool:
        """Return whether the transaction can only be aborted."""
        return self._failure is not None

    async def add(self, partition: TopicPartition) -> None:
        """Add the partition to the transaction. Raises KafkaError, RuntimeError outside of a transaction."""
        self._check_open()
        if self.is_v2:
            self._added.add(partition)
            return
        async with self._adding:
            if partition in self._added:
                return
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._identity.producer_id,
                v3_and_below_producer_epoch=self._identity.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])],
            )
            await self._ask_in_transaction(
                request, _LAST_ADD_PARTITIONS, f"{partition} was not added to the transaction", _added_code
            )
            self._added.add(partition)

    def has(self, partition: TopicPartition) -> bool:
        """Return whether the partition is part of the transaction."""
        return self.is_open and self._failure is None and partition in self._added

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit offsets of a group with the transaction. Raises KafkaError."""
        self._check_open()
        if not self.is_v2:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                group_id=group.group_id,
            )
            await self._ask_in_transaction(
                request, _LAST_ADD_PARTITIONS, "the offsets were not added to the transaction"
            )
        self._has_offsets = True
        link = CoordinatorLink(self._client, group.group_id)
        lowest, highest = (_OFFSET_COMMIT_V2,) * 2 if self.is_v2 else (0, _LAST_OFFSET_COMMIT_V1)

        async def commit() -> None:
            response = await link.send(self._offset_commit(offsets, group), lowest=lowest, highest=highest)
            for topic in response.topics:
                for answer in topic.partitions:
                    link.check(code_of(answer.error_code), f"offset of {topic.name}-{answer.partition_index}")

        await self._in_transaction(lambda: self._client.retrying(commit, timeout_ms=self._max_block_ms))

    def _offset_commit(self, offsets: Offsets, group: GroupMetadata) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            known = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            part = TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=known.offset,
                committed_leader_epoch=known.leader_epoch,
                committed_metadata=known.metadata,
            )
            topics.setdefault(topic, []).append(part)
        return TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            generation_id_or_member_epoch=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

    async def end(self, *, is_commit: bool) -> None:
        """Commit or abort after all records have been acknowledged or have failed. Raises KafkaError."""
        self.is_open = False
        self._check_fatal()
        if not self._added and not self._has_offsets:
            self.is_end_in_doubt = False
            return
        self.is_end_in_doubt = True
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=is_commit,
        )
        if self.is_v2:
            self._become(await self._ask(request, _END_V2, "the transaction was not ended", lowest=_END_V2))
        else:
            await self._ask(request, _LAST_END_V1, "the transaction was not ended")
            self.is_end_in_doubt = False

    def check_failure(self) -> None:
        """Raise the KafkaError because of which the transaction can only be aborted."""
        if self._failure is not None:
            raise self._failure

    def _check_open(self) -> None:
        self._check_fatal()
        if not self.is_open:
            raise RuntimeError("no transaction is open: use `async with producer.transaction():`")
        self.check_failure()

    def _check_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    async def _ask_in_transaction(
        self, request: Any, highest: int, what: str, code: Callable[[Any], int] | None = None
    ) -> None:
        await self._in_transaction(lambda: self._ask(request, highest, what, code))

    async def _in_transaction(self, work: Callable[[], Awaitable[object]]) -> None:
        """Fail the transaction with this error."""
        try:
            await work()
        except KafkaError as error:
            self.failed(error)
            raise

    async def _ask(
        self, request: Any, highest: int, what: str, code: Callable[[Any], int] | None = None, *, lowest: int = 0
    ) -> Any:
        """Send the request to the coordinator until it returns a final response. Raises KafkaError."""

        async def attempt() -> Any:
            while True:
                response = await self._link.send(request, lowest=lowest, highest=highest)
                found = code_of(response.error_code if code is None else code(response))
                if found is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._link.check(found, what)
                    return response
                await asyncio.sleep(CONCURRENT_SECONDS)

        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                return await self._client.retrying(attempt, timeout_ms=self._max_block_ms)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{what} within {self._max_block_ms} ms") from None
        except KafkaError as error:
            if error.code in _FENCED:
                self._fatal = self._fatal or error
            raise


def _added_code(response: Any) -> int:
    """Return the error of the single partition in the request."""
    (topic,) = response.results_by_topic_v3_and_below
    (answer,) = topic.results_by_partition
    code: int = answer.partition_error_code
    return code


class ProducerTransaction:
    """One transaction: committed at the end of the `async with` block, aborted if an error leaves it."""

    def __init__(self, manager: TransactionManager, flush: Callable[[], Awaitable[None]]) -> None:
        self._manager = manager
        self._flush = flush

    async def __aenter__(self) -> Self:
        if self._manager.is_end_in_doubt:
            await self._flush()
        await self._manager.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._flush()
        except BaseException:
            self._manager.leave()
            raise
        if kind is not None or self._manager.has_failed:
            await self._abort(kind is not None)
            self._manager.check_failure()
            return
        await self._manager.end(is_commit=True)

    async def _abort(self, is_by_error: bool) -> None:
        """Abort; if this fails, too, the error that left the block has precedence."""
        try:
            await self._manager.end(is_commit=False)
            if self._manager.has_failed and not self._manager.is_v2:
                await self._manager.bump_epoch()
        except KafkaError as error:
            if not is_by_error:
                raise
            logger.warning("a transaction could not be aborted yet: %s", error)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Commit a group's offsets with the transaction. `Consumer.group_metadata` identifies a member; the name is
        sufficient if only one consumer reads for the group. Raises KafkaError.
        """
        await self._manager.send_offsets(offsets, GroupMetadata(group) if isinstance(group, str) else group)

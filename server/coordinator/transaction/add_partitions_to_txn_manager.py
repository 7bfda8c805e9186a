"""Kafka's AddPartitionsToTxnManager: appends in a transaction, to partitions that its coordinator has added (KIP-890).

Producers of transaction version 2 do not name their partitions beforehand: their first append adds a partition. For
older producers the coordinator verifies that the producer added the partition. Both happen once for each partition and
transaction; where a transaction is open already, an append needs no check. The coordinator of this broker is called
directly; coordinators on other brokers receive AddPartitionsToTxn, with many transactions in a request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError, code_of
from ....protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.topic_partition import TopicPartition, TopicPartitionKey, indexes_by_topic
from ...metadata.topic_names import TRANSACTION_STATE_TOPIC
from ...replication.append_request import AppendCallback, AppendEntry, AppendResult, copied
from ...replication.verification_guards import transactional_header
from ..inter_broker_sender import InterBrokerSender
from .transaction_coordinator import TransactionCoordinator
from .transaction_metadata import TV_2
from .transaction_state_manager import ConcurrentTransactionRetry

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.replica_manager import ReplicaManager
    from ...replication.verification_guards import VerificationState
    from ...runtime.ports import SendRequest


TRANSACTIONS_PER_REQUEST = 1000
"""Transactions in one AddPartitionsToTxn request to another broker: some milliseconds of work at either end."""

LOWEST_VERSION = 4
"""The first version of AddPartitionsToTxn with several transactions and with verification."""
RETRY_SECONDS = 0.02
"""The delay before a request to another coordinator is repeated because the producer's last transaction has not ended
(`add.partitions.to.txn.retry.backoff.ms`)."""

VerificationCallback = Callable[[dict[TopicPartitionKey, ErrorCode]], None]
"""Receives the outcome of each partition."""


class PendingTransaction(NamedTuple):
    """A transaction in a request to its coordinator (Kafka: TransactionDataAndCallbacks)."""

    transactional_id: str
    identity: ProducerIdentity
    partitions: frozenset[TopicPartitionKey]
    is_verification: bool
    on_outcome: VerificationCallback


def _request(waiting: deque[PendingTransaction]) -> tuple[list[PendingTransaction], AddPartitionsToTxnRequest]:
    """Return the next transactions, at most one of each transactional id, and the request."""
    taken: dict[str, PendingTransaction] = {}
    while waiting and len(taken) < TRANSACTIONS_PER_REQUEST and waiting[0].transactional_id not in taken:
        taken[waiting[0].transactional_id] = waiting[0]
        waiting.popleft()
    transactions = list(taken.values())
    return transactions, AddPartitionsToTxnRequest(transactions=[_transaction(one) for one in transactions])


def _transaction(one: PendingTransaction) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=one.transactional_id,
        producer_id=one.identity.producer_id,
        producer_epoch=one.identity.epoch,
        verify_only=one.is_verification,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in indexes_by_topic(one.partitions).items()
        ],
    )


def _on_response(sent: Sequence[PendingTransaction], response: AddPartitionsToTxnResponse | KafkaError) -> None:
    error = response.code if isinstance(response, KafkaError) else code_of(response.error_code)
    if isinstance(response, KafkaError) or error is not ErrorCode.NONE:
        for one in sent:
            one.on_outcome(dict.fromkeys(one.partitions, _error_for(one, error)))
        return
    outcomes = {
        (transaction.transactional_id, topic.name, result.partition_index): code_of(result.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    }
    for one in sent:
        name = one.transactional_id
        one.on_outcome(
            {
                partition: outcomes.get((name, *partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                for partition in one.partitions
            }
        )


def _error_for(transaction: PendingTransaction, error: ErrorCode) -> ErrorCode:
    """Return the error for each partition if the coordinator has not responded, or has refused the whole request."""
    if error is ErrorCode.UNSUPPORTED_VERSION:
        # An older Kafka, which does not verify producers.
        return ErrorCode.NONE if transaction.is_verification else error
    # A client cannot repair the missing authorization of this broker.
    is_refused = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TXN_STATE if is_refused else ErrorCode.COORDINATOR_NOT_AVAILABLE


MAX_STALE_VERIFICATIONS = 3
"""How often a verification is repeated because a marker or a leader change has made it stale; after that the producer
receives a retriable error."""

AddOrVerifyCallback = Callable[[dict[TopicPartitionKey, ErrorCode]], None]
"""Receives the error of each refused partition."""
Append = Callable[[list[AppendEntry], "AppendCallback"], None]


class TransactionSupportedOperation(Enum):
    """The support for transactions in a version of Produce or TxnOffsetCommit."""

    DEFAULT_ERROR = auto()
    GENERIC_ERROR_SUPPORTED = auto()
    """The response may have the error TRANSACTION_ABORTABLE."""
    ADD_PARTITION = auto()
    """The request adds its partitions to the transaction (transaction version 2)."""

    @classmethod
    def for_version(cls, version: int, first_abortable: int) -> TransactionSupportedOperation:
        """Return the support in an API version; the version after `first_abortable` adds partitions."""
        if version > first_abortable:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if version == first_abortable else cls.DEFAULT_ERROR


class AddPartitionsToTxnManager:
    """The requests of this broker to the coordinators of transactional ids, on this and on other brokers.

    Owned by the broker and used on the loop's thread only.
    """

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        loop: asyncio.AbstractEventLoop,
        *,
        broker_id: int,
        send: SendRequest | None,
    ) -> None:
        """`send` sends a request to another broker; None for a single broker, which coordinates all ids."""
        self._coordinator = coordinator
        self._replicas = replica_manager
        self._metadata = metadata
        self._broker_id = broker_id
        self._sender: InterBrokerSender[PendingTransaction] | None = None
        if send is not None:
            self._sender = InterBrokerSender(send, loop, lowest=LOWEST_VERSION, request=_request, answered=_on_response)
        self._retries: dict[Callable[[], None], asyncio.TimerHandle] = {}
        """The delayed calls of requests to other coordinators."""
        self._guards = replica_manager.verification_guards
        self._loop = loop

    async def close(self) -> None:
        """Stop sending requests."""
        for timer in self._retries.values():
            timer.cancel()
        if self._sender is not None:
            await self._sender.close()

    # -- appends -------------------------------------------------------------------------------------------------------

    def handle_produce_append(
        self,
        transactional_id: str,
        supported_operation: TransactionSupportedOperation,
        entries: list[AppendEntry],
        append: Append,
        callback: AppendCallback,
    ) -> None:
        """Call `append` with the entries in the producer's transaction; `callback` gets a result for each entry.

        Kafka: ReplicaManager.handleProduceAppend.
        """
        headers = [transactional_header(records) for _, _, records in entries]
        producers = {ProducerIdentity(one.producer_id, one.producer_epoch) for one in headers if one is not None}
        if not producers:
            append(entries, callback)
            return
        if len(producers) > 1:
            text = "Transactional records contained more than one producer ID"
            callback([KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)] * len(entries))
            return
        (identity,) = producers
        wanted = {
            entry[:2]: header.base_sequence
            for entry, header in zip(entries, headers, strict=True)
            if header is not None
        }
        waiting = _WaitingAppend(entries, append, callback, supported_operation)
        self.add_or_verify_transaction(transactional_id, identity, wanted, supported_operation, waiting.append_allowed)
        waiting.keep_records()

    def add_or_verify_transaction(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        wanted: dict[TopicPartitionKey, int],
        supported_operation: TransactionSupportedOperation,
        callback: AddOrVerifyCallback,
    ) -> None:
        """Add partitions to the producer's transaction, or verify that they are in it.

        `wanted` has the base sequence of the batch by partition. `callback`, perhaps called before this returns, must
        append immediately: a later marker would make the verification stale.
        """
        errors: dict[TopicPartitionKey, ErrorCode] = {}
        if supported_operation is not TransactionSupportedOperation.ADD_PARTITION and not self._guards.is_needed():
            callback(errors)
            return
        partitions = frozenset(self._partitions_without_open_transaction(identity, wanted, supported_operation, errors))
        if not partitions:
            callback(errors)
            return
        pending = _PendingAddOrVerify(
            self,
            self._replicas,
            self._loop,
            transactional_id=transactional_id,
            identity=identity,
            partitions=partitions,
            supported_operation=supported_operation,
        )

        pending.start(lambda refused: callback(errors | refused))

    def _partitions_without_open_transaction(
        self,
        identity: ProducerIdentity,
        wanted: dict[TopicPartitionKey, int],
        supported_operation: TransactionSupportedOperation,
        errors: dict[TopicPartitionKey, ErrorCode],
    ) -> Iterable[TopicPartitionKey]:
        """Yield the partitions that this broker leads and on which the producer has no open transaction."""
        for topic_partition, sequence in wanted.items():
            partition = self._replicas.get_partition(*topic_partition)
            if partition is None or not partition.is_leader or partition.is_offline:
                continue  # the append fails with the reason
            if self._guards.has_open_transaction(partition, *identity):
                continue
            if (
                supported_operation is TransactionSupportedOperation.ADD_PARTITION
                and sequence > 0
                and self._guards.is_new_producer(partition, identity.producer_id)
            ):
                # In transaction version 2 each transaction has a new epoch, and so begins with sequence 0.
                errors[topic_partition] = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                yield topic_partition

    # -- coordinators --------------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: frozenset[TopicPartitionKey],
        client_version: int,
        on_outcome: VerificationCallback,
    ) -> None:
        """Add partitions to the producer's transaction, by the coordinator of the id."""
        leader = self._find_remote_coordinator(transactional_id)
        if leader is None:
            self._coordinator.add_partitions_to_transaction(
                transactional_id,
                identity,
                partitions,
                client_version,
                lambda error: on_outcome(dict.fromkeys(partitions, error)),
            )
        else:
            self._send(leader, PendingTransaction(transactional_id, identity, partitions, False, on_outcome))

    def verify_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: frozenset[TopicPartitionKey],
        on_outcome: VerificationCallback,
    ) -> None:
        """Verify that partitions are in the producer's transaction, by the coordinator of the id."""
        leader = self._find_remote_coordinator(transactional_id)
        if leader is None:
            on_outcome(self._coordinator.verify_partitions_in_transaction(transactional_id, identity, partitions))
        else:
            self._send(leader, PendingTransaction(transactional_id, identity, partitions, True, on_outcome))

    def add_waiter(self, transactional_id: str, work: Callable[[], None]) -> None:
        """Call `work` when the id is not busy any more; after `RETRY_SECONDS` if another broker coordinates it."""
        if self._find_remote_coordinator(transactional_id) is None:
            self._coordinator.state_manager.add_waiter(transactional_id, work)
            return

        def due() -> None:
            del self._retries[work]
            work()

        self._retries[work] = self._loop.call_later(RETRY_SECONDS, due)

    def remove_waiter(self, transactional_id: str, work: Callable[[], None]) -> bool:
        """Cancel `add_waiter`; return whether `work` was still waiting."""
        timer = self._retries.pop(work, None)
        if timer is not None:
            timer.cancel()
            return True
        return self._coordinator.state_manager.remove_waiter(transactional_id, work)

    def _find_remote_coordinator(self, transactional_id: str) -> int | None:
        """Return the other broker that coordinates an id, -1 if no broker does; None if this broker does."""
        if self._sender is None:
            return None
        index = self._coordinator.state_manager.partition_for(transactional_id)
        if index is None:
            return None
        image = self._metadata.partition(TopicPartition(TRANSACTION_STATE_TOPIC, index))
        leader = -1 if image is None else image.leader
        return None if leader == self._broker_id else leader

    def _send(self, broker_id: int, transaction: PendingTransaction) -> None:
        if broker_id < 0:
            transaction.on_outcome(dict.fromkeys(transaction.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            assert self._sender is not None
            self._sender.add(broker_id, transaction)


class _PendingAddOrVerify:
    """The attempts of one request to add or verify partitions."""

    def __init__(
        self,
        manager: AddPartitionsToTxnManager,
        replica_manager: ReplicaManager,
        loop: asyncio.AbstractEventLoop,
        *,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: frozenset[TopicPartitionKey],
        supported_operation: TransactionSupportedOperation,
    ) -> None:
        self._manager = manager
        self._replicas = replica_manager
        self._guards = replica_manager.verification_guards
        self._transactional_id = transactional_id
        self._identity = identity
        self._topic_partitions = partitions
        self._supported_operation = supported_operation
        self._verification_states: dict[TopicPartitionKey, VerificationState] = {}
        self._stale_count = 0
        """The number of verifications that were stale."""
        self._callback: AddOrVerifyCallback | None = None
        self._retry = ConcurrentTransactionRetry(
            manager, loop, transactional_id, attempt=self._try, give_up=self._give_up
        )

    def start(self, callback: AddOrVerifyCallback) -> None:
        """Make the first attempt; `callback` gets the error of each refused partition."""
        self._callback = callback
        self._try()

    def _try(self) -> None:
        # In each attempt: the marker of the producer's last transaction ends the verifications before it.
        for topic_partition in self._topic_partitions:
            partition = self._replicas.get_partition(*topic_partition)
            if partition is not None:
                self._verification_states[topic_partition] = self._guards.begin_verification(partition, *self._identity)
        if self._supported_operation is TransactionSupportedOperation.ADD_PARTITION:
            self._manager.add_partitions(
                self._transactional_id, self._identity, self._topic_partitions, TV_2, self._on_outcome
            )
        else:
            self._manager.verify_partitions(
                self._transactional_id, self._identity, self._topic_partitions, self._on_outcome
            )

    def _on_outcome(self, outcomes: dict[TopicPartitionKey, ErrorCode]) -> None:
        # The coordinator may have appended a record in this turn, and the callback appends the request's records.
        self._replicas.run_in_turn(partial(self._finish_or_retry, outcomes))

    def _finish_or_retry(self, outcomes: dict[TopicPartitionKey, ErrorCode]) -> None:
        is_early = (
            self._supported_operation is TransactionSupportedOperation.ADD_PARTITION
            and ErrorCode.CONCURRENT_TRANSACTIONS in outcomes.values()
        )
        if is_early and self._retry.wait():
            return
        stale = [
            partition for partition, error in outcomes.items() if error is ErrorCode.NONE and self._is_stale(partition)
        ]
        if stale and self._stale_count < MAX_STALE_VERIFICATIONS:
            # The coordinator responded before the marker, or under an earlier leader.
            self._stale_count += 1
            self._try()
            return
        self._retry.end()
        self._finish(outcomes | dict.fromkeys(stale, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _is_stale(self, topic_partition: TopicPartitionKey) -> bool:
        """Return whether a marker was written, or another broker led, during the request to the coordinator."""
        partition = self._replicas.get_partition(*topic_partition)
        if partition is None or not partition.is_leader or topic_partition not in self._verification_states:
            return False  # the append fails with the reason
        return not self._guards.is_current(
            topic_partition, self._identity.producer_id, self._verification_states[topic_partition]
        )

    def _give_up(self) -> None:
        self._finish(dict.fromkeys(self._topic_partitions, ErrorCode.CONCURRENT_TRANSACTIONS))

    def _finish(self, outcomes: dict[TopicPartitionKey, ErrorCode]) -> None:
        """Admit the partitions without an error, and pass the errors of the others on."""
        refused: dict[TopicPartitionKey, ErrorCode] = {}
        for partition, state in self._verification_states.items():
            error = outcomes[partition]
            if error is ErrorCode.NONE:
                state.is_verified = True
                continue
            self._guards.discard(partition, self._identity.producer_id, state)
            refused[partition] = _TO_PRODUCE_ERRORS.get(error, error)
            if (
                self._supported_operation is TransactionSupportedOperation.DEFAULT_ERROR
                and error is ErrorCode.TRANSACTION_ABORTABLE
            ):
                refused[partition] = ErrorCode.INVALID_TXN_STATE
        if self._callback is not None:
            self._callback(refused)


class _WaitingAppend:
    """A Produce request whose partitions are being added or verified."""

    def __init__(
        self,
        entries: list[AppendEntry],
        append: Append,
        callback: AppendCallback,
        supported_operation: TransactionSupportedOperation,
    ) -> None:
        self._entries = entries
        self._append = append
        self._callback = callback
        self._supported_operation = supported_operation
        self._is_done = False

    def keep_records(self) -> None:
        """Copy the records out of the connection's buffer, unless they are appended already."""
        if not self._is_done:
            self._entries = [copied(entry) for entry in self._entries]

    def append_allowed(self, errors: dict[TopicPartitionKey, ErrorCode]) -> None:
        """Append the entries of partitions without an error."""
        self._is_done = True
        if not errors:
            self._append(self._entries, self._callback)
            return
        failed = {partition: self._to_produce_error(error) for partition, error in errors.items()}
        good = [entry for entry in self._entries if entry[:2] not in failed]
        partitions = [entry[:2] for entry in self._entries]

        def respond(results: list[AppendResult]) -> None:
            others = iter(results)
            self._callback([failed[partition] if partition in failed else next(others) for partition in partitions])

        self._append(good, respond)

    def _to_produce_error(self, error: ErrorCode) -> KafkaError:
        """Return the error for the producer; older producers repeat the request upon NOT_ENOUGH_REPLICAS only."""
        if error is ErrorCode.INVALID_TXN_STATE:
            return KafkaError(error, "Partition was not added to the transaction")
        is_retried = error in _RETRIED or (
            error is ErrorCode.CONCURRENT_TRANSACTIONS
            and self._supported_operation is not TransactionSupportedOperation.ADD_PARTITION
        )
        if is_retried:
            text = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        return KafkaError(error, f"The partition is not part of the transaction: {error.name}")


_RETRIED = (
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

_TO_PRODUCE_ERRORS = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
"""The errors of Produce that replace errors of AddPartitionsToTxn."""

"""Kafka's TransactionCoordinator: the decisions about transactions.

`TransactionStateManager` has the transactional ids and their log, `TransactionMarkerChannelManager` writes the markers.
While a decision is not durable, or its markers are not written, no other decision about the id is possible: requests
get CONCURRENT_TRANSACTIONS and are repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ....protocol.topic_partition import TopicPartitionKey
from ...runtime.loop_sharing import CountBudget
from ...runtime.scheduler import IsolatedWork
from ..coordinator_topic import TopicCreator
from ..creation_limiter import ClientIdentity
from .transaction_marker_channel_manager import MarkerWriter, TransactionMarkerChannelManager
from .transaction_metadata import (
    AT_REST,
    COMPLETED,
    ENDING,
    LAST_EPOCH,
    TV_0,
    TV_2,
    TransactionEntry,
    TransactionMetadata,
    TransactionState,
    is_exhausted,
)
from .transaction_state_manager import (
    TRANSACTIONAL_IDS_PER_TURN,
    ConcurrentTransactionRetry,
    TransactionStateManager,
    concurrent_transactions,
)

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...metadata.producer_id_manager import ProducerIdManager
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ports, SendRequest
    from ..coordinator_log import ResponseCallback

logger = room_logger("transactions")

NO_PRODUCER = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""The identity in the response to EndTxn for clients of transaction version 1."""


class TransactionCoordinator:
    """The coordinator of the transactional ids in those partitions of `__transaction_state` that this broker leads.

    Owned by the broker and used on the loop's thread only.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        broker_id: int,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        producer_ids: ProducerIdManager,
        marker_writer: MarkerWriter,
        transaction_version: Callable[[], int],
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        send_markers: SendRequest | None,
    ) -> None:
        """`transaction_version` returns the level of the feature `transaction.version`.

        `send_markers` sends a request to another broker; None for a single broker.
        """
        self._config = config
        self._producer_ids = producer_ids
        self._transaction_version = transaction_version
        self._now_ms = ports.now_ms
        self._loop = loop
        self.state_manager = TransactionStateManager(
            config=config,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            transaction_version=transaction_version,
            ports=ports,
            loop=loop,
            send_markers=self._send_markers,
        )
        self._marker_channel_manager = TransactionMarkerChannelManager(
            self.state_manager, marker_writer, metadata, ports.now_ms, loop, broker_id=broker_id, send=send_markers
        )

    def start(self) -> None:
        """Begin to load the transactional ids of all partitions that this broker leads."""
        self.state_manager.start()

    async def close(self) -> None:
        """Unload all transactional ids and stop sending markers."""
        await self.state_manager.close()
        await self._marker_channel_manager.close()

    def _send_markers(self, transaction: TransactionEntry) -> None:
        self._marker_channel_manager.add_markers_to_send(transaction)

    # -- InitProducerId ------------------------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, client: ClientIdentity
    ) -> ProducerIdentity:
        """Return the id and epoch of a producer; fence the former producer and abort its transaction.

        `expected` is the identity in the request (KIP-360). Raises KafkaError, with CONCURRENT_TRANSACTIONS while
        another transaction of the id ends.
        """
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "The transaction timeout is not allowed.")
        transaction = self.state_manager.find_transaction(transactional_id)
        spare = None
        if transaction is None or transaction.metadata.is_exhausted:
            spare = await self._producer_ids.generate_producer_id()
            transaction = self.state_manager.find_transaction(transactional_id)
        now_ms = self._now_ms()
        if transaction is None:
            if spare is None:
                raise concurrent_transactions()  # the id has expired during the wait
            transaction = self.state_manager.create_transaction(transactional_id, spare, timeout_ms, client)
        known = transaction.metadata
        if transaction.is_busy:
            raise concurrent_transactions()
        if expected is not None and not _is_valid_producer(known, expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "Another producer uses the transactional id.")
        if known.state is TransactionState.ONGOING:
            if known.is_exhausted and spare is None:
                raise concurrent_transactions()  # the state has changed during the wait
            error = await self._await_reply(partial(self._abort, transaction, spare))
            if error is ErrorCode.NONE:
                raise concurrent_transactions()
            raise KafkaError(error, "The transaction is not aborted.")
        if self._needs_new_producer_id(known, expected):
            if spare is None:
                raise concurrent_transactions()  # the state has changed during the wait
            new: TransactionMetadata | ErrorCode = known.prepare_producer_id_rotation(
                spare, timeout_ms, now_ms, keep_last=expected is not None
            )
        else:
            expected_epoch = None if expected is None else expected.epoch
            new = known.prepare_increment_producer_epoch(timeout_ms, expected_epoch, now_ms)
        if isinstance(new, ErrorCode):
            raise KafkaError(new, "Another producer uses the transactional id.")
        error = await self._await_reply(partial(self.state_manager.append_transaction_to_log, transaction, new))
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "The producer id could not be written.")
        return ProducerIdentity(new.producer_id, new.producer_epoch)

    def _needs_new_producer_id(self, known: TransactionMetadata, expected: ProducerIdentity | None) -> bool:
        """Return whether the producer id has no epoch left and the request is of the present producer."""
        is_current = expected is None or expected.epoch == known.producer_epoch
        if expected is not None and known.producer_epoch == LAST_EPOCH:
            # The coordinator has fenced the producer with the last epoch, and has no further one to give.
            is_current = expected.epoch == known.last_epoch
        return known.state in AT_REST and known.is_exhausted and is_current

    async def _await_reply(self, begin: Callable[[ResponseCallback], None]) -> ErrorCode:
        replied: asyncio.Future[ErrorCode] = self._loop.create_future()

        def reply(error: ErrorCode) -> None:
            if not replied.done():
                replied.set_result(error)

        begin(reply)
        return await replied

    # -- AddPartitionsToTxn, AddOffsetsToTxn ---------------------------------------------------------------------------

    def add_partitions_to_transaction(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: frozenset[TopicPartitionKey],
        client_version: int,
        reply: ResponseCallback,
    ) -> None:
        """Add partitions to the producer's transaction; the first ones begin it. `reply` gets the durable outcome.

        For AddPartitionsToTxn and AddOffsetsToTxn, and for Produce and TxnOffsetCommit of transaction version 2.
        """
        try:
            transaction = self.state_manager.get_transaction(transactional_id)
        except KafkaError as error:
            reply(error.code)
            return
        known = transaction.metadata
        if transaction.is_busy:
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif error_code := _check_producer(known, identity):
            if _is_unknown_identity(identity, known):
                self.state_manager.confirm_state(transaction, lambda error: reply(error or error_code))
            else:
                reply(error_code)
        elif known.state is TransactionState.ONGOING and partitions <= known.partitions:
            if client_version < TV_2:
                # The producer has the same epoch in its next transaction, which another coordinator may have begun.
                self.state_manager.confirm_state(transaction, reply)
            else:
                reply(ErrorCode.NONE)
        else:
            new = known.prepare_add_partitions(partitions, client_version, self._now_ms())
            self.state_manager.append_transaction_to_log(transaction, new, reply)

    def add_partitions_with_retry(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: frozenset[TopicPartitionKey],
        client_version: int,
        reply: ResponseCallback,
    ) -> None:
        """Add partitions, after the producer's last transaction has ended if that takes less than `WAIT_SECONDS`."""

        def attempt() -> None:
            self.add_partitions_to_transaction(transactional_id, identity, partitions, client_version, complete)

        def complete(error: ErrorCode) -> None:
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS or not retry.wait():
                retry.end()
                reply(error)

        retry = ConcurrentTransactionRetry(
            self.state_manager,
            self._loop,
            transactional_id,
            attempt=attempt,
            give_up=partial(reply, ErrorCode.CONCURRENT_TRANSACTIONS),
        )
        attempt()

    def verify_partitions_in_transaction(
        self, transactional_id: str, identity: ProducerIdentity, partitions: frozenset[TopicPartitionKey]
    ) -> dict[TopicPartitionKey, ErrorCode]:
        """Return TRANSACTION_ABORTABLE for each partition that is not in the producer's transaction (KIP-890)."""
        try:
            known = self.state_manager.get_transaction(transactional_id).metadata
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        if error_code := _check_producer(known, identity):
            return dict.fromkeys(partitions, error_code)
        return {
            partition: ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    # -- EndTxn --------------------------------------------------------------------------------------------------------

    def end_transaction(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        wanted: TransactionState,
        ended: Callable[[ProducerIdentity | ErrorCode], None],
        *,
        client_version: int,
        spare: int = NO_PRODUCER_ID,
    ) -> None:
        """Decide a transaction, PREPARE_COMMIT or PREPARE_ABORT; its markers follow.

        `ended` gets the durable outcome: an error, or the producer's next identity, which differs from the present one
        in transaction version 2. `spare` is the next producer id if the present producer id has no epoch left.
        """
        try:
            transaction = self.state_manager.get_transaction(transactional_id)
        except KafkaError as error:
            ended(error.code)
            return
        known, is_v2 = transaction.metadata, client_version >= TV_2
        if is_v2 and transaction.is_busy:
            ended(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        outcome = (end_transaction_tv2 if is_v2 else end_transaction_tv1)(known, *identity, wanted)
        is_unknown = outcome is ErrorCode.INVALID_TXN_STATE or _is_unknown_identity(identity, known)
        if transaction.is_busy and (is_unknown or outcome not in _ERRORS_BEFORE_CONCURRENT):
            ended(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif outcome is ErrorCode.NONE and is_v2:
            ended(ProducerIdentity(known.producer_id, known.producer_epoch))
        elif outcome is ErrorCode.NONE:
            # The producer has the same epoch in its next transaction, which another coordinator may have begun.
            self.state_manager.confirm_state(transaction, lambda error: ended(error or NO_PRODUCER))
        elif isinstance(outcome, ErrorCode):
            refusal: ErrorCode = outcome
            if is_unknown:
                # If this broker's session has expired and the broker has not detected it, the transaction may be open
                # at another coordinator.
                self.state_manager.confirm_state(transaction, lambda error: ended(error or refusal))
            else:
                ended(refusal)
        else:
            next_id = spare if known.is_exhausted else NO_PRODUCER_ID
            new = known.prepare_abort_or_commit(outcome, TV_2 if is_v2 else TV_0, next_id, self._now_ms())

            def complete(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    ended(_next_identity(new) if is_v2 else NO_PRODUCER)
                else:
                    ended(error)

            self.state_manager.append_transaction_to_log(
                transaction, new, complete, then=partial(self._send_markers, transaction)
            )

    # -- timeouts ------------------------------------------------------------------------------------------------------

    async def abort_timed_out_transactions(self) -> None:
        """Abort transactions that have timed out, with an epoch that fences their producers."""
        now_ms, budget = self._now_ms(), CountBudget(TRANSACTIONAL_IDS_PER_TURN)
        for transaction in self.state_manager.transactions:
            with IsolatedWork(f"the transaction of {transaction.transactional_id} could not be aborted"):
                await self._abort_if_timed_out(transaction, now_ms)
            await budget.step()

    async def _abort_if_timed_out(self, transaction: TransactionEntry, now_ms: int) -> None:
        """Raise KafkaError as `ProducerIdManager.generate_producer_id`."""
        if transaction.is_busy or not transaction.is_timed_out(now_ms, self._loop.time()):
            return
        before, spare = transaction.metadata, None
        if before.is_exhausted:
            spare = await self._producer_ids.generate_producer_id()
        if transaction.metadata is not before or transaction.is_busy or transaction.is_unloaded:
            return  # it has ended during the wait
        logger.info("the transaction of %s has timed out and is aborted", transaction.transactional_id)
        self._abort(transaction, spare, partial(_log_failure, transaction.transactional_id))

    def _abort(self, transaction: TransactionEntry, spare: int | None, reply: ResponseCallback) -> None:
        """Abort an open transaction and fence its producer; `spare` is the next producer id if no epoch is left.

        In version 2 the producer may send EndTxn afterwards and continue, and so needs a valid epoch.
        """
        known, version = transaction.metadata, TV_2 if self._transaction_version() >= TV_2 else TV_0
        next_id = NO_PRODUCER_ID if spare is None or version < TV_2 or not known.is_exhausted else spare
        new = known.prepare_fence_producer_epoch(version, next_id, self._now_ms())
        self.state_manager.append_transaction_to_log(
            transaction, new, reply, then=partial(self._send_markers, transaction)
        )


def _is_valid_producer(known: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Return whether `expected` can be the present producer, or its predecessor before a producer id rotation."""
    if known.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == known.producer_id:
        return True
    return expected.producer_id == known.previous_id and is_exhausted(expected.epoch)


def _next_identity(ending: TransactionMetadata) -> ProducerIdentity:
    """Return the producer's identity in its next transaction, in transaction version 2."""
    if ending.next_id == NO_PRODUCER_ID:
        return ProducerIdentity(ending.producer_id, ending.producer_epoch)
    return ProducerIdentity(ending.next_id, 0)


def _check_producer(known: TransactionMetadata, identity: ProducerIdentity) -> ErrorCode:
    """Return NONE if a producer may add partitions to the transaction, else the error."""
    if known.producer_id != identity.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != identity.epoch or identity.epoch == LAST_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state in ENDING else ErrorCode.NONE


def _is_unknown_identity(identity: ProducerIdentity, known: TransactionMetadata) -> bool:
    """Return whether the identity is not in the history of this entry.

    Another coordinator may have assigned it; then a refusal would be wrong, and fatal for the producer.
    """
    if known.producer_epoch == NO_PRODUCER_EPOCH:
        return False
    if identity.producer_id == known.producer_id:
        return identity.epoch > known.producer_epoch
    return identity.producer_id != known.previous_id


def _log_failure(transactional_id: str, error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        logger.warning("the transaction of %s could not be aborted: %s", transactional_id, error.name)


_ERRORS_BEFORE_CONCURRENT = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED)
"""Errors that do not depend on the pending decision."""

_S = TransactionState

Outcome = TransactionState | ErrorCode
"""The next state, or the error code; NONE if the transaction has ended in this way already."""


def end_transaction_tv1(known: TransactionMetadata, producer_id: int, epoch: int, wanted: TransactionState) -> Outcome:
    """Return the outcome of EndTxn for producers of transaction version 1 (Kafka's `endTransactionWithTV1`).

    `wanted` is PREPARE_COMMIT or PREPARE_ABORT.
    """
    if known.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if epoch != known.producer_epoch or epoch == LAST_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    if known.state is _S.ONGOING:
        return wanted
    if known.state is wanted:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if known.state is COMPLETED[wanted] else ErrorCode.INVALID_TXN_STATE


def end_transaction_tv2(known: TransactionMetadata, producer_id: int, epoch: int, wanted: TransactionState) -> Outcome:
    """Return the outcome of EndTxn for producers of transaction version 2 (Kafka's `endTransaction`).

    Such a producer receives a new epoch with each end (KIP-890), so a request with the previous epoch is a repetition:

    | state           | abort, again | abort   | commit, again | commit  |
    |-----------------|--------------|---------|---------------|---------|
    | Empty           | fenced       | bump    | fenced        | invalid |
    | CompleteAbort   | done         | bump    | fenced        | invalid |
    | CompleteCommit  | invalid      | bump    | done          | invalid |

    A commit that arrives after the coordinator has aborted the transaction is fenced, as in Kafka's trunk after 4.4:
    Kafka Streams ends upon INVALID_TXN_STATE, and starts a new producer upon PRODUCER_FENCED.
    """
    is_after_overflow = known.previous_id == producer_id and epoch == LAST_EPOCH - 1 and known.producer_epoch == 0
    if known.producer_id != producer_id and not is_after_overflow:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_again = known.producer_epoch == epoch + 1 or is_after_overflow
    if not _is_epoch_in_order(known, epoch, is_after_overflow=is_after_overflow):
        return ErrorCode.PRODUCER_FENCED
    if known.state is _S.ONGOING:
        return wanted
    if known.state is wanted:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if is_again and known.state is COMPLETED[wanted]:
        # Fenced without a next producer id, as by an older version: no epoch is left for the producer to go on with.
        return ErrorCode.PRODUCER_FENCED if known.producer_epoch == LAST_EPOCH else ErrorCode.NONE
    if is_again:
        is_late_commit = known.state in (_S.PREPARE_ABORT, _S.COMPLETE_ABORT)
        return ErrorCode.PRODUCER_FENCED if is_late_commit else ErrorCode.INVALID_TXN_STATE
    # A producer may abort without a transaction: it does not always know whether it has begun one.
    is_abort = wanted is _S.PREPARE_ABORT and known.state not in ENDING
    return wanted if is_abort else ErrorCode.INVALID_TXN_STATE


def _is_epoch_in_order(known: TransactionMetadata, epoch: int, *, is_after_overflow: bool) -> bool:
    """Return whether an epoch is valid: the present one of an open transaction, or the last one of an ended one."""
    if epoch == LAST_EPOCH:
        return False  # the epoch for fencing
    is_before, is_present = known.producer_epoch == epoch + 1, known.producer_epoch == epoch
    if known.state in ENDING:
        return is_before
    if known.state in (_S.ONGOING, _S.EMPTY):
        return is_present
    return is_before or is_present or is_after_overflow

"""Kafka's TransactionStateManager: the transactional ids of this broker, their log and their expiration.

A transactional id belongs to the leader of one partition of `__transaction_state`. Each decision is a record there
before a response reports it; the state in memory follows the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.record import NO_PRODUCER_EPOCH
from ...metadata.topic_names import TRANSACTION_STATE_TOPIC
from ...runtime.loop_sharing import CountBudget
from ...runtime.scheduler import IsolatedWork
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorRecord, ResponseCallback
from ..coordinator_runtime import CoordinatorRuntime, CoordinatorShard
from ..creation_limiter import ClientIdentity, CreationLimiter
from .transaction_log import read_transaction, read_transaction_key, transaction_key, transaction_record
from .transaction_metadata import AT_REST, ENDING, TransactionEntry, TransactionMetadata, TransactionState

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...replication.partition import Partition
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ports
    from ..coordinator_topic import TopicCreator

logger = room_logger("transactions")

TransactionShard = CoordinatorShard[dict[str, TransactionEntry]]
"""The transactional ids of one partition of `__transaction_state`."""

EXPIRED_IDS_PER_BATCH = 100
"""Expired transactional ids that are removed with one batch of tombstones."""
TRANSACTIONAL_IDS_PER_TURN = 20
"""Transactional ids that are loaded, resumed, or checked for expiry in one turn of the loop."""
IDLE_CANDIDATES_PER_REQUEST = 20
"""Transactional ids of a client at its limit that are checked for idle ones to delete."""

WAIT_SECONDS = 0.1
"""How long a request waits for the end of the producer's last transaction
(`add.partitions.to.txn.retry.backoff.max.ms`)."""

APPEND_ERRORS = {
    **WRITE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""The error code for a producer when its state could not be written."""


class TransactionStateManager:
    """The transactional ids in those partitions of `__transaction_state` that this broker leads.

    Owned by the transaction coordinator and used on the loop's thread only. Methods that look up a transactional id
    raise KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE unless this broker has
    loaded it.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        transaction_version: Callable[[], int],
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        send_markers: Callable[[TransactionEntry], None],
    ) -> None:
        """`transaction_version` returns the level of the feature `transaction.version`.

        `send_markers` is called for each loaded transaction that is decided and not complete.
        """
        self._config = config
        self._replicas = replica_manager
        self._transaction_version = transaction_version
        self._now_ms = ports.now_ms
        self._loop = loop
        self._send_markers = send_markers
        self._creation_limiter = CreationLimiter()
        self._runtime: CoordinatorRuntime[dict[str, TransactionEntry]] = CoordinatorRuntime(
            TRANSACTION_STATE_TOPIC,
            replica_manager=replica_manager,
            metadata=metadata,
            controller=controller,
            now_ms=ports.now_ms,
            loop=loop,
            new_state=dict,
            load=self._load,
            on_loaded=self._on_loaded,
            on_unloaded=self._on_unloaded,
        )
        self._topic, self._log = self._runtime.topic, self._runtime.coordinator_log

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the transactional ids of all partitions that this broker leads."""
        self._runtime.start()

    async def close(self) -> None:
        """Unload all transactional ids."""
        await self._runtime.close()

    @property
    def is_loading(self) -> bool:
        """Whether transactional ids of some partitions are still being loaded."""
        return self._runtime.is_loading

    async def _load(self, partition: Partition) -> dict[str, TransactionEntry]:
        records = await self._log.load(partition)
        found: dict[str, TransactionEntry] = {}
        budget = CountBudget(TRANSACTIONAL_IDS_PER_TURN)
        isolated = IsolatedWork("a record of a transactional id is skipped")
        for key, value in records.drain():
            with isolated:
                transactional_id = read_transaction_key(key)
                if transactional_id is not None:
                    found[transactional_id] = TransactionEntry(
                        transactional_id, read_transaction(value), self._loop.time()
                    )
            await budget.step()
        return found

    async def _on_loaded(self, transactions: dict[str, TransactionEntry]) -> None:
        budget = CountBudget(TRANSACTIONAL_IDS_PER_TURN)
        for transaction in list(transactions.values()):
            if transaction.metadata.state in ENDING:
                with IsolatedWork(f"the end of {transaction.transactional_id} could not be carried out"):
                    self._send_markers(transaction)
            await budget.step()

    def _on_unloaded(self, transactions: dict[str, TransactionEntry]) -> None:
        for transaction in transactions.values():
            transaction.is_unloaded = True
            transaction.notify_waiters()
            self._creation_limiter.record_deletion(transaction.transactional_id)

    # -- coordinators of transactional ids -----------------------------------------------------------------------------

    async def find_coordinator(self, transactional_id: str) -> int:
        """Return the id of the broker that coordinates a transactional id; create the topic if it does not exist.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        return await self._topic.find_coordinator(transactional_id)

    def partition_for(self, transactional_id: str) -> int | None:
        """Return the partition of `__transaction_state` for an id; None while the topic does not exist."""
        return self._topic.partition_of(transactional_id)

    def get_coordinator_epoch(self, transactional_id: str) -> int | None:
        """Return the leader epoch of the partition of an id; None if this broker does not lead it."""
        index = self._topic.partition_of(transactional_id)
        partition = None if index is None else self._log.get_leader_partition(index)
        return None if partition is None else partition.leader_epoch

    # -- the table of transactional ids --------------------------------------------------------------------------------

    def _get_shard(self, transactional_id: str) -> TransactionShard:
        return self._runtime.get_loaded_shard(self._topic.partition_of(transactional_id))

    def find_transaction(self, transactional_id: str) -> TransactionEntry | None:
        """Return the entry of a transactional id, None if there is none. Raises KafkaError INVALID_REQUEST for ""."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        return self._get_shard(transactional_id).state.get(transactional_id)

    def get_transaction(self, transactional_id: str) -> TransactionEntry:
        """Return the entry of a transactional id. Raises KafkaError INVALID_PRODUCER_ID_MAPPING if there is none."""
        transaction = self.find_transaction(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The transactional id has no producer id.")
        return transaction

    @property
    def transactions(self) -> Iterator[TransactionEntry]:
        """All transactional ids of this broker."""
        for shard in self._runtime:
            if shard.is_loaded and shard.is_current:
                yield from list(shard.state.values())

    def create_transaction(
        self, transactional_id: str, producer_id: int, timeout_ms: int, client: ClientIdentity
    ) -> TransactionEntry:
        """Add a transactional id, in memory only.

        Deletes ids that the client does not use if its limit is reached. Raises KafkaError CONCURRENT_TRANSACTIONS
        until their deletion is durable, POLICY_VIOLATION if the client uses all its ids.
        """
        if not self._creation_limiter.can_create(client):
            self._delete_idle_ids(client)
        metadata = TransactionMetadata(
            producer_id=producer_id,
            producer_epoch=NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            update_ms=self._now_ms(),
        )
        transaction = TransactionEntry(transactional_id, metadata, self._loop.time())
        self._get_shard(transactional_id).state[transactional_id] = transaction
        self._creation_limiter.record_creation(transactional_id, client)
        return transaction

    def _delete_idle_ids(self, client: ClientIdentity) -> None:
        candidates = [
            one
            for name in self._creation_limiter.take_names(client, IDLE_CANDIDATES_PER_REQUEST)
            if (one := self.find_transaction(name))
        ]
        self._delete_unused(candidates)
        if any(one.has_pending_transition for one in candidates):
            raise concurrent_transactions()
        if not self._creation_limiter.can_create(client):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "This client uses too many transactional ids.")

    # -- the log -------------------------------------------------------------------------------------------------------

    def append_transaction_to_log(
        self,
        transaction: TransactionEntry,
        new: TransactionMetadata,
        reply: ResponseCallback,
        *,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Append the next state of a transactional id; when it is durable, complete the transition and call `then`.

        While the disk is slow, the append waits in the `WriteQueue`. If the record is not durable within the
        transaction timeout after the append, `reply` gets COORDINATOR_NOT_AVAILABLE, and the transition remains
        pending, because the record may still become durable.
        """
        index = self._topic.partition_of(transaction.transactional_id)
        if index is None or transaction.is_unloaded:
            reply(ErrorCode.NOT_COORDINATOR)
            return
        # Before the transition is pending: it would remain pending forever if the record cannot be encoded.
        record = transaction_record(transaction.transactional_id, new, self._transaction_version())
        transaction.has_pending_transition = True
        is_complete = False

        def complete(error: ErrorCode) -> None:
            nonlocal is_complete
            if not is_complete:
                is_complete = True
                reply(error)

        def done(outcome: ErrorCode) -> None:
            transaction.has_pending_transition = False
            if transaction.is_unloaded:
                complete(ErrorCode.NOT_COORDINATOR)
                return
            if not outcome and new is not transaction.metadata:
                transaction.complete_transition_to(new, self._loop.time())
            complete(APPEND_ERRORS.get(outcome, outcome))
            if not outcome and then is not None:
                self._loop.call_soon(then)  # after the response, which need not wait for markers
            transaction.notify_waiters()

        def append() -> None:
            if transaction.is_unloaded:  # and perhaps loaded again, with another entry
                done(ErrorCode.NOT_COORDINATOR)
                return
            self._log.append(
                index,
                [record],
                done,
                timeout_ms=new.timeout_ms,
                on_overdue=lambda: complete(ErrorCode.COORDINATOR_NOT_AVAILABLE),
            )

        self._replicas.run_in_turn(append)

    def confirm_state(self, transaction: TransactionEntry, reply: ResponseCallback) -> None:
        """Append the present state again; `reply` gets no error only if this broker is still the coordinator."""
        self.append_transaction_to_log(transaction, transaction.metadata, reply)

    # -- expiration ----------------------------------------------------------------------------------------------------

    async def remove_expired_transactional_ids(self) -> None:
        """Delete transactional ids that have not been used for `transactional.id.expiration.ms`."""
        since_ms = self._now_ms() - self._config.transactional_id_expiration_ms
        budget = CountBudget(TRANSACTIONAL_IDS_PER_TURN)
        expired: list[TransactionEntry] = []
        for transaction in self.transactions:
            if transaction.metadata.update_ms <= since_ms:
                expired.append(transaction)
            if len(expired) >= EXPIRED_IDS_PER_BATCH:
                self._delete_unused(expired)
                expired = []
            await budget.step()
        self._delete_unused(expired)

    def _delete_unused(self, transactions: list[TransactionEntry]) -> None:
        """Append tombstones of those transactional ids that have no open transaction."""
        by_partition: dict[int, list[TransactionEntry]] = {}
        for one in transactions:
            index = self._topic.partition_of(one.transactional_id)
            # An id that was unloaded since its selection may be in use again, with another entry.
            is_idle = one.metadata.state in AT_REST and not one.is_busy and not one.is_unloaded
            if index is not None and is_idle:
                by_partition.setdefault(index, []).append(one)
        for index, deleted in by_partition.items():
            tombstones: list[CoordinatorRecord] = [(transaction_key(one.transactional_id), None) for one in deleted]
            for one in deleted:
                one.has_pending_transition = True
            self._log.append(
                index,
                tombstones,
                partial(self._deletion_written, deleted),
                timeout_ms=self._config.request_timeout_ms,
            )

    def _deletion_written(self, deleted: list[TransactionEntry], outcome: ErrorCode) -> None:
        for one in deleted:
            one.has_pending_transition = False
            if outcome is ErrorCode.NONE and not one.is_unloaded:
                one.is_unloaded = True
                self._creation_limiter.record_deletion(one.transactional_id)
                self._get_shard(one.transactional_id).state.pop(one.transactional_id, None)
            one.notify_waiters()

    # -- waiting for the end of a transition ---------------------------------------------------------------------------

    def add_waiter(self, transactional_id: str, work: Callable[[], None]) -> None:
        """Call `work` when the id is not busy any more; immediately if it is not busy or unknown."""
        try:
            transaction = self.get_transaction(transactional_id)
        except KafkaError:
            work()
            return
        if transaction.is_busy:
            transaction.add_waiter(work)
        else:
            work()

    def remove_waiter(self, transactional_id: str, work: Callable[[], None]) -> bool:
        """Cancel `add_waiter`; return whether `work` was still waiting."""
        try:
            return self.get_transaction(transactional_id).remove_waiter(work)
        except KafkaError:
            return False


def concurrent_transactions() -> KafkaError:
    """Return the error for a request while another transition of the id is pending: the client repeats it."""
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "Another transaction of this id is about to end.")


class TransactionWaiters(Protocol):
    """The queue of a waiting request: `TransactionStateManager`, or `AddPartitionsToTxnManager` for any coordinator."""

    def add_waiter(self, transactional_id: str, work: Callable[[], None]) -> None: ...
    def remove_waiter(self, transactional_id: str, work: Callable[[], None]) -> bool: ...


class ConcurrentTransactionRetry:
    """The attempts of one request that may arrive milliseconds before the producer's last transaction has ended.

    A response CONCURRENT_TRANSACTIONS would cost the producer more time (`retry.backoff.ms`,
    `add.partitions.to.txn.retry.backoff.ms`). Owned by the request and used on the loop's thread only.
    """

    def __init__(
        self,
        waiters: TransactionWaiters,
        loop: asyncio.AbstractEventLoop,
        transactional_id: str,
        *,
        attempt: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        """Call `attempt` each time that it may succeed, and `give_up` if no such time occurs within `WAIT_SECONDS`."""
        self._waiters = waiters
        self._loop = loop
        self._transactional_id = transactional_id
        self._attempt = attempt
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def wait(self) -> bool:
        """Schedule another attempt; return False if the time is over."""
        if self._is_over:
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(WAIT_SECONDS, self._on_timeout)
        self._waiters.add_waiter(self._transactional_id, self._attempt)
        return True

    def end(self) -> None:
        """End the attempts: the last one had another outcome."""
        if self._timer is not None:
            self._timer.cancel()
        self._release()

    def _on_timeout(self) -> None:
        self._is_over = True
        if self._waiters.remove_waiter(self._transactional_id, self._attempt):
            self._give_up()
            self._release()

    def _release(self) -> None:
        # The request refers to this object: its functions here would be a reference cycle.
        self._attempt = self._give_up = _do_nothing


def _do_nothing() -> None:
    """Replace a function that is not called any more."""

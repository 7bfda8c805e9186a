"""The transaction coordinator: which transactional ids are this broker's, and what is decided about them.

A transactional id belongs to the leader of one partition of `__transaction_state`, its *shard* here. Each decision is
a record there before anybody hears of it; memory follows the log. While a record is on its way, and while markers are
written, nothing else is decided about that id: CONCURRENT_TRANSACTIONS says "ask again".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError, ProtocolError
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ....protocol.room_logger import room_logger
from ...metadata.topic_names import TRANSACTION_STATE_TOPIC
from ...runtime.turns import EXPIRED_IDS, GROUPS, LOOKED_FOR_IDLE, Pace
from ..allowance import Allowance, Maker
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorLog
from ..coordinator_topic import CoordinatorTopic, TopicCreator
from ..latest_records import LatestRecords
from ..shards import Shard, Shards
from .completions import Completions, Markers
from .ends import end_v1, end_v2
from .forbearance import Forbearance
from .metadata import V1, V2, Place, TransactionMetadata, is_exhausted
from .records import read_transaction, read_transaction_key, transaction_entry, transaction_key
from .states import AT_REST, ENDING, TransactionState
from .transaction import HeldTransaction

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...metadata.metadata_cache import MetadataCache
    from ...metadata.producer_ids import ProducerIds
    from ...replication.replica_manager import ReplicaManager
    from ...runtime.ports import Ports

logger = room_logger("transactions")

TransactionShard = Shard[dict[str, HeldTransaction]]
Reply = Callable[[ErrorCode], None]


NOBODY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class TransactionCoordinator:
    """Kafka's TransactionCoordinator with its TransactionStateManager. Loop-thread only."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        producer_ids: ProducerIds,
        markers: Markers,
        version: Callable[[], int],
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`version` is the level of the feature `transaction.version`."""
        self._config = config
        self._producer_ids = producer_ids
        self._version = version
        self._now_ms = ports.now_ms
        self._loop = loop
        self._allowance = Allowance()
        self._log = CoordinatorLog(TRANSACTION_STATE_TOPIC, replica_manager, ports.now_ms, loop)
        self._shards: Shards[dict[str, HeldTransaction]] = Shards(
            self._log, loop, empty=dict, build=self._build, resume=self._resume, unload=self._unload
        )
        self.topic = CoordinatorTopic(
            TRANSACTION_STATE_TOPIC, metadata=metadata, controller=controller, loop=loop, on_created=self.start
        )
        self.find_coordinator = self.topic.find_coordinator
        self._completions = Completions(markers, metadata, loop, self._coordinator_epoch, self._store_completed)
        metadata.on_topics_removed.append(self._topics_removed)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the transactional ids of all partitions that this broker leads."""
        self._shards.start(self.topic.partition_count or 0)

    async def close(self) -> None:
        """Give all transactional ids up."""
        await self.topic.close()
        await self._shards.close()

    @property
    def is_loading(self) -> bool:
        """Whether some transactional ids are not known yet."""
        return self._shards.is_loading

    async def _build(self, records: LatestRecords) -> dict[str, HeldTransaction]:
        found: dict[str, HeldTransaction] = {}
        pace = Pace(GROUPS)
        for key, value in records.drain():
            try:
                transactional_id = read_transaction_key(key)
                if transactional_id is not None:
                    found[transactional_id] = HeldTransaction(
                        transactional_id, read_transaction(value), self._loop.time()
                    )
            except ProtocolError as error:
                logger.warning("a transactional id's record is skipped: %s", error)
            await pace.step()
        return found

    async def _resume(self, transactions: dict[str, HeldTransaction]) -> None:
        pace = Pace(GROUPS)
        for transaction in list(transactions.values()):
            if transaction.metadata.state in ENDING:
                self._completions.begin(transaction)
            await pace.step()

    def _unload(self, transactions: dict[str, HeldTransaction]) -> None:
        for transaction in transactions.values():
            transaction.is_unloaded = True
            transaction.told()
            self._allowance.gone(transaction.transactional_id)

    def _topics_removed(self, names: list[str]) -> None:
        if TRANSACTION_STATE_TOPIC in names:
            self._shards.clear()

    # -- where a transactional id is -------------------------------------------------------------------------------

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        """Raises KafkaError as `Shards.loaded`."""
        return self._shards.loaded(self.topic.partition_of(transactional_id))

    def find(self, transactional_id: str) -> HeldTransaction | None:
        """What is known of a transactional id; None if it is not known at all.

        Raises KafkaError INVALID_REQUEST for an empty one, and as `Shards.loaded`.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        return self._shard_of(transactional_id).state.get(transactional_id)

    def _known(self, transactional_id: str) -> HeldTransaction:
        """Raises KafkaError INVALID_PRODUCER_ID_MAPPING if it is not known, and as `find`."""
        transaction = self.find(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The transactional id has no producer id.")
        return transaction

    @property
    def transactions(self) -> Iterator[HeldTransaction]:
        """All transactional ids of this broker."""
        for shard in self._shards:
            if shard.is_loaded and shard.is_current:
                yield from list(shard.state.values())

    def _coordinator_epoch(self, transactional_id: str) -> int | None:
        """The epoch of the partition that the id belongs to; None if it is not this broker's any more."""
        index = self.topic.partition_of(transactional_id)
        partition = None if index is None else self._log.led(index)
        return None if partition is None else partition.leader_epoch

    # -- what producers ask for ------------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, maker: Maker
    ) -> ProducerIdentity:
        """InitProducerId: give a producer its id and epoch. Whoever had them before is fenced, its transaction aborted.

        `expected` is who it says it is (KIP-360). Raises KafkaError; CONCURRENT_TRANSACTIONS while another transaction
        of this id ends.
        """
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "The transaction timeout is not allowed.")
        transaction = self.find(transactional_id)
        spare = None
        if transaction is None or self._wants_new_id(transaction.metadata, expected):
            spare = await self._producer_ids.next_id()
            transaction = self.find(transactional_id)
        now_ms = self._now_ms()
        if transaction is None:
            transaction = self._add(transactional_id, spare, timeout_ms, maker)
        known = transaction.metadata
        if transaction.is_busy:
            raise _concurrent()
        if expected is not None and not _may_be(known, expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "Another producer has taken the transactional id over.")
        if known.state is TransactionState.ONGOING:
            error = await self._outcome(partial(self._abort, transaction))
            raise _concurrent() if error is ErrorCode.NONE else KafkaError(error, "The transaction is not aborted.")
        if self._wants_new_id(known, expected):
            if spare is None:
                raise _concurrent()  # it was another state before the wait
            new: TransactionMetadata | ErrorCode = known.with_new_id(
                spare, timeout_ms, now_ms, keep_last=expected is not None
            )
        else:
            new = known.with_next_epoch(timeout_ms, None if expected is None else expected.epoch, now_ms)
        if isinstance(new, ErrorCode):
            raise KafkaError(new, "Another producer has taken the transactional id over.")
        error = await self._outcome(partial(self._store, transaction, new))
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "The producer id could not be written down.")
        return ProducerIdentity(new.producer_id, new.producer_epoch)

    def _wants_new_id(self, known: TransactionMetadata, expected: ProducerIdentity | None) -> bool:
        """Whether the epochs of the producer id are used up, as its producer knows."""
        is_current = expected is None or expected.epoch == known.producer_epoch
        return known.state in AT_REST and known.is_exhausted and is_current

    def _add(self, transactional_id: str, spare: int | None, timeout_ms: int, maker: Maker) -> HeldTransaction:
        """A transactional id that nobody has used yet. Raises KafkaError POLICY_VIOLATION, CONCURRENT_TRANSACTIONS."""
        if spare is None:
            raise _concurrent()  # it was known before the wait, and has been forgotten meanwhile
        if not self._allowance.has_room(maker):
            self._make_room(maker)
        fresh = TransactionMetadata(
            producer_id=spare,
            producer_epoch=NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            update_ms=self._now_ms(),
        )
        transaction = HeldTransaction(transactional_id, fresh, self._loop.time())
        self._shard_of(transactional_id).state[transactional_id] = transaction
        self._allowance.made(transactional_id, maker)
        return transaction

    def _make_room(self, maker: Maker) -> None:
        """Forget ids that a client does not use. Raises KafkaError: CONCURRENT_TRANSACTIONS until they are gone,
        POLICY_VIOLATION if it uses them all.
        """
        looked_at = [one for name in self._allowance.next_of(maker, LOOKED_FOR_IDLE) if (one := self.find(name))]
        self._expire(looked_at)
        if any(one.is_changing for one in looked_at):
            raise _concurrent()
        if not self._allowance.has_room(maker):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "This client has as many transactional ids as it may.")

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        places: frozenset[Place],
        client_version: int,
        reply: Reply,
    ) -> None:
        """These partitions take part in the producer's transaction, which may begin by it; `reply` when it is durable.

        AddPartitionsToTxn, AddOffsetsToTxn, and what Produce and TxnOffsetCommit say without words.
        """
        try:
            transaction = self._known(transactional_id)
        except KafkaError as error:
            reply(error.code)
            return
        known = transaction.metadata
        if transaction.is_busy:
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif error_code := _refusal(known, identity):
            reply(error_code)
        elif known.state is TransactionState.ONGOING and places <= known.partitions:
            reply(ErrorCode.NONE)
        else:
            self._store(transaction, known.with_partitions(places, client_version, self._now_ms()), reply)

    def add_partitions_soon(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        places: frozenset[Place],
        client_version: int,
        reply: Reply,
    ) -> None:
        """As `add_partitions`, when the transaction before has ended if that is soon."""

        def attempt() -> None:
            self.add_partitions(transactional_id, identity, places, client_version, found)

        def found(error: ErrorCode) -> None:
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS or not patience.wait():
                patience.end()
                reply(error)

        patience = Forbearance(
            self,
            self._loop,
            transactional_id,
            attempt=attempt,
            give_up=partial(reply, ErrorCode.CONCURRENT_TRANSACTIONS),
        )
        attempt()

    def verify_partitions(
        self, transactional_id: str, identity: ProducerIdentity, places: frozenset[Place]
    ) -> dict[Place, ErrorCode]:
        """Whether each of these partitions is part of the producer's transaction (KIP-890). TRANSACTION_ABORTABLE if
        not.
        """
        try:
            known = self._known(transactional_id).metadata
        except KafkaError as error:
            return dict.fromkeys(places, error.code)
        if error_code := _refusal(known, identity):
            return dict.fromkeys(places, error_code)
        return {
            place: ErrorCode.NONE if place in known.partitions else ErrorCode.TRANSACTION_ABORTABLE for place in places
        }

    def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        wanted: TransactionState,
        ended: Callable[[ProducerIdentity | ErrorCode], None],
        *,
        client_version: int,
        spare: int = NO_PRODUCER_ID,
    ) -> None:
        """EndTxn: decide the transaction, PREPARE_COMMIT or PREPARE_ABORT; markers follow. `ended` is told once who the
        producer is from now on, with version 2 of the protocol, or the error; `spare` is for one without epochs left.
        """
        try:
            transaction = self._known(transactional_id)
        except KafkaError as error:
            ended(error.code)
            return
        known, is_v2 = transaction.metadata, client_version >= V2
        if is_v2 and transaction.is_busy:
            ended(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        outcome = (end_v2 if is_v2 else end_v1)(known, *identity, wanted)
        if transaction.is_busy and outcome not in _BEFORE_CONCURRENCY:
            ended(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif outcome is ErrorCode.NONE:
            ended(ProducerIdentity(known.producer_id, known.producer_epoch) if is_v2 else NOBODY)
        elif isinstance(outcome, ErrorCode):
            ended(outcome)
        else:
            new = known.ending(
                outcome, V2 if is_v2 else V1, spare if known.is_exhausted else NO_PRODUCER_ID, self._now_ms()
            )

            def stored(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    ended(_after(new) if is_v2 else NOBODY)
                else:
                    ended(error)

            self._store(transaction, new, stored, then=partial(self._completions.begin, transaction))

    # -- what nobody asks for --------------------------------------------------------------------------------------

    async def abort_timed_out(self) -> None:
        """Abort transactions that have been open for too long, with an epoch that their producers do not have."""
        now_ms, pace = self._now_ms(), Pace(GROUPS)
        for transaction in self.transactions:
            if not transaction.is_busy and transaction.is_timed_out(now_ms, self._loop.time()):
                logger.info("the transaction of %s is aborted, as its time is over", transaction.transactional_id)
                self._abort(transaction, partial(_log_failure, transaction.transactional_id))
            await pace.step()

    def _abort(self, transaction: HeldTransaction, reply: Reply) -> None:
        """Abort an open transaction against its producer."""
        new = transaction.metadata.fenced(V2 if self._version() >= V2 else V1, self._now_ms())
        self._store(transaction, new, reply, then=partial(self._completions.begin, transaction))

    async def expire(self) -> None:
        """Forget transactional ids that have not been used for `transactional.id.expiration.ms`."""
        since_ms, pace = self._now_ms() - self._config.transactional_id_expiration_ms, Pace(GROUPS)
        expired: list[HeldTransaction] = []
        for transaction in self.transactions:
            if transaction.metadata.update_ms <= since_ms:
                expired.append(transaction)
            if len(expired) >= EXPIRED_IDS:
                self._expire(expired)
                expired = []
            await pace.step()
        self._expire(expired)

    def _expire(self, transactions: list[HeldTransaction]) -> None:
        """Forget transactional ids without an open transaction."""
        by_partition: dict[int, list[HeldTransaction]] = {}
        for one in transactions:
            index = self.topic.partition_of(one.transactional_id)
            # What was given up since it was looked at may be in use again, and is another object then.
            is_idle = one.metadata.state in AT_REST and not one.is_busy and not one.is_unloaded
            if index is not None and is_idle:
                by_partition.setdefault(index, []).append(one)
        for index, gone in by_partition.items():
            for one in gone:
                one.is_changing = True
            self._log.append(
                index,
                [(transaction_key(one.transactional_id), None) for one in gone],
                partial(self._expired, gone),
                timeout_ms=self._config.request_timeout_ms,
            )

    def _expired(self, gone: list[HeldTransaction], outcome: ErrorCode) -> None:
        for one in gone:
            one.is_changing = False
            if outcome is ErrorCode.NONE and not one.is_unloaded:
                one.is_unloaded = True
                self._allowance.gone(one.transactional_id)
                self._shard_of(one.transactional_id).state.pop(one.transactional_id, None)
            one.told()

    def when_free(self, transactional_id: str, work: Callable[[], None]) -> None:
        """Do this once something can be decided about the id again; at once if it can now, or is not known here."""
        try:
            transaction = self._known(transactional_id)
        except KafkaError:
            work()
            return
        if transaction.is_busy:
            transaction.when_free(work)
        else:
            work()

    def no_longer(self, transactional_id: str, work: Callable[[], None]) -> bool:
        """Do not do this any more; whether it was still to be done."""
        try:
            return self._known(transactional_id).no_longer(work)
        except KafkaError:
            return False

    # -- the log ---------------------------------------------------------------------------------------------------

    async def _outcome(self, begin: Callable[[Reply], None]) -> ErrorCode:
        """What is replied."""
        replied: asyncio.Future[ErrorCode] = self._loop.create_future()

        def reply(error: ErrorCode) -> None:
            if not replied.done():
                replied.set_result(error)

        begin(reply)
        return await replied

    def _store_completed(self, transaction: HeldTransaction, reply: Reply) -> None:
        """All markers are written."""
        self._store(transaction, transaction.metadata.completed(self._now_ms()), reply)

    def _store(
        self,
        transaction: HeldTransaction,
        new: TransactionMetadata,
        reply: Reply,
        *,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Write down what becomes of a transactional id; it is so, and `then` is called, once that is durable.

        Who gets no outcome in time is told to ask again, and the id goes on changing: what the log says will count.
        """
        index = self.topic.partition_of(transaction.transactional_id)
        if index is None or transaction.is_unloaded:
            reply(ErrorCode.NOT_COORDINATOR)
            return
        transaction.is_changing = True
        is_answered = False

        def answer(error: ErrorCode) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                reply(error)

        def done(outcome: ErrorCode) -> None:
            transaction.is_changing = False
            if transaction.is_unloaded:
                answer(ErrorCode.NOT_COORDINATOR)
                return
            if outcome is ErrorCode.NONE:
                if transaction.metadata.state in AT_REST:
                    transaction.open_since = self._loop.time()
                transaction.metadata = new
            answer(_STORE_ERRORS.get(outcome, outcome))
            if outcome is ErrorCode.NONE and then is not None:
                self._loop.call_soon(then)  # behind the answer, which need not wait for markers
            transaction.told()

        self._log.append(
            index,
            [transaction_entry(transaction.transactional_id, new, self._version())],
            done,
            timeout_ms=new.timeout_ms,
            on_overdue=lambda: answer(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        )


def _may_be(known: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Whether a producer that says it is `expected` can be the one that is known, or was until its epochs ended."""
    if known.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == known.producer_id:
        return True
    return expected.producer_id == known.previous_id and is_exhausted(expected.epoch)


def _after(ending: TransactionMetadata) -> ProducerIdentity:
    """Who the producer is in its next transaction, by version 2 of the protocol."""
    if ending.next_id == NO_PRODUCER_ID:
        return ProducerIdentity(ending.producer_id, ending.producer_epoch)
    return ProducerIdentity(ending.next_id, 0)


def _refusal(known: TransactionMetadata, identity: ProducerIdentity) -> ErrorCode:
    """Why a producer may not add to the transaction; NONE if it may."""
    if known.producer_id != identity.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != identity.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state in ENDING else ErrorCode.NONE


def _concurrent() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "Another transaction of this id is about to end.")


def _log_failure(transactional_id: str, error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        logger.warning("the transaction of %s could not be aborted: %s", transactional_id, error.name)


_BEFORE_CONCURRENCY = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED)
"""Answers that do not depend on what is being decided."""

_STORE_ERRORS = {
    **WRITE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""What a producer is told when its state could not be written."""

"""The coordinators of all transactional ids, as the leaders of partitions see them (KIP-890).

This broker's own is asked at once, those on other brokers by AddPartitionsToTxn, many transactions in a request, as in
Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError, code_of
from ....protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.topic_partition import TopicPartition, indexes_by_topic
from ...runtime.turns import ASKED_TRANSACTIONS
from .broker_queues import BrokerQueues
from .coordinator import TransactionCoordinator
from .metadata import Place

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache
    from ...runtime.ports import Ask

LOWEST_VERSION = 4
"""Of AddPartitionsToTxn: the first for several transactions, and to ask about them."""
RETRY_SECONDS = 0.02
"""How long before another broker is asked again whether the transaction before has ended
(`add.partitions.to.txn.retry.backoff.ms`).
"""

Found = Callable[[dict[Place, ErrorCode]], None]


class _Question(NamedTuple):
    transactional_id: str
    identity: ProducerIdentity
    places: frozenset[Place]
    is_verification: bool
    found: Found


class OtherCoordinators:
    """Those on other brokers. Loop-thread only."""

    def __init__(self, broker_id: int, metadata: MetadataCache, ask: Ask, loop: asyncio.AbstractEventLoop) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._loop = loop
        self._queues: BrokerQueues[_Question] = BrokerQueues(
            ask, loop, lowest=LOWEST_VERSION, request=_request, answered=_answered
        )
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    async def close(self) -> None:
        """Nobody is asked any more."""
        for timer in self._timers.values():
            timer.cancel()
        await self._queues.close()

    def leader(self, partition: TopicPartition) -> int | None:
        """The broker that coordinates a partition's ids, -1 if none does; None if it is this one."""
        image = self._metadata.partition(partition)
        leader = -1 if image is None else image.leader
        return None if leader == self._broker_id else leader

    def ask(self, broker_id: int, question: _Question) -> None:
        """Its answer, COORDINATOR_NOT_AVAILABLE if there is none."""
        if broker_id < 0:
            question.found(dict.fromkeys(question.places, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._queues.add(broker_id, question)

    def soon(self, work: Callable[[], None]) -> None:
        """Do this when things may have changed there."""

        def due() -> None:
            del self._timers[work]
            work()

        self._timers[work] = self._loop.call_later(RETRY_SECONDS, due)

    def no_longer(self, work: Callable[[], None]) -> bool:
        """Do not do this any more; whether it was still to be done."""
        timer = self._timers.pop(work, None)
        if timer is not None:
            timer.cancel()
        return timer is not None


class TransactionCoordinators:
    """Loop-thread only."""

    def __init__(self, here: TransactionCoordinator, elsewhere: OtherCoordinators | None) -> None:
        """A broker alone has nobody to ask `elsewhere`."""
        self._here = here
        self._elsewhere = elsewhere

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        places: frozenset[Place],
        client_version: int,
        found: Found,
    ) -> None:
        """As `TransactionCoordinator.add_partitions`, of any id."""
        if not self._asked_elsewhere(_Question(transactional_id, identity, places, False, found)):
            self._here.add_partitions(
                transactional_id, identity, places, client_version, lambda error: found(dict.fromkeys(places, error))
            )

    def verify_partitions(
        self, transactional_id: str, identity: ProducerIdentity, places: frozenset[Place], found: Found
    ) -> None:
        """As `TransactionCoordinator.verify_partitions`, of any id."""
        if not self._asked_elsewhere(_Question(transactional_id, identity, places, True, found)):
            found(self._here.verify_partitions(transactional_id, identity, places))

    def when_free(self, transactional_id: str, work: Callable[[], None]) -> None:
        """Do this once something can be decided about the id again, or it is worth a look."""
        if self._elsewhere is None or self._leader(transactional_id) is None:
            self._here.when_free(transactional_id, work)
        else:
            self._elsewhere.soon(work)

    def no_longer(self, transactional_id: str, work: Callable[[], None]) -> bool:
        """Do not do this any more; whether it was still to be done."""
        if self._elsewhere is not None and self._elsewhere.no_longer(work):
            return True
        return self._here.no_longer(transactional_id, work)

    def _leader(self, transactional_id: str) -> int | None:
        """The broker that coordinates an id, if it is another one."""
        index = self._here.topic.partition_of(transactional_id)
        if self._elsewhere is None or index is None:
            return None
        return self._elsewhere.leader(TopicPartition(self._here.topic.name, index))

    def _asked_elsewhere(self, question: _Question) -> bool:
        leader = self._leader(question.transactional_id)
        if self._elsewhere is None or leader is None:
            return False
        self._elsewhere.ask(leader, question)
        return True


def _request(waiting: deque[_Question]) -> tuple[list[_Question], AddPartitionsToTxnRequest]:
    """The next ones, of each transactional id one."""
    taken: dict[str, _Question] = {}
    while waiting and len(taken) < ASKED_TRANSACTIONS and waiting[0].transactional_id not in taken:
        taken[waiting[0].transactional_id] = waiting[0]
        waiting.popleft()
    questions = list(taken.values())
    return questions, AddPartitionsToTxnRequest(transactions=[_transaction(one) for one in questions])


def _transaction(one: _Question) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=one.transactional_id,
        producer_id=one.identity.producer_id,
        producer_epoch=one.identity.epoch,
        verify_only=one.is_verification,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in indexes_by_topic(one.places).items()
        ],
    )


def _answered(asked: Sequence[_Question], response: AddPartitionsToTxnResponse | KafkaError) -> None:
    error = response.code if isinstance(response, KafkaError) else code_of(response.error_code)
    if isinstance(response, KafkaError) or error is not ErrorCode.NONE:
        for one in asked:
            one.found(dict.fromkeys(one.places, _told(one, error)))
        return
    outcomes = {
        (transaction.transactional_id, topic.name, result.partition_index): code_of(result.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    }
    for one in asked:
        name = one.transactional_id
        one.found({place: outcomes.get((name, *place), ErrorCode.UNKNOWN_SERVER_ERROR) for place in one.places})


def _told(asked: _Question, error: ErrorCode) -> ErrorCode:
    """The error for each partition where the coordinator has not answered, or has refused the whole request."""
    if error is ErrorCode.UNSUPPORTED_VERSION:
        # An older Kafka: its producers are not verified by anybody.
        return ErrorCode.NONE if asked.is_verification else error
    # That this broker may not ask is nothing that its clients could do about.
    is_refused = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TXN_STATE if is_refused else ErrorCode.COORDINATOR_NOT_AVAILABLE

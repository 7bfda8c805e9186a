"""What a producer appends in a transaction, on partitions that its coordinator knows to be part of it (KIP-890).

Producers of version 2 of the protocol do not name their partitions beforehand: by appending they add them. For others
it is asked whether they did. Either is done once for each partition and transaction; where a transaction is open
already, an append is what it is for everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.producer_identity import ProducerIdentity
from ...replication.postponed_appends import AppendEntry, kept
from ...replication.verified_producers import transactional_header
from .coordinators import TransactionCoordinators
from .forbearance import Forbearance
from .metadata import V2, Place

if TYPE_CHECKING:
    from ...replication.delayed_produce import AppendCallback, AppendResult
    from ...replication.replica_manager import ReplicaManager
    from ...replication.verified_producers import Admission

Enlisted = Callable[[dict[Place, ErrorCode]], None]
"""Called with the partitions that are refused, and why."""
Append = Callable[[list[AppendEntry], "AppendCallback"], None]


class Manner(Enum):
    """What a version of Produce or TxnOffsetCommit means, and what can be answered to it."""

    VERIFIED = auto()
    VERIFIED_ABORTABLE = auto()
    """It knows the error TRANSACTION_ABORTABLE."""
    ADDING = auto()

    @classmethod
    def of(cls, version: int, first_abortable: int) -> Manner:
        """By the API's version and the one that first knew TRANSACTION_ABORTABLE; the next one adds partitions."""
        if version > first_abortable:
            return cls.ADDING
        return cls.VERIFIED_ABORTABLE if version == first_abortable else cls.VERIFIED


class Enlistment:
    """Loop-thread only."""

    def __init__(
        self, coordinators: TransactionCoordinators, replica_manager: ReplicaManager, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._coordinators = coordinators
        self._replicas = replica_manager
        self._verified = replica_manager.verified
        self._loop = loop

    def produce(
        self,
        transactional_id: str,
        manner: Manner,
        entries: list[AppendEntry],
        append: Append,
        callback: AppendCallback,
    ) -> None:
        """`append` what belongs to the producer's transaction; `callback` gets a result for each entry, in order.

        Kafka's ReplicaManager.handleProduceAppend.
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
        waiting = _WaitingAppend(entries, append, callback, manner)
        self.enlist(transactional_id, identity, wanted, manner, waiting.go_on)
        waiting.keep_records()

    def enlist(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        wanted: dict[Place, int],
        manner: Manner,
        enlisted: Enlisted,
    ) -> None:
        """Have the partitions be part of the producer's transaction, each with the sequence of its batch there.

        `enlisted` may be told at once. What it appends then, before anything else happens, will be taken.
        """
        errors: dict[Place, ErrorCode] = {}
        if manner is not Manner.ADDING and not self._verified.is_needed():
            enlisted(errors)
            return
        places = frozenset(self._not_open(identity, wanted, manner, errors))
        if not places:
            enlisted(errors)
            return
        asking = _Asking(
            self._coordinators,
            self._replicas,
            self._loop,
            transactional_id=transactional_id,
            identity=identity,
            places=places,
            manner=manner,
        )

        def found(refused: dict[Place, ErrorCode]) -> None:
            enlisted(errors | refused)

        asking.ask(found)

    def _not_open(
        self, identity: ProducerIdentity, wanted: dict[Place, int], manner: Manner, errors: dict[Place, ErrorCode]
    ) -> Iterable[Place]:
        """Partitions led here on which the producer has no transaction open yet."""
        for place, sequence in wanted.items():
            partition = self._replicas.find(*place)
            if partition is None or not partition.is_leader or partition.is_offline:
                continue  # whoever appends finds out
            if self._verified.is_open(partition, *identity):
                continue
            if manner is Manner.ADDING and sequence > 0 and self._verified.is_first(partition, identity.producer_id):
                # With an epoch a transaction it begins at sequence 0.
                errors[place] = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                yield place


class _Asking:
    """A coordinator being asked, when the transaction before has ended if that is soon."""

    def __init__(
        self,
        coordinators: TransactionCoordinators,
        replica_manager: ReplicaManager,
        loop: asyncio.AbstractEventLoop,
        *,
        transactional_id: str,
        identity: ProducerIdentity,
        places: frozenset[Place],
        manner: Manner,
    ) -> None:
        self._coordinators = coordinators
        self._replicas = replica_manager
        self._transactional_id = transactional_id
        self._identity = identity
        self._places = places
        self._manner = manner
        self._admissions: dict[Place, Admission] = {}
        self._done: Enlisted | None = None
        self._patience = Forbearance(coordinators, loop, transactional_id, attempt=self._try, give_up=self._too_early)

    def ask(self, done: Enlisted) -> None:
        """To be asked once; `done` is told what is refused, and why."""
        self._done = done
        self._try()

    def _try(self) -> None:
        # With each attempt anew: a marker of the transaction before takes back what was asked for until then.
        for place in self._places:
            partition = self._replicas.find(*place)
            if partition is not None:
                self._admissions[place] = self._replicas.verified.ask(partition, *self._identity)
        if self._manner is Manner.ADDING:
            self._coordinators.add_partitions(self._transactional_id, self._identity, self._places, V2, self._found)
        else:
            self._coordinators.verify_partitions(self._transactional_id, self._identity, self._places, self._found)

    def _found(self, found: dict[Place, ErrorCode]) -> None:
        is_early = self._manner is Manner.ADDING and ErrorCode.CONCURRENT_TRANSACTIONS in found.values()
        if is_early and self._patience.wait():
            return
        self._patience.end()
        self._finish(found)

    def _too_early(self) -> None:
        self._finish(dict.fromkeys(self._places, ErrorCode.CONCURRENT_TRANSACTIONS))

    def _finish(self, found: dict[Place, ErrorCode]) -> None:
        """Admit what is in order, and tell of the rest."""
        refused: dict[Place, ErrorCode] = {}
        for place, admission in self._admissions.items():
            error = found[place]
            if error is ErrorCode.NONE:
                admission.is_given = True
                continue
            self._replicas.verified.refuse(place, self._identity.producer_id, admission)
            refused[place] = _TOLD.get(error, error)
            if self._manner is Manner.VERIFIED and error is ErrorCode.TRANSACTION_ABORTABLE:
                refused[place] = ErrorCode.INVALID_TXN_STATE
        if self._done is not None:
            self._done(refused)


class _WaitingAppend:
    """A Produce request that goes on once its partitions are part of the transaction."""

    def __init__(self, entries: list[AppendEntry], append: Append, callback: AppendCallback, manner: Manner) -> None:
        self._entries = entries
        self._append = append
        self._callback = callback
        self._manner = manner
        self._is_done = False

    def keep_records(self) -> None:
        """Copy what is not appended yet out of the connection's buffer."""
        if not self._is_done:
            self._entries = [kept(entry) for entry in self._entries]

    def go_on(self, errors: dict[Place, ErrorCode]) -> None:
        """Append all but what is in error."""
        self._is_done = True
        if not errors:
            self._append(self._entries, self._callback)
            return
        failed = {place: self._told(error) for place, error in errors.items()}
        good = [entry for entry in self._entries if entry[:2] not in failed]
        places = [entry[:2] for entry in self._entries]

        def respond(results: list[AppendResult]) -> None:
            others = iter(results)
            self._callback([failed[place] if place in failed else next(others) for place in places])

        self._append(good, respond)

    def _told(self, error: ErrorCode) -> KafkaError:
        """The error in words that make a producer do what helps: older ones send the records again."""
        if error is ErrorCode.INVALID_TXN_STATE:
            return KafkaError(error, "Partition was not added to the transaction")
        is_retried = error in _RETRIED or (
            error is ErrorCode.CONCURRENT_TRANSACTIONS and self._manner is not Manner.ADDING
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

_TOLD = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
"""Who appends is told in the words of Produce."""

"""Guards that let a producer begin a transaction on a partition only after its coordinator has verified it (KIP-890).

Without verification a delayed batch could begin a transaction after its own transaction has ended, and that
transaction would never end. A batch of a transaction that is open on the partition needs no verification. Kafka's
VerificationGuard and VerificationStateEntry.

A verification belongs to the log, as in Kafka, and not to a leader epoch: a new epoch of the same leader keeps it. It
ends with the marker of its transaction, and when this broker begins to follow another leader, which may receive that
marker. A request whose verification has ended before its records are appended verifies again, or its producer receives
a retriable error; only the coordinator decides that a batch is not part of a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.batch_header import ATTRIBUTES_POSITION, HEADER_SIZE, TRANSACTIONAL_MASK, BatchHeader
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record import MAGIC_POSITION

if TYPE_CHECKING:
    from collections.abc import Callable

    from .partition import Partition

ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1


class VerificationState:
    """The verification of one producer epoch on one partition, from the request to the coordinator on."""

    __slots__ = ("is_verified", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.is_verified = False
        """Whether the coordinator has confirmed that the partition is part of the transaction."""


def transactional_header(records: memoryview) -> BatchHeader | None:
    """Return the header of a batch of format v2 that is part of a transaction, else None."""
    if len(records) <= ATTRIBUTES_LOW_BYTE or not records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK:
        return None
    if records[MAGIC_POSITION] != 2 or len(records) < HEADER_SIZE:
        return None
    return BatchHeader.read(records)


class VerificationGuards:
    """The verification states of all partitions of this broker. Owned by the ReplicaManager; runs on the event loop.

    Their number is bounded by the partitions in open transactions: a state is removed with the marker of its
    transaction.
    """

    def __init__(self, is_needed: Callable[[], bool]) -> None:
        """`is_needed` returns whether verification is enabled: `transaction.partition.verification.enable`."""
        self.is_needed = is_needed
        self._states: dict[tuple[str, int], dict[int, VerificationState]] = {}

    def has_open_transaction(self, partition: Partition, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction on the partition."""
        entry = partition.log.producer_state.producers.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch
        )

    def is_new_producer(self, partition: Partition, producer_id: int) -> bool:
        """Whether the partition has no state of the producer."""
        return producer_id not in partition.log.producer_state.producers

    def begin_verification(self, partition: Partition, producer_id: int, producer_epoch: int) -> VerificationState:
        """Return the state of a request to the coordinator, whose response counts while the state `is_current`."""
        states = self._states.setdefault(partition.topic_partition, {})
        known = states.get(producer_id)
        if known is not None and known.producer_epoch == producer_epoch:
            return known
        asked = VerificationState(producer_epoch)
        # A delayed request of an earlier epoch does not replace the state of the current epoch.
        if known is None or known.producer_epoch < producer_epoch:
            states[producer_id] = asked
        return asked

    def is_current(self, topic_partition: tuple[str, int], producer_id: int, asked: VerificationState) -> bool:
        """Whether no marker and no other leader has ended the state since the request to the coordinator."""
        return self._states.get(topic_partition, {}).get(producer_id) is asked

    def discard(self, topic_partition: tuple[str, int], producer_id: int, asked: VerificationState) -> None:
        """Remove a state that the coordinator has refused or not answered."""
        if not asked.is_verified and self.is_current(topic_partition, producer_id, asked):
            self.remove(topic_partition, producer_id)

    def check(self, partition: Partition, records: memoryview, *, in_transaction: bool) -> None:
        """Raise KafkaError for a client's batch that would begin a transaction without a verification.

        NOT_ENOUGH_REPLICAS, which is retriable: the coordinator had verified the transaction, and a marker or another
        leader has ended the verification while the records waited for their validation.
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a request without a transactional id.
        """
        header = transactional_header(records)
        if header is not None and not in_transaction:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Records of a transaction need a transactional id"
            )
        if header is None or self.has_open_transaction(partition, header.producer_id, header.producer_epoch):
            return
        state = self._states.get(partition.topic_partition, {}).get(header.producer_id)
        if state is not None and state.is_verified and state.producer_epoch == header.producer_epoch:
            return
        if not self.is_needed():
            return
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, "The verification of the transaction has ended. Send the records again."
        )

    def remove_partition(self, topic_partition: tuple[str, int]) -> None:
        """Remove all states of a partition."""
        self._states.pop(topic_partition, None)

    def end_transaction(self, topic_partition: tuple[str, int], producer_id: int, producer_epoch: int) -> None:
        """Remove the state of a transaction whose marker is written, unless its producer epoch is later."""
        state = self._states.get(topic_partition, {}).get(producer_id)
        if state is not None and state.producer_epoch <= producer_epoch:
            self.remove(topic_partition, producer_id)

    def remove(self, topic_partition: tuple[str, int], producer_id: int) -> None:
        """Remove the state of a producer on a partition."""
        states = self._states.get(topic_partition)
        if states is not None and states.pop(producer_id, None) is not None and not states:
            del self._states[topic_partition]

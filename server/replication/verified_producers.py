"""Who may begin a transaction on a partition: a producer whose coordinator has just said that it is part of one.

Without that a batch that was long on its way could begin a transaction after the one it belongs to has ended, and
nobody would ever end it (KIP-890, Kafka's VerificationGuard). Whoever has a transaction open there already needs no
such word. It is taken back when a marker is written, and worth nothing under another leader epoch.
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


class Admission:
    """What a producer's coordinator is asked, or has said, under which leader epoch of the partition."""

    __slots__ = ("is_given", "leader_epoch", "producer_epoch")

    def __init__(self, producer_epoch: int, leader_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.leader_epoch = leader_epoch
        self.is_given = False
        """Whether the coordinator has said so."""

    def allows(self, producer_epoch: int, leader_epoch: int) -> bool:
        """Whether an append may begin a transaction by it."""
        return self.is_given and self.is_for(producer_epoch, leader_epoch)

    def is_for(self, producer_epoch: int, leader_epoch: int) -> bool:
        """Whether that is what it is about."""
        return (self.producer_epoch, self.leader_epoch) == (producer_epoch, leader_epoch)


def transactional_header(records: memoryview) -> BatchHeader | None:
    """The header of a batch of format v2 that is part of a transaction; None for anything else."""
    if len(records) <= ATTRIBUTES_LOW_BYTE or not records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK:
        return None
    if records[MAGIC_POSITION] != 2 or len(records) < HEADER_SIZE:
        return None
    return BatchHeader.read(records)


class VerifiedProducers:
    """The admissions of all partitions of this broker. Loop-thread only.

    There are never more than coordinators know of partitions in open transactions: what was admitted is used, or else
    forgotten with the marker that ends the transaction.
    """

    def __init__(self, is_needed: Callable[[], bool]) -> None:
        """`is_needed` says whether `transaction.partition.verification.enable` is on."""
        self.is_needed = is_needed
        self._admitted: dict[tuple[str, int], dict[int, Admission]] = {}

    def is_open(self, partition: Partition, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open there."""
        entry = partition.log.producer_state.producers.get(producer_id)
        return (
            entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch
        )

    def is_first(self, partition: Partition, producer_id: int) -> bool:
        """Whether nothing is known there of what the producer has written before."""
        return producer_id not in partition.log.producer_state.producers

    def ask(self, partition: Partition, producer_id: int, producer_epoch: int) -> Admission:
        """Its coordinator is being asked: what it says is worth nothing if a marker is written meanwhile."""
        admitted = self._admitted.setdefault(partition.topic_partition, {})
        known = admitted.get(producer_id)
        if known is None or not known.is_for(producer_epoch, partition.leader_epoch):
            known = admitted[producer_id] = Admission(producer_epoch, partition.leader_epoch)
        return known

    def refuse(self, place: tuple[str, int], producer_id: int, asked: Admission) -> None:
        """Its coordinator says otherwise, or nothing."""
        if not asked.is_given and self._admitted.get(place, {}).get(producer_id) is asked:
            self.forget(place, producer_id)

    def check(self, partition: Partition, records: memoryview, *, in_transaction: bool) -> None:
        """Raises KafkaError for a client's batch that would begin a transaction on its own: INVALID_TXN_STATE.

        TRANSACTIONAL_ID_AUTHORIZATION_FAILED if it has not said by which transactional id it writes.
        """
        header = transactional_header(records)
        if header is not None and not in_transaction:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Records of a transaction without its id")
        if header is None or self.is_open(partition, header.producer_id, header.producer_epoch):
            return
        admission = self._admitted.get(partition.topic_partition, {}).get(header.producer_id)
        if admission is not None and admission.allows(header.producer_epoch, partition.leader_epoch):
            return
        if not self.is_needed():
            return
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def forget_partition(self, place: tuple[str, int]) -> None:
        """The partition is not here any more."""
        self._admitted.pop(place, None)

    def forget(self, place: tuple[str, int], producer_id: int) -> None:
        """A transaction of the producer has begun there, or ended."""
        admitted = self._admitted.get(place)
        if admitted is not None and admitted.pop(producer_id, None) is not None and not admitted:
            del self._admitted[place]

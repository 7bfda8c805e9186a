"""How the controller gives its orders to the brokers that hold replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..replication.partition_order import PartitionOrder
from ..runtime.turns import ORDERS, Pace

if TYPE_CHECKING:
    from ..metadata.metadata_cache import TopicImage
    from ..metadata.znodes import BrokerRegistration

NO_EPOCH = -1
"""In the place of a leader epoch: whatever it is."""
EPOCH_DURING_DELETION = -2
"""In the place of a leader epoch: the topic is being deleted, newer than any leader."""


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """What brokers that are not the controller are to believe from now on, beside what they believe already."""

    brokers: tuple[BrokerRegistration, ...]
    """All that are alive."""
    topics: tuple[TopicImage, ...] = ()
    """With those of their partitions alone that have changed."""
    removed: tuple[TopicImage, ...] = ()
    """With the partitions that are being deleted."""


class OrderAnswers(Protocol):
    """Who hears what other brokers answer. Called on the loop; must not wait."""

    def replicas_failed_at(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """A broker cannot serve these: their log directory has failed."""
        ...

    def replicas_stopped_at(self, broker_id: int, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """What became of replicas that were to be deleted."""
        ...

    def term_in_doubt(self) -> None:
        """A broker knows a newer controller."""
        ...


class ReplicaChannel(Protocol):
    """Orders to one broker, carried out in the order they were given; each is answered with an error code.

    What this broker is told is done when a method returns. What others are told is on its way: nothing is returned for
    it, and their answers come to the controller as events of their own.
    """

    @property
    def others(self) -> Collection[int]:
        """The other brokers that can be told something."""
        ...

    def begin(self, controller_epoch: int, answers: OrderAnswers) -> None:
        """A term of this broker as controller begins."""
        ...

    def end(self) -> None:
        """The term is over: what is on its way is not repeated, and nobody hears of answers."""
        ...

    def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """These are alive; what was meant for others, or for earlier runs of these, is given up."""
        ...

    async def leader_and_isr(
        self, broker_id: int, orders: Sequence[PartitionOrder]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes a broker leader or follower of partitions."""
        ...

    async def stop_replicas(
        self, broker_id: int, leader_epochs: Mapping[TopicPartition, int], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes a broker give up replicas; with `delete` their logs are gone when this is answered."""
        ...

    def update_metadata(self, broker_ids: Collection[int], update: MetadataUpdate) -> None:
        """Tells other brokers what to believe of the cluster."""
        ...

    async def heard(self, seconds: float) -> None:
        """Returns when the others have answered all that they were told so far, or are gone, or after so long."""
        ...


class LocalReplicas(Protocol):
    """The part of the replica manager that the controller's orders need."""

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Makes the folders of new partitions all at once, off the loop."""
        ...

    def become_leader(self, order: PartitionOrder) -> None:
        """Leads the partition from now on. Raises KafkaError, OSError."""
        ...

    async def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None: ...


WhileDeleting: TypeAlias = Callable[[TopicPartition], AbstractAsyncContextManager[None]]
"""Keeps others away from a log while it is deleted."""


def nothing_else(partition: TopicPartition) -> AbstractAsyncContextManager[None]:
    """There is nobody to keep away."""
    return nullcontext()


class LocalReplicaChannel:
    """Orders to the only broker there is: this one."""

    others: Collection[int] = ()

    def begin(self, controller_epoch: int, answers: OrderAnswers) -> None:
        """Everything is answered at once: nobody need hear of it later."""

    def end(self) -> None:
        """Nothing is on its way."""

    def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """There is no way to others."""

    def __init__(self, broker_id: int, replicas: LocalReplicas, deleting: WhileDeleting = nothing_else) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._deleting = deleting

    async def leader_and_isr(
        self, broker_id: int, orders: Sequence[PartitionOrder]
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert broker_id == self._broker_id, f"no way to broker {broker_id}"
        results = {}
        await self._replicas.prepare_logs({order.topic_partition: order.topic_id for order in orders if order.is_new})
        pace = Pace(ORDERS)
        for order in orders:
            results[order.topic_partition] = carry_out(self._replicas.become_leader, order)
            await pace.step()
        return results

    async def stop_replicas(
        self, broker_id: int, leader_epochs: Mapping[TopicPartition, int], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert broker_id == self._broker_id, f"no way to broker {broker_id}"
        return await stop_here(self._replicas, leader_epochs, self._deleting if delete else None)

    def update_metadata(self, broker_ids: Collection[int], update: MetadataUpdate) -> None:
        assert not broker_ids, f"no way to brokers {broker_ids}"

    async def heard(self, seconds: float) -> None:
        """There are no others."""


def carry_out(become: Callable[[PartitionOrder], None], order: PartitionOrder) -> ErrorCode:
    """Makes this broker leader or follower of one partition."""
    try:
        become(order)
    except KafkaError as error:
        return error.code
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


async def stop_here(
    replicas: LocalReplicas, partitions: Iterable[TopicPartition], deleting: WhileDeleting | None
) -> dict[TopicPartition, ErrorCode]:
    """Makes this broker give up partitions, with their logs if `deleting` keeps others away from them."""
    results, pace = {}, Pace()
    for partition in partitions:
        await pace.step()
        try:
            async with nullcontext() if deleting is None else deleting(partition):
                await replicas.stop_replica(partition, delete=deleting is not None)
        except KafkaError as error:
            results[partition] = error.code
        except OSError:
            results[partition] = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            results[partition] = ErrorCode.NONE
    return results

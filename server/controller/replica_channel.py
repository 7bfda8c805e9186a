"""How the controller gives its orders to the brokers that hold replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..runtime.turns import ORDERS, Pace


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The order for one partition: who leads it, with whom, in which epoch."""

    partition: TopicPartition
    topic_id: UUID
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_new: bool


class ReplicaChannel(Protocol):
    """Orders to one broker, carried out in the order they were given; each is answered with an error code."""

    async def leader_and_isr(
        self, broker_id: int, orders: Sequence[LeaderAndIsr]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes a broker leader or follower of partitions."""
        ...

    async def stop_replicas(
        self, broker_id: int, partitions: Sequence[TopicPartition], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes a broker give up replicas; with `delete` their logs are gone when this returns."""
        ...


class LocalReplicas(Protocol):
    """The part of the replica manager that the controller's orders need."""

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Makes the folders of new partitions all at once, off the loop."""
        ...

    def become_leader(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        is_new: bool,
    ) -> None:
        """Leads the partition from now on."""
        ...

    async def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Gives the partition up."""
        ...


WhileDeleting: TypeAlias = Callable[[TopicPartition], AbstractAsyncContextManager[None]]
"""Keeps others away from a log while it is deleted."""


def _nothing_else(partition: TopicPartition) -> AbstractAsyncContextManager[None]:
    return nullcontext()


class LocalReplicaChannel:
    """Orders to the only broker there is: this one."""

    def __init__(self, broker_id: int, replicas: LocalReplicas, deleting: WhileDeleting = _nothing_else) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._deleting = deleting

    async def leader_and_isr(
        self, broker_id: int, orders: Sequence[LeaderAndIsr]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes this broker lead the partitions."""
        assert broker_id == self._broker_id, f"no way to broker {broker_id}"
        results = {}
        await self._replicas.prepare_logs({order.partition: order.topic_id for order in orders if order.is_new})
        pace = Pace(ORDERS)
        for order in orders:
            results[order.partition] = self._lead(order)
            await pace.step()
        return results

    def _lead(self, order: LeaderAndIsr) -> ErrorCode:
        try:
            self._replicas.become_leader(
                order.partition,
                topic_id=order.topic_id,
                leader_epoch=order.leader_epoch,
                partition_epoch=order.partition_epoch,
                replicas=order.replicas,
                isr=order.isr,
                is_new=order.is_new,
            )
        except KafkaError as error:
            return error.code
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    async def stop_replicas(
        self, broker_id: int, partitions: Sequence[TopicPartition], *, delete: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Makes this broker give the partitions up."""
        assert broker_id == self._broker_id, f"no way to broker {broker_id}"
        results = {}
        for partition in partitions:
            try:
                async with self._deleting(partition) if delete else nullcontext():
                    await self._replicas.stop_replica(partition, delete=delete)
            except KafkaError as error:
                results[partition] = error.code
            except OSError:
                results[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                results[partition] = ErrorCode.NONE
        return results

"""Which partitions are to go back to their preferred leaders (Kafka's auto.leader.rebalance)."""

from __future__ import annotations

from collections.abc import Container

from ...protocol.topic_partition import TopicPartition
from .context import ControllerContext


def imbalanced(context: ControllerContext, percentage: int, moving: Container[TopicPartition]) -> list[TopicPartition]:
    """The partitions that should go back, of brokers for which others lead more than `percentage` of theirs."""
    preferred: dict[int, list[TopicPartition]] = {}
    for partition in context.partitions():
        if not context.is_doomed(partition):
            preferred.setdefault(context.replicas(partition)[0], []).append(partition)
    wanted: list[TopicPartition] = []
    for broker, partitions in preferred.items():
        led_elsewhere = [one for one in partitions if _leader(context, one) != broker]
        if len(led_elsewhere) * 100 > percentage * len(partitions):
            wanted += [one for one in led_elsewhere if one not in moving and _could_lead(context, one, broker)]
    return wanted


def _leader(context: ControllerContext, partition: TopicPartition) -> int | None:
    state = context.state(partition)
    return None if state is None else state.leader


def _could_lead(context: ControllerContext, partition: TopicPartition, broker: int) -> bool:
    state = context.state(partition)
    return state is not None and broker in state.isr and broker in context.live_replicas(partition)

"""Kafka's CopartitionedTopicsEnforcer: equal numbers of partitions for topics that are joined. No I/O, no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .topic_configuration_error import Status, TopicConfigurationError


class CopartitionedTopicsEnforcer:
    """The check of a topology's copartition groups, one after the other."""

    def __init__(self, fixed: frozenset[str], flexible: frozenset[str], partition_count: Callable[[str], int]) -> None:
        """Take the repartition topics of the topology with a number of partitions (`fixed`) and without one."""
        self._fixed, self._flexible = fixed, flexible
        self._partition_count = partition_count
        # Computed once: a large topology may have thousands of groups, and the numbers of these topics do not change.
        self._fixed_counts = frozenset(map(partition_count, fixed))

    def enforce(self, copartitioned: frozenset[str]) -> dict[str, int]:
        """Return the number of partitions of each repartition topic in one copartition group.

        Raises TopicConfigurationError if topics that are not flexible have different numbers.
        """
        if not copartitioned:
            return {}
        counts = {name: self._partition_count(name) for name in sorted(copartitioned)}
        repartition = {name: count for name, count in counts.items() if name in self._fixed or name in self._flexible}
        others = {name: count for name, count in counts.items() if name not in repartition}
        if others:
            count = _only_count(frozenset(others.values()), others)
        elif self._fixed:
            # As in Kafka, all topics with a fixed number must have the same one, also the topics of other groups.
            count = _only_count(self._fixed_counts, repartition)
        else:
            count = max(repartition.values())
        for name, own in repartition.items():
            if name in self._fixed and own != count:
                raise TopicConfigurationError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                    f"[{count}] of the source topic.",
                )
        return dict.fromkeys(repartition, count)


def _only_count(counts: frozenset[int], named: Mapping[str, int]) -> int:
    """Return the only number of partitions. Raises TopicConfigurationError, which lists the topics in `named`."""
    if len(counts) > 1:
        listed = ", ".join(f"{name}={count}" for name, count in sorted(named.items()))
        raise TopicConfigurationError(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(counts))

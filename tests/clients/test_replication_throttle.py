"""Throttles of reassignments next to others that are in progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from barnabas.clients.admin import Admin, ConfigChange, ConfigResource
from barnabas.clients.admin.reassignments import PartitionReassignment
from barnabas.clients.replication_throttle import FOLLOWERS, LEADERS, throttle_reassignment
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.topic_partition import TopicPartition


class MovingCluster:
    """A cluster in which partition 0 of `t` moves from the brokers 1 and 2 to 2 and 3, and one of another topic."""

    def __init__(self) -> None:
        self.settings: dict[tuple[str, str], str | None] = {}

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        return {
            TopicPartition("t", 0): PartitionReassignment([2, 3, 1], [3], [1]),
            TopicPartition("other", 0): PartitionReassignment([1, 9], [9], [1]),
        }

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]]
    ) -> dict[ConfigResource, None]:
        for resource, some in changes.items():
            self.settings.update({(resource.name, one.name): one.value for one in some})
        assert {one.type for one in changes} == {ConfigResourceType.TOPIC, ConfigResourceType.BROKER}
        return dict.fromkeys(changes)


async def test_the_throttle_of_a_topic_keeps_its_partitions_that_are_being_reassigned() -> None:
    cluster = MovingCluster()
    one = TopicPartition("t", 1)
    await throttle_reassignment(cast(Admin, cluster), {one: [1, 2]}, {one: [1, 4]}, 1000)
    assert cluster.settings["t", LEADERS] == "0:1,0:2,1:1,1:2"
    assert cluster.settings["t", FOLLOWERS] == "0:3,1:4"
    assert {name for name, _ in cluster.settings} == {"t", "1", "2", "3", "4"}


async def test_a_partition_that_moves_again_is_copied_from_its_former_replicas() -> None:
    cluster = MovingCluster()
    one = TopicPartition("t", 0)
    await throttle_reassignment(cast(Admin, cluster), {one: [2, 3, 1]}, {one: [3, 4]}, 1000)
    assert cluster.settings["t", LEADERS] == "0:1,0:2"
    assert cluster.settings["t", FOLLOWERS] == "0:3,0:4"

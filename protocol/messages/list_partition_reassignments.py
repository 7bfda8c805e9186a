"""ListPartitionReassignments (key 46): reassignments under way.

Versions 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message
class ListPartitionReassignmentsTopics:
    name: str = wire(string, "0+")
    partition_indexes: list[int] = wire([int32], "0+")


@message(versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = wire(int32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire(
        [ListPartitionReassignmentsTopics], "0+", null="0+", default=None
    )


@message
class OngoingPartitionReassignment:
    partition_index: int = wire(int32, "0+")
    replicas: list[int] = wire([int32], "0+")
    adding_replicas: list[int] = wire([int32], "0+")
    removing_replicas: list[int] = wire([int32], "0+")


@message
class OngoingTopicReassignment:
    name: str = wire(string, "0+")
    partitions: list[OngoingPartitionReassignment] = wire([OngoingPartitionReassignment], "0+")


@message(versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    topics: list[OngoingTopicReassignment] = wire([OngoingTopicReassignment], "0+")

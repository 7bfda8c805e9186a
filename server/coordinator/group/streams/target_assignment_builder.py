"""Kafka's TargetAssignmentBuilder for streams groups: the target assignment of a group's epoch. No I/O, no time."""

from __future__ import annotations

from collections.abc import Mapping

from .....common.steps import run_to_end
from ....runtime.loop_sharing import Steps
from . import sticky_task_assignor
from .sticky_task_assignor import MemberAssignmentState, SubtopologySpec
from .streams_group import StreamsGroup
from .streams_group_change import StreamsGroupChange
from .streams_heartbeat import NO_TASK_OFFSETS
from .tasks import TasksTuple, without_epochs

NUM_STANDBY_REPLICAS = "num.standby.replicas"
RACK_AWARE_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"
"""The names of the settings of an assignment in Kafka's records."""


def size_of_target_assignment(group: StreamsGroup) -> int:
    """Return the number of tasks, standby tasks and members of the group's next target assignment."""
    topology = group.configured_topology
    if topology is None or not topology.is_ready:
        return 0
    tasks = sum(one.task_count for one in (topology.subtopologies or {}).values())
    return tasks * (1 + _standby_replicas(group)) + len(group.members)


def compute_target_assignment(group: StreamsGroup) -> Steps[dict[str, TasksTuple]]:
    """Return the target assignment for the present members, in steps: no tasks while the topology is not ready.

    The group may change between steps: the inputs are read in the first step.
    """
    topology = group.configured_topology
    assert topology is not None, "a target assignment requires a configured topology"
    if topology.is_ready and topology.subtopologies is not None:
        members = [
            MemberAssignmentState(
                member_id,
                member.process_id,
                without_epochs(member.assigned.active),
                member.assigned.standby,
                group.task_offsets.get(member_id, NO_TASK_OFFSETS).offsets,
            )
            for member_id, member in sorted(group.members.items())
        ]
        subtopologies = {
            name: SubtopologySpec(one.task_count, one.is_stateful) for name, one in topology.subtopologies.items()
        }
        targets = yield from sticky_task_assignor.assign_in_steps(members, subtopologies, _standby_replicas(group))
        return targets
    return dict.fromkeys(group.members, TasksTuple())


def set_target_assignment(
    change: StreamsGroupChange, epoch: int, targets: Mapping[str, TasksTuple], now_ms: int
) -> None:
    """Set the target assignment that was computed for an epoch of the group, except for members that have left."""
    for member_id, target in targets.items():
        if member_id in change.group.members:
            change.set_target(member_id, target)
    change.set_assignment_epoch_to(epoch, now_ms)


def build_target_assignment(change: StreamsGroupChange, now_ms: int) -> None:
    """Compute and set the target assignment of the group's present epoch."""
    targets = run_to_end(compute_target_assignment(change.group))
    set_target_assignment(change, change.group.epoch, targets, now_ms)


def _standby_replicas(group: StreamsGroup) -> int:
    return int(group.last_assignment_configs.get(NUM_STANDBY_REPLICAS, "0"))

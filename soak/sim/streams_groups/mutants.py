"""Planted bugs of streams groups, which the simulation must find.

`python -m soak.sim.streams_groups.mutants` plants each bug and prints the number of seeds until the bug is found.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from soak.sim.planted import Patch, PlantedBug, print_table
from soak.sim.streams_groups.plan import StreamsPlan
from soak.sim.streams_groups.scenario import play

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.coordinator_log import ResponseCallback
from barnabas.server.coordinator.group.modern_group_manager import ModernGroupManager
from barnabas.server.coordinator.group.streams import current_assignment_builder
from barnabas.server.coordinator.group.streams.streams_group import StreamsGroup
from barnabas.server.coordinator.group.streams.streams_group_change import StreamsGroupChange
from barnabas.server.coordinator.group.streams.streams_group_manager import StreamsGroupManager

MAX_SEEDS = 200


def assign_tasks_that_are_not_released(patch: Patch) -> None:
    patch.setattr(current_assignment_builder._Step, "_is_free_for_active", lambda self, name, partition: True)


def count_each_heartbeat_as_a_release(patch: Patch) -> None:
    """Assign the next epoch to a member that has not reported the revocation of its tasks."""
    patch.setattr(current_assignment_builder, "_has_not_released", lambda revoking, owned: False)


def never_expire_sessions(patch: Patch) -> None:
    patch.setattr(StreamsGroupManager, "_session_expired", lambda self, group, member_id: None)


def wait_for_revocations_forever(patch: Patch) -> None:
    patch.setattr(StreamsGroupManager, "_watch_revocation", lambda self, group, member, updated: None)


def keep_the_assignment_when_members_leave(patch: Patch) -> None:
    """Leave the tasks of former members without another owner."""

    def remove_members(
        self: StreamsGroupManager, group: StreamsGroup, member_ids: list[str], done: ResponseCallback
    ) -> bool:
        change = StreamsGroupChange(group)
        for member_id in member_ids:
            change.remove_member(member_id)
        return self._write(change, done)

    patch.setattr(StreamsGroupManager, "_remove_members", remove_members)


def answer_before_the_commit(patch: Patch) -> None:
    """Respond with an epoch that is not yet committed, and that the next coordinator may not load."""
    original = ModernGroupManager._write

    def write(self: Any, change: Any, done: ResponseCallback, **named: Any) -> bool:
        def ignored(_: ErrorCode) -> None:
            """Do nothing: the response was already sent."""

        is_written = original(self, change, ignored, **named)
        if is_written:
            self._loop.call_soon(done, ErrorCode.NONE)
        return is_written

    patch.setattr(ModernGroupManager, "_write", write)


def forget_owners_when_loading(patch: Patch) -> None:
    original = StreamsGroupManager.on_group_loaded

    def on_group_loaded(self: StreamsGroupManager, group: StreamsGroup) -> None:
        group._active_owners.clear()
        original(self, group)

    patch.setattr(StreamsGroupManager, "on_group_loaded", on_group_loaded)


def forget_sessions_when_loading(patch: Patch) -> None:
    """Let members that died before the load keep their tasks."""
    patch.setattr(StreamsGroupManager, "on_group_loaded", lambda self, group: None)


def assign_no_standby_tasks(patch: Patch) -> None:
    patch.setattr(StreamsGroupManager, "_number_of_standby_replicas", lambda self, group_id: 0)


@dataclass(frozen=True, slots=True)
class StreamsMutant(PlantedBug):
    """A planted bug, with the changes of the plan that reveal the bug."""

    changes: dict[str, Any] = field(default_factory=dict)
    brokers: int | None = None

    def violations(self, seed: int) -> list[str]:
        plan = StreamsPlan.draw(seed, quick=True, brokers=self.brokers)
        return play(plan.with_faults(self.faults, **self.changes)).violations


MEMBERS = frozenset({"kill a member", "replace a member"})
STRIKES = frozenset({"strike a coordinator", "kill a member", "replace a member"})
SLOW: dict[str, Any] = {"revocation": 1.0, "rebalance_seconds": 5.0}

STREAMS_MUTANTS = (
    StreamsMutant(assign_tasks_that_are_not_released, "KIP-1071", MEMBERS, SLOW),
    StreamsMutant(count_each_heartbeat_as_a_release, "KIP-1071", MEMBERS, SLOW),
    StreamsMutant(never_expire_sessions, "KIP-1071", MEMBERS),
    StreamsMutant(wait_for_revocations_forever, "KIP-1071", MEMBERS, {"stubborn_chance": 0.5}),
    StreamsMutant(keep_the_assignment_when_members_leave, "KIP-1071", MEMBERS),
    StreamsMutant(answer_before_the_commit, "Jepsen 2013", STRIKES, brokers=3),
    StreamsMutant(forget_owners_when_loading, "KAFKA-8069", STRIKES, SLOW),
    StreamsMutant(forget_sessions_when_loading, "KAFKA-8069", STRIKES),
    StreamsMutant(assign_no_standby_tasks, "KIP-1071", MEMBERS, {"standby_replicas": 1}),
)


if __name__ == "__main__":
    sys.exit(print_table("soak.sim.streams_groups.mutants", __doc__, STREAMS_MUTANTS, MAX_SEEDS))

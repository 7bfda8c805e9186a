"""A member of a streams group (Kafka: StreamsGroupMember and MemberState). Values without I/O or time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from ..modern_group_member import StaticGroupMember
from .tasks import TasksTupleWithEpochs

NO_TOPOLOGY_EPOCH = -1
NO_TAGS: Mapping[str, str] = MappingProxyType({})


class StreamsMemberState(IntEnum):
    """The reconciliation state of a member; the values are stored in `__consumer_offsets`.

    The states of members of consumer groups have other values.
    """

    STABLE = 1
    """The member has all tasks of its last target assignment."""
    UNREVOKED_TASKS = 2
    """The member has to revoke tasks, and keeps its epoch until it has confirmed the revocation."""
    UNRELEASED_TASKS = 3
    """The member waits for tasks that other members or processes have not released."""
    UNKNOWN = 127
    """A state of a later version: the member has to join again."""

    @classmethod
    def of(cls, number: int) -> StreamsMemberState:
        """Return the state with this number, UNKNOWN for the number of a later version."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class Endpoint(NamedTuple):
    """The host and the port at which an instance of the application serves queries of its state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsGroupMember(StaticGroupMember):
    """One state of a member, which is one thread of the application; a change creates another object.

    The member owns the tasks in `assigned` and in `revoking`: no other member can have the active tasks among them.
    Invariants: the active tasks of `assigned` and `revoking` are disjoint; `revoking` is empty outside UNREVOKED_TASKS.
    """

    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""
    """The id of the instance of the application; all threads of the instance have the same one."""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=lambda: NO_TAGS)
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: TasksTupleWithEpochs = field(default_factory=TasksTupleWithEpochs)
    revoking: TasksTupleWithEpochs = field(default_factory=TasksTupleWithEpochs)

    @property
    def is_revoking(self) -> bool:
        return self.state is StreamsMemberState.UNREVOKED_TASKS

    def has_reached(self, epoch: int) -> bool:
        """Return whether the member has its whole target assignment of this epoch (Kafka: isReconciledTo)."""
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch

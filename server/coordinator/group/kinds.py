"""The kinds of groups: what can happen to groups of each, and the one place that knows which kind a group is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ..coordinator_log import Entry
from .consumer.group import ConsumerGroup
from .group import Group
from .group_port import GroupPort
from .member import Leaver, LeaveReply
from .requests import Joining, Syncing

G = TypeVar("G", contravariant=True)


class GroupKind(Protocol[G]):
    """What happens to groups of one kind (`ClassicGroups`, `ConsumerGroups`).

    That is what members ask for that speak the classic protocol, whatever kind of group they find, and where a group
    begins and ends.
    """

    def join(self, group: G, joining: Joining) -> None:
        """JoinGroup; the request says how to answer it."""

    def sync(self, group: G, syncing: Syncing) -> None:
        """SyncGroup; the request says how to answer it."""

    def heartbeat(self, group: G, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; returns whether the member has to join again."""

    def leave(self, group: G, leaving: Sequence[Leaver], reply: LeaveReply) -> None:
        """LeaveGroup; `reply` gets the outcome when it is durable."""

    def heard_of(self, group: G, member_id: str) -> None:
        """A member in order commits offsets."""

    def resume(self, group: G) -> None:
        """A group was loaded: its members have their full session timeouts from now on."""

    def unload(self, group: G, error: ErrorCode) -> None:
        """A group is not coordinated here any more, or it is deleted; whoever waits hears `error`."""

    def tombstones(self, group: G) -> list[Entry]:
        """What takes a group out of the log, its offsets aside."""

    def expire_sessions(self, group_id: str) -> None:
        """The members of a group have not been heard of for too long."""

    def close(self) -> None:
        """Expect nothing of anybody."""


class GroupKinds:
    """Finds what happens to a group by what kind it says that it is."""

    def __init__(self, classic: GroupKind[Group], consumer: GroupKind[ConsumerGroup]) -> None:
        self._by_name: dict[str, GroupKind[Any]] = {Group.type_name: classic, ConsumerGroup.type_name: consumer}
        """By the name that a group has for its kind, so that each is given groups of its own only."""

    def __iter__(self) -> Iterator[GroupKind[Any]]:
        return iter(self._by_name.values())

    def of(self, group: GroupPort) -> GroupKind[Any]:
        """What happens to this group."""
        return self._by_name[group.type_name]


def as_consumer_group(group: GroupPort | None) -> ConsumerGroup | None:
    """The group if it is one of the consumer protocol."""
    return group if isinstance(group, ConsumerGroup) else None


def consumer_group(group: GroupPort) -> ConsumerGroup:
    """The group, which is to be one of the consumer protocol. Raises KafkaError GROUP_ID_NOT_FOUND."""
    if isinstance(group, ConsumerGroup):
        return group
    raise not_a_consumer_group(group.group_id)


def classic_group(group: GroupPort) -> Group:
    """The group, which is to be a classic one. Raises KafkaError GROUP_ID_NOT_FOUND."""
    if isinstance(group, Group):
        return group
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a classic group.")


def not_a_consumer_group(group_id: str) -> KafkaError:
    """What is wrong for whoever wants a group of the consumer protocol where there is none."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

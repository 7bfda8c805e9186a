"""What a group looks like as records of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from ....protocol.codec import decode_versioned, encode_versioned, peek_version
from ....protocol.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ..coordinator_log import Entry
from .group import Group
from .member import Member
from .offsets import CommittedOffset, Place

OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3


class OffsetId(NamedTuple):
    """Whose offset a record is."""

    group_id: str
    place: Place


def offset_key(group_id: str, place: Place) -> bytes:
    return encode_versioned(OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]), OFFSET_KEY_VERSION)


NO_OFFSET_KEY = offset_key("", ("", -1))
"""Without a value this says nothing: no topic has this name."""


def offset_entry(group_id: str, place: Place, offset: CommittedOffset) -> Entry:
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
    )
    has_expiry = offset.expire_timestamp_ms >= 0
    version = OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VALUE_VERSION
    return offset_key(group_id, place), encode_versioned(value, version)


def group_key(group_id: str) -> bytes:
    """The key of a group's record."""
    return encode_versioned(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def group_tombstones(group: Group) -> list[Entry]:
    """What takes a classic group out of the log, its offsets aside."""
    return [(group_key(group.group_id), None)] if group.is_logged else []


def group_entry(group: Group, assignments: Mapping[str, bytes]) -> Entry:
    """The record of a group's present generation with these assignments."""
    encoder = GroupEncoder(group, assignments)
    encoder.encode(len(group.members))
    return encoder.entry()


class GroupEncoder:
    """`group_entry` in pieces, as many members at a time as the caller has time for. The group must not change."""

    def __init__(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        self.is_done = False
        """Whether all members are encoded."""
        self._key = group_key(group.group_id)
        self._protocol_name = group.protocol_name
        self._assignments = assignments
        self._value = GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.state_timestamp_ms,
            members=[],
        )
        # The members are what a record ends with, and before them stands how many there are.
        self._head = encode_versioned(self._value, GROUP_VALUE_VERSION)
        self._pieces = [self._head[:-4], len(group.members).to_bytes(4, "big")]
        self._left = iter(group.members.values())

    def encode(self, count: int) -> None:
        """Encode so many more members."""
        name, assignments = self._protocol_name, self._assignments
        self._value.members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in islice(self._left, count)
        ]
        self._pieces.append(encode_versioned(self._value, GROUP_VALUE_VERSION)[len(self._head) :])
        self.is_done = len(self._value.members) < count

    def entry(self) -> Entry:
        """The record once all are encoded."""
        return self._key, b"".join(self._pieces)


def read_key(key: bytes) -> OffsetId | str | None:
    """Whose offset, or which group's state; None for kinds of records that belong to something else.

    Raises ProtocolError.
    """
    version = peek_version(key)
    if version in (0, OFFSET_KEY_VERSION):
        offset = decode_versioned(OffsetCommitKey, key)
        return OffsetId(offset.group, (offset.topic, offset.partition))
    if version == GROUP_KEY_VERSION:
        return decode_versioned(GroupMetadataKey, key).group
    return None


def read_offset(value: bytes) -> CommittedOffset:
    """The committed offset in a record. Raises ProtocolError."""
    read = decode_versioned(OffsetCommitValue, value)
    return CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, read.topic_id
    )


def read_group(group_id: str, value: bytes, now_ms: int) -> Group:
    """The group in a record: without requests that wait, its members as they were. Raises ProtocolError."""
    read = decode_versioned(GroupMetadataValue, value)
    group = Group(group_id, now_ms)
    group.is_logged = True
    group.protocol_type = read.protocol_type or None
    members = {}
    for one in read.members:
        rebalance_timeout = one.session_timeout if one.rebalance_timeout < 0 else one.rebalance_timeout
        members[one.member_id] = Member(
            member_id=one.member_id,
            group_instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout_ms=rebalance_timeout,
            session_timeout_ms=one.session_timeout,
            protocol_type=read.protocol_type,
            protocols=((read.protocol or "", bytes(one.subscription)),),
            assignment=bytes(one.assignment),
        )
    group.restore(members.values(), read.generation, read.protocol, read.leader)
    if read.current_state_timestamp >= 0:
        group.state_timestamp_ms = read.current_state_timestamp
    return group

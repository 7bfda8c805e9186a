"""Records of a KRaft quorum in `__cluster_metadata-0`, as far as they contain settings (KIP-500, KIP-631).

A value begins with the version of its frame, the number of its type and the version of that type, each an unsigned
varint of one byte. Source: Kafka's `metadata/src/main/resources/common/metadata`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from .codec import decode_versioned
from .schema import boolean, bytes_, float64, int8, int32, int64, message, string, uuid, wire

FRAME_VERSION = 1
FRAME_BYTES = 3


@message(versions="0", flexible="0+")
class TopicRecord:
    """A topic that was created."""

    name: str = wire(string, "0+")
    topic_id: UUID = wire(uuid, "0+")


@message(versions="0", flexible="0+")
class ConfigRecord:
    """A setting; null removes it."""

    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    name: str = wire(string, "0+")
    value: str | None = wire(string, "0+", null="0+")


@message(versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic that was deleted."""

    topic_id: UUID = wire(uuid, "0+")


@message(versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token that was created or renewed."""

    owner: str = wire(string, "0+")
    requester: str = wire(string, "0+")
    renewers: list[str] = wire([string], "0+")
    issue_timestamp: int = wire(int64, "0+")
    max_timestamp: int = wire(int64, "0+")
    expiration_timestamp: int = wire(int64, "0+")
    token_id: str = wire(string, "0+")


@message(versions="0", flexible="0+")
class UserScramCredentialRecord:
    """The credential of a user for one mechanism."""

    name: str = wire(string, "0+")
    mechanism: int = wire(int8, "0+")
    salt: bytes = wire(bytes_, "0+")
    stored_key: bytes = wire(bytes_, "0+")
    server_key: bytes = wire(bytes_, "0+")
    iterations: int = wire(int32, "0+")


@message
class EntityData:
    """A part of a quota's entity; null is the default."""

    entity_type: str = wire(string, "0+")
    entity_name: str | None = wire(string, "0+", null="0+")


@message(versions="0", flexible="0+")
class ClientQuotaRecord:
    """One quota of an entity, set or removed."""

    entity: list[EntityData] = wire([EntityData], "0+")
    key: str = wire(string, "0+")
    value: float = wire(float64, "0+")
    remove: bool = wire(boolean, "0+")


@message(versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An ACL."""

    id: UUID = wire(uuid, "0+")
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    pattern_type: int = wire(int8, "0+")
    principal: str = wire(string, "0+")
    host: str = wire(string, "0+")
    operation: int = wire(int8, "0+")
    permission_type: int = wire(int8, "0+")


@message(versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An ACL that was removed."""

    id: UUID = wire(uuid, "0+")


@message(versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A credential that was removed."""

    name: str = wire(string, "0+")
    mechanism: int = wire(int8, "0+")


@message(versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token that was removed or has expired."""

    token_id: str = wire(string, "0+")


TYPES: dict[int, type] = {
    2: TopicRecord,
    4: ConfigRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    14: ClientQuotaRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
    26: RemoveDelegationTokenRecord,
}


def decode_metadata_record(value: bytes) -> Any | None:
    """Return the record, or None if it is of another type. Raises ProtocolError for an invalid one."""
    if len(value) < FRAME_BYTES or value[0] != FRAME_VERSION or value[1] not in TYPES:
        return None
    return decode_versioned(TYPES[value[1]], value[1:], version=value[2])

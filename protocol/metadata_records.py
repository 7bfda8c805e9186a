"""Records of a KRaft quorum in `__cluster_metadata-0` (KIP-500, KIP-631): every type and version up to Kafka 4.4.

A value begins with the version of its frame, the number of its type and the version of that type, each an unsigned
varint. Control records, which frame a snapshot and name the leader and the voters, have the type in their key and the
version at the start of their value. Source: Kafka's `metadata/src/main/resources/common/metadata` and
`clients/src/main/resources/common/message`.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from .codec import decode_versioned, encode_item, peek_version
from .errors import ProtocolError
from .message_json import message_json
from .record_batch_builder import CONTROL_RECORD_KEY, ControlType, parse_control_key
from .schema import (
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    uint16,
    uuid,
    versions_of,
    wire,
)

FRAME_VERSION = 1
FRAME_BYTES = 3
"""Each varint of the frame has one byte; a longer varint can only be an unknown type or version."""


@message
class BrokerEndpoint:
    """The address of one listener of a broker."""

    name: str = wire(string, "0+")
    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")
    security_protocol: int = wire(int16, "0+")


@message
class BrokerFeature:
    """The levels of a feature that a broker supports."""

    name: str = wire(string, "0+")
    min_supported_version: int = wire(int16, "0+")
    max_supported_version: int = wire(int16, "0+")


@message(versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """The registration of a broker. Null cordoned log directories: the broker did not report any."""

    broker_id: int = wire(int32, "0+")
    is_migrating_zk_broker: bool = wire(boolean, "2+", default=False)
    incarnation_id: UUID = wire(uuid, "0+")
    broker_epoch: int = wire(int64, "0+")
    end_points: list[BrokerEndpoint] = wire([BrokerEndpoint], "0+")
    features: list[BrokerFeature] = wire([BrokerFeature], "0+")
    rack: str | None = wire(string, "0+", null="0+")
    fenced: bool = wire(boolean, "0+", default=True)
    in_controlled_shutdown: bool = wire(boolean, "1+", default=False)
    log_dirs: list[UUID] = wire([uuid], "3+", tag=0)
    cordoned_log_dirs: list[UUID] | None = wire([uuid], "4+", null="4+", default=None, tag=1)


@message(versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker whose registration was removed."""

    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "0+")


@message(versions="0", flexible="0+")
class TopicRecord:
    """A topic that was created."""

    name: str = wire(string, "0+")
    topic_id: UUID = wire(uuid, "0+")


@message(versions="0-2", flexible="0+")
class PartitionRecord:
    """The complete state of a partition. Version 1 adds log directories (KIP-858), version 2 ELRs (KIP-966)."""

    partition_id: int = wire(int32, "0+", default=-1)
    topic_id: UUID = wire(uuid, "0+")
    replicas: list[int] = wire([int32], "0+")
    isr: list[int] = wire([int32], "0+")
    removing_replicas: list[int] = wire([int32], "0+")
    adding_replicas: list[int] = wire([int32], "0+")
    leader: int = wire(int32, "0+", default=-1)
    leader_recovery_state: int = wire(int8, "0+", default=0, tag=0)
    leader_epoch: int = wire(int32, "0+", default=-1)
    partition_epoch: int = wire(int32, "0+", default=-1)
    directories: list[UUID] = wire([uuid], "1+")
    eligible_leader_replicas: list[int] | None = wire([int32], "2+", null="2+", default=None, tag=1)
    last_known_elr: list[int] | None = wire([int32], "2+", null="2+", default=None, tag=2)


@message(versions="0", flexible="0+")
class ConfigRecord:
    """A setting; null removes it."""

    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    name: str = wire(string, "0+")
    value: str | None = wire(string, "0+", null="0+")


@message(versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """A change of a partition. Null, leader -2 and recovery state -1 leave a value as it is.

    Any other leader, the same one included, increments the leader epoch; each record increments the partition epoch.
    """

    partition_id: int = wire(int32, "0+", default=-1)
    topic_id: UUID = wire(uuid, "0+")
    isr: list[int] | None = wire([int32], "0+", null="0+", default=None, tag=0)
    leader: int = wire(int32, "0+", default=-2, tag=1)
    replicas: list[int] | None = wire([int32], "0+", null="0+", default=None, tag=2)
    removing_replicas: list[int] | None = wire([int32], "0+", null="0+", default=None, tag=3)
    adding_replicas: list[int] | None = wire([int32], "0+", null="0+", default=None, tag=4)
    leader_recovery_state: int = wire(int8, "0+", default=-1, tag=5)
    directories: list[UUID] | None = wire([uuid], "1+", null="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = wire([int32], "2+", null="2+", default=None, tag=6)
    last_known_elr: list[int] | None = wire([int32], "2+", null="2+", default=None, tag=7)


@message(versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker that was fenced: it leads no partitions and is in no ISR."""

    id: int = wire(int32, "0+")
    epoch: int = wire(int64, "0+")


@message(versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A broker that is no longer fenced."""

    id: int = wire(int32, "0+")
    epoch: int = wire(int64, "0+")


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


@message(versions="0", flexible="0+")
class FeatureLevelRecord:
    """The finalized level of a feature; 0 removes the feature."""

    name: str = wire(string, "0+")
    feature_level: int = wire(int16, "0+")


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
class ProducerIdsRecord:
    """A block of producer ids that was allocated; `next_producer_id` is the first id of the next block."""

    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "0+", default=-1)
    next_producer_id: int = wire(int64, "0+")


@message(versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """A change of a broker's registration.

    `fenced` and `in_controlled_shutdown` are 1 (becomes true), -1 (becomes false) or 0 (no change). An empty list of
    log directories, and null cordoned ones, change nothing.
    """

    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "0+")
    fenced: int = wire(int8, "0+", tag=0)
    in_controlled_shutdown: int = wire(int8, "1+", tag=1)
    log_dirs: list[UUID] = wire([uuid], "2+", tag=2)
    cordoned_log_dirs: list[UUID] | None = wire([uuid], "3+", null="3+", default=None, tag=3)


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
class NoOpRecord:
    """A record that moves the high watermark of an idle quorum."""


@message(versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """The state of a migration from ZooKeeper. Without effect since Kafka 4.0."""

    zk_migration_state: int = wire(int8, "0+")


@message(versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A credential that was removed."""

    name: str = wire(string, "0+")
    mechanism: int = wire(int8, "0+")


@message(versions="0", flexible="0+")
class BeginTransactionRecord:
    """The start of a metadata transaction (KIP-868)."""

    name: str | None = wire(string, "0+", null="0+", default=None, tag=0)


@message(versions="0", flexible="0+")
class EndTransactionRecord:
    """The end of a metadata transaction, whose records take effect together."""


@message(versions="0", flexible="0+")
class AbortTransactionRecord:
    """The end of a metadata transaction whose records have no effect."""

    reason: str | None = wire(string, "0+", null="0+", default=None, tag=0)


@message(versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token that was removed or has expired."""

    token_id: str = wire(string, "0+")


@message
class ControllerEndpoint:
    """The address of one listener of a controller."""

    name: str = wire(string, "0+")
    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")
    security_protocol: int = wire(int16, "0+")


@message
class ControllerFeature:
    """The levels of a feature that a controller supports."""

    name: str = wire(string, "0+")
    min_supported_version: int = wire(int16, "0+")
    max_supported_version: int = wire(int16, "0+")


@message(versions="0", flexible="0+")
class RegisterControllerRecord:
    """The registration of a controller (KIP-919)."""

    controller_id: int = wire(int32, "0+")
    incarnation_id: UUID = wire(uuid, "0+")
    zk_migration_ready: bool = wire(boolean, "0+")
    end_points: list[ControllerEndpoint] = wire([ControllerEndpoint], "0+")
    features: list[ControllerFeature] = wire([ControllerFeature], "0+")


@message(versions="0", flexible="0+")
class ClearElrRecord:
    """The removal of the ELRs of a topic's partitions; an empty name means all topics (KIP-966)."""

    topic_name: str = wire(string, "0+")


@message(versions="0", flexible="0+")
class UnregisterControllerRecord:
    """A controller whose registration was removed."""

    controller_id: int = wire(int32, "0+")


TYPES: dict[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
    29: UnregisterControllerRecord,
}
NUMBERS: dict[type, int] = {cls: number for number, cls in TYPES.items()}


def decode_metadata_record(value: bytes) -> Any:
    """Return the record in a value. Raises ProtocolError for an invalid value and for an unknown type or version.

    A reader that skipped an unknown record would have other metadata than its quorum, so Kafka treats it as fatal too.
    """
    if len(value) < FRAME_BYTES or value[0] != FRAME_VERSION:
        raise ProtocolError(f"metadata record has an unknown frame: {value[:FRAME_BYTES].hex() or 'no bytes'}")
    cls = TYPES.get(value[1])
    if cls is None:
        raise ProtocolError(f"unknown type {value[1]} of a metadata record")
    return decode_versioned(cls, value[1:], version=value[2])


def metadata_record_json(value: bytes) -> dict[str, Any]:
    """Return the record in a value as Kafka's `--cluster-metadata-decoder` prints it. Raises ProtocolError."""
    record = decode_metadata_record(value)
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).upper()
    return {"type": name, "version": value[2], "data": message_json(record, value[2])}


def encode_metadata_record(record: Any, version: int | None = None) -> bytes:
    """Return the value of a record, by default in the newest version. Raises ProtocolError for an unknown version."""
    cls = type(record)
    number = versions_of(cls).last if version is None else version
    return bytes((FRAME_VERSION, NUMBERS[cls], number)) + encode_item(record, number)


@message
class Voter:
    """A voter of the quorum in a LeaderChangeMessage. Version 1 adds the id of its log directory (KIP-853)."""

    voter_id: int = wire(int32, "0+")
    voter_directory_id: UUID = wire(uuid, "1+")


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """The leader of an epoch, the voters, and the voters that voted for the leader."""

    version: int = wire(int16, "0+")
    leader_id: int = wire(int32, "0+")
    voters: list[Voter] = wire([Voter], "0+")
    granting_voters: list[Voter] = wire([Voter], "0+")


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The first record of a snapshot, with the append time of its last record in milliseconds."""

    version: int = wire(int16, "0+")
    last_contained_log_timestamp: int = wire(int64, "0+")


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The last record of a snapshot. A snapshot without it is incomplete."""

    version: int = wire(int16, "0+")


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    """The finalized level of kraft.version."""

    version: int = wire(int16, "0+")
    kraft_version: int = wire(int16, "0+")


@message
class VoterEndpoint:
    """The address of one listener of a voter."""

    name: str = wire(string, "0+")
    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")


@message
class KRaftVersionFeature:
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int = wire(int16, "0+")
    max_supported_version: int = wire(int16, "0+")


@message
class VotersRecordVoter:
    """A voter of the quorum in a VotersRecord."""

    voter_id: int = wire(int32, "0+")
    voter_directory_id: UUID = wire(uuid, "0+")
    endpoints: list[VoterEndpoint] = wire([VoterEndpoint], "0+")
    kraft_version_feature: KRaftVersionFeature = wire(KRaftVersionFeature, "0+")


@message(versions="0", flexible="0+")
class VotersRecord:
    """The voters of the quorum (KIP-853)."""

    version: int = wire(int16, "0+")
    voters: list[VotersRecordVoter] = wire([VotersRecordVoter], "0+")


CONTROL_TYPES: dict[int, type] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def decode_control_record(key: bytes | None, value: bytes | None) -> Any:
    """Return the control record of a quorum's log or snapshot. Raises ProtocolError for another or an invalid one."""
    cls = CONTROL_TYPES.get(-1 if (number := parse_control_key(key)) is None else number)
    if cls is None or value is None:
        raise ProtocolError("unknown type of a control record in the log of a quorum")
    # The version is also the first field, which the decoder reads after it.
    return decode_versioned(cls, value[:2] + value, version=peek_version(value))


def encode_control_record(record: Any) -> tuple[bytes, bytes]:
    """Return the key and the value of a control record, in the version that is its first field."""
    number = next(number for number, cls in CONTROL_TYPES.items() if cls is type(record))
    return CONTROL_RECORD_KEY.struct.pack(0, number), encode_item(record, record.version)

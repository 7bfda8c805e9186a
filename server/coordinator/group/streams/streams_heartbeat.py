"""A StreamsGroupHeartbeat and its response, apart from their encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .....protocol.errors import ErrorCode, KafkaError
from ....metadata.topic_names import is_internal, is_legal
from ..modern_group_heartbeat import ModernGroupHeartbeat, refuse_if
from ..modern_group_member import STATIC_LEAVE_EPOCH
from .streams_group_member import Endpoint
from .streams_topology import StreamsTopology
from .tasks import TasksTuple, TasksTupleWithEpochs
from .topics.configured_topology import ConfiguredInternalTopic
from .topics.topic_configuration_error import Status

NOT_GIVEN = -1
MAX_TOPICS = 5_000
"""The limit on the topic names in a topology: when topics change, the broker compares all names with the topics."""
MAX_SUBTOPOLOGIES = 1_000
"""The limit on the subtopologies of a topology."""
MAX_COPARTITIONS = 10_000
"""The limit on the copartition groups of a topology and the indexes in them, together."""
MAX_TOPIC_CONFIGS = 20_000
"""The limit on the settings of the internal topics of a topology."""

TaskOffsets = Mapping[str, Mapping[int, int]]
"""Sums of changelog offsets by subtopology id and partition number."""


@dataclass(frozen=True, slots=True)
class MemberTaskOffsets:
    """The offsets that a member reports for the task state on its disk, and the end offsets of the changelogs."""

    offsets: TaskOffsets = field(default_factory=dict)
    end_offsets: TaskOffsets = field(default_factory=dict)


NO_TASK_OFFSETS = MemberTaskOffsets()


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat(ModernGroupHeartbeat):
    """The values of a heartbeat; None for a value that has not changed since the member's last heartbeat."""

    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: StreamsTopology | None
    topology_value: bytes
    """The value of the record of the topology; empty without a topology."""
    owned: TasksTuple | None
    process_id: str | None
    user_endpoint: Endpoint | None
    client_tags: Mapping[str, str] | None
    task_offsets: TaskOffsets | None
    task_end_offsets: TaskOffsets | None
    shutdown_application: bool
    client_id: str
    client_host: str
    version: int
    """The version of the request."""

    def check(self) -> None:
        """Raise KafkaError INVALID_REQUEST for missing and invalid values, except in the topology."""
        for name, text in (
            ("MemberId", self.member_id),
            ("GroupId", self.group_id),
            ("InstanceId", self.instance_id),
            ("RackId", self.rack_id),
        ):
            refuse_if(text is not None and not text.strip(), f"{name} can't be empty.")
        if self.is_joining:
            refuse_if(self.rebalance_timeout_ms == NOT_GIVEN, "RebalanceTimeoutMs must be provided in first request.")
            for kind, tasks in (
                ("ActiveTasks", self.owned and self.owned.active),
                ("StandbyTasks", self.owned and self.owned.standby),
                ("WarmupTasks", self.owned and self.owned.warmup),
            ):
                refuse_if(bool(tasks), f"{kind} must be empty when (re-)joining.")
            refuse_if(self.topology is None, "Topology must be non-null when (re-)joining.")
        elif self.epoch == STATIC_LEAVE_EPOCH:
            refuse_if(self.instance_id is None, "InstanceId can't be null.")
        elif self.epoch < STATIC_LEAVE_EPOCH:
            refuse_if(True, f"MemberEpoch is {self.epoch}, but must be greater than or equal to -2.")
        if not self.is_joining:
            refuse_if(self.topology is not None, "Topology can only be provided when (re-)joining.")


def check_topic_names(topology: StreamsTopology) -> None:
    """Raise KafkaError STREAMS_INVALID_TOPOLOGY for internal topics of the broker and for invalid names."""
    names = dict.fromkeys(topology.all_topics)
    if internal := [name for name in names if is_internal(name)]:
        raise _invalid(f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.")
    if invalid := [name for name in names if not is_legal(name)]:
        raise _invalid(f"Topic names {','.join(invalid)} are not valid topic names.")


def check_topology(topology: StreamsTopology) -> None:
    """Raise KafkaError STREAMS_INVALID_TOPOLOGY for an inconsistent topology, INVALID_REQUEST for patterns."""
    for one in topology.subtopologies.values():
        refuse_if(bool(one.source_topic_regex), "Regular expressions for source topics are not supported yet.")
        for topic in one.state_changelog_topics:
            if topic.partitions:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
        for topic in one.repartition_source_topics:
            if topic.partitions < 0:
                raise _invalid(f"Repartition topic {topic.name} has a negative partition count.")
        for group in one.copartition_groups:
            _check_indexes(group.source_topics, len(one.source_topics))
            _check_indexes(group.repartition_source_topics, len(one.repartition_source_topics))
    if topology.epoch < 0:
        raise _invalid("Topology epoch must be non-negative.")


def _check_indexes(indexes: Sequence[int], count: int) -> None:
    if any(not 0 <= index < count for index in indexes):
        raise _invalid("A copartition group refers to a topic that its subtopology does not have.")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)


@dataclass(frozen=True, slots=True)
class EndpointToPartitions:
    """The partitions that an instance can answer queries for (KIP-535), by topic."""

    endpoint: Endpoint
    active: Mapping[str, Sequence[int]]
    standby: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class StreamsHeartbeatResult:
    """The outcome of a heartbeat. `assigned` and `endpoints` are None if they have not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = NOT_GIVEN
    statuses: Sequence[tuple[Status, str]] = ()
    assigned: TasksTupleWithEpochs | None = None
    endpoint_information_epoch: int = 0
    endpoints: Sequence[EndpointToPartitions] | None = None
    internal_topics_to_create: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)


StreamsHeartbeatReply = Callable[[StreamsHeartbeatResult], None]
"""Receives the outcome of a heartbeat once, when it is durable."""

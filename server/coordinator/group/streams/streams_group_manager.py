"""The streams rebalance protocol (KIP-1071): StreamsGroupHeartbeat.

Kafka: the streams group part of GroupMetadataManager. A heartbeat runs on the loop's thread to its end, after the
topology of its group was compared with the topics of the cluster in slices. A change is in memory as soon as it is in
the log; its response is sent once it is durable, in the loop's next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from .....common.room_logger import room_logger
from .....protocol.config_resources import ConfigResourceType
from .....protocol.errors import ErrorCode, KafkaError
from ...coordinator_log import CoordinatorRecord, ResponseCallback, ignore
from ...creation_limiter import ClientIdentity
from ..classic_group import ClassicGroup, JoinRequest
from ..classic_group_manager import ClassicGroupManager
from ..group import Group
from ..group_metadata_manager import GroupMetadataManager
from ..group_records import new_group_tombstones
from ..group_with_static_members_manager import GroupWithStaticMembersManager
from ..member_timers import MemberTimers
from ..modern_group_change import LAST_EPOCH
from ..modern_group_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from .current_assignment_builder import build_current_assignment
from .streams_group import StreamsGroup
from .streams_group_change import StreamsGroupChange
from .streams_group_member import NO_TOPOLOGY_EPOCH, StreamsGroupMember
from .streams_heartbeat import (
    NO_TASK_OFFSETS,
    NOT_GIVEN,
    EndpointToPartitions,
    MemberTaskOffsets,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    StreamsHeartbeatResult,
)
from .streams_topology import StreamsTopology
from .target_assignment_builder import (
    NUM_STANDBY_REPLICAS,
    RACK_AWARE_ASSIGNMENT_TAGS,
    build_target_assignment,
    compute_target_assignment,
    set_target_assignment,
    size_of_target_assignment,
)
from .tasks import NO_TASKS, Tasks, TasksTuple, TasksTupleWithEpochs
from .topics.configured_topology import ConfiguredSubtopology, ConfiguredTopology
from .topics.endpoint_to_partitions_manager import endpoint_to_partitions
from .topics.internal_topic_manager import configure_topics
from .topics.topic_configuration_error import Status

if TYPE_CHECKING:
    from ....config.broker_config import BrokerConfig
    from ....config.dynamic_config import DynamicConfig
    from ....metadata.metadata_cache import MetadataCache
    from ....runtime.loop_sharing import SlicedWork, Steps
    from ....runtime.ports import Ports

logger = room_logger("groups")

PROTOCOL = "streams"
SINCE_STREAMS_GROUPS = 1
"""The first level of `streams.version` with the streams protocol (KIP-1071)."""
FIRST_VERSION_WITH_TAG_STATUS = 1
WHOLE_GROUP = ""
"""The key of the deadline that belongs to a group instead of a member."""
MAX_TASKS = 50_000
"""The limit on the tasks of a topology with their standby tasks: an assignment of this size takes half a second."""
MAX_PARTITIONS_TO_CREATE = 50_000
"""The limit on the partitions of the missing internal topics of a topology."""
ASSIGNMENT_SIZE_PER_TURN = 500
"""Tasks and members of the largest target assignment that is computed in one turn: five milliseconds. The broker
computes a larger assignment in slices, and members receive it with a later heartbeat (Kafka:
`group.streams.assignor.offload.enable`).
"""


class ResolvedTopology(NamedTuple):
    """A topology that was compared with the topics of the cluster."""

    topology: StreamsTopology
    version: int
    """The version of the cluster's metadata."""
    configured: ConfiguredTopology


@dataclass(slots=True)
class _HeartbeatInProgress:
    """The request, the change and the response values of one heartbeat while it is handled."""

    request: StreamsHeartbeat
    resolved: ResolvedTopology | None
    change: StreamsGroupChange
    statuses: list[tuple[Status, str]] = field(default_factory=list)
    is_delayed: bool = False
    """Whether the group waits for more members before its first assignment."""
    delay_ms: int = 0
    """The initial rebalance delay that begins with this heartbeat."""
    needs_assignment: bool = False
    """Whether a target assignment has to be computed in slices once the change is in the log."""


class StreamsGroupManager(GroupWithStaticMembersManager[StreamsGroup]):
    """The rebalance protocol of all streams groups of this broker.

    Owned by the group coordinator and used on the loop's thread only.
    """

    HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
    SESSION_TIMEOUT = "streams.session.timeout.ms"
    ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        group_manager: GroupMetadataManager,
        classic: ClassicGroupManager,
        metadata: MetadataCache,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        sliced_work: SlicedWork,
        streams_version: Callable[[], int],
    ) -> None:
        """`streams_version` returns the level of the feature `streams.version`."""
        super().__init__(config, dynamic_config, group_manager, classic, metadata, ports, loop)
        self._streams_version = streams_version
        self._sliced_work = sliced_work
        self._in_computation: set[StreamsGroup] = set()
        """The groups whose target assignment is being computed in slices."""
        self._in_resolution: set[StreamsGroup] = set()
        """The groups whose topology is being compared with the topics of the cluster in slices."""
        self._initial_delays: MemberTimers[StreamsGroup] = MemberTimers(loop, self._initial_delay_ended)
        """The ends of the initial rebalance delays of groups."""
        self._deadlines = (*self._deadlines, self._initial_delays)

    @property
    def are_served(self) -> bool:
        """Whether the streams protocol is in effect, which requires a level of `streams.version`."""
        is_configured = PROTOCOL in self._config.group_coordinator_rebalance_protocols
        return is_configured and self._streams_version() >= SINCE_STREAMS_GROUPS

    def get_streams_group(self, group_id: str) -> StreamsGroup:
        """Return a streams group. Raises KafkaError GROUP_ID_NOT_FOUND, also for a group of another type."""
        group = self._group_manager.get_group(group_id)
        if not isinstance(group, StreamsGroup):
            raise _not_a_streams_group(group_id)
        return group

    # -- StreamsGroupHeartbeat -----------------------------------------------------------------------------------------

    def must_resolve_topology(self, beat: StreamsHeartbeat, resolved: ResolvedTopology | None = None) -> bool:
        """Return whether `resolve_topology` has to run before the heartbeat can be handled.

        `resolved` is the result of its last run, which is enough even if topics have changed since: a later heartbeat
        compares them again. Raises KafkaError if this broker is not the coordinator of the group.
        """
        if beat.is_leaving:
            return False
        group, topology = self._topology_of(beat)
        if topology is None or (resolved is not None and resolved.topology is topology):
            return False
        if group is None or group.configured_topology is None:
            return True
        return group.checked_version != self._metadata.version and group not in self._in_resolution

    def resolve_topology(self, beat: StreamsHeartbeat) -> Steps[ResolvedTopology | None]:
        """Compare the topology of a group, or of its first member, with the topics of the cluster, in steps.

        Raises KafkaError STREAMS_INVALID_TOPOLOGY for a topology that no topics can satisfy, or with too many tasks.
        """
        group, topology = self._topology_of(beat)
        if topology is None:
            return None
        # In one step: topics may be created and deleted between the others. These are lookups, the rest takes longer.
        version = self._metadata.version
        topics = {name: self._metadata.topic(name) for name in topology.all_topics}
        required = {name: topics[name] for name in topology.required_topics}
        if group is not None:
            self._in_resolution.add(group)
        try:
            yield
            metadata_hash = yield from self._subscription_metadata.hash_topics(required)
            present = None if group is None else group.configured_topology
            if present is not None and present.metadata_hash == metadata_hash:
                return ResolvedTopology(topology, version, present)
            counts = {name: len(topic.partitions) for name, topic in topics.items() if topic is not None}
            configured = yield from configure_topics(topology, metadata_hash, counts.get)
            self._check_size(configured, beat.group_id)
            return ResolvedTopology(topology, version, configured)
        finally:
            if group is not None:
                self._in_resolution.discard(group)

    def _topology_of(self, beat: StreamsHeartbeat) -> tuple[StreamsGroup | None, StreamsTopology | None]:
        """Return the group of a heartbeat with its topology, which is that of its first member. Raises KafkaError."""
        found = self._group_manager.find_group(beat.group_id)
        if not isinstance(found, StreamsGroup):
            return None, beat.topology
        return found, found.topology or beat.topology

    def streams_group_heartbeat(
        self, beat: StreamsHeartbeat, reply: StreamsHeartbeatReply, resolved: ResolvedTopology | None = None
    ) -> None:
        """Handle a StreamsGroupHeartbeat that `StreamsHeartbeat.check` has accepted.

        `reply` receives the response when it is durable. `resolved` is the result of `resolve_topology` if
        `must_resolve_topology` required it. Raises KafkaError.
        """
        if beat.is_leaving:
            self._leave_streams_group(self.get_streams_group(beat.group_id), beat, reply)
            return
        found = self._group_manager.find_group(beat.group_id)
        if isinstance(found, StreamsGroup):
            self._apply_heartbeat(_HeartbeatInProgress(beat, resolved, StreamsGroupChange(found)), reply)
        elif beat.is_joining:
            self._create(found, beat, resolved, reply)
        elif found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {beat.group_id} not found.")
        else:
            raise _not_a_streams_group(beat.group_id)

    def _create(
        self,
        found: Group | None,
        beat: StreamsHeartbeat,
        resolved: ResolvedTopology | None,
        reply: StreamsHeartbeatReply,
    ) -> None:
        """Create a streams group for the first member, or in the place of an empty classic group."""
        group = StreamsGroup(beat.group_id)
        first = _HeartbeatInProgress(beat, resolved, StreamsGroupChange(group))
        if found is None:
            client = ClientIdentity(beat.client_host, beat.client_id)
            self._group_manager.check_creation_limit(client)
            if self._apply_heartbeat(first, reply):
                self._group_manager.add_group(group, client)
            return
        if not isinstance(found, ClassicGroup) or not found.is_empty:
            raise _not_a_streams_group(beat.group_id)
        group.offsets = found.offsets
        if self._apply_heartbeat(first, reply, before=new_group_tombstones(found)):
            logger.info("group %r: the empty classic group became a streams group", beat.group_id)
            self._classic.on_group_unloaded(found, ErrorCode.REBALANCE_IN_PROGRESS)
            self._group_manager.replace_group(group)

    def _apply_heartbeat(
        self, beat: _HeartbeatInProgress, reply: StreamsHeartbeatReply, *, before: Iterable[CoordinatorRecord] = ()
    ) -> bool:
        """Let a member join or advance; return whether the change is in the log. Raises KafkaError."""
        with beat.change.undo_on_error():
            return self._heartbeat_member(beat, reply, before)

    def _heartbeat_member(
        self, beat: _HeartbeatInProgress, reply: StreamsHeartbeatReply, before: Iterable[CoordinatorRecord]
    ) -> bool:
        request, change, group = beat.request, beat.change, beat.change.group
        was_empty = group.is_empty
        if request.is_joining:
            member = self._find_or_create_member(change, request)
        else:
            member = group.get_valid_member(request.member_id, request.instance_id)
            _check_epoch(member, request)
        updated = _with_heartbeat(member, request)
        must_bump = updated is not member and (request.instance_id is None or _affects_assignment(member, updated))
        change.put_member(updated)
        must_bump |= self._configure_topology(beat, updated)
        self._check_tasks(group, request)
        self._set_task_offsets(change, request)
        self._maybe_bump_epoch(change, must_bump=must_bump)
        self._maybe_update_target_assignment(beat, was_empty=was_empty)
        target = TasksTuple() if beat.is_delayed else group.targets.get(updated.member_id, TasksTuple())
        updated = build_current_assignment(updated, group.assignment_epoch, target, request.owned, group)
        change.put_member(updated)
        if request.shutdown_application:
            self._request_shutdown(group, updated.member_id)
        return self._write_and_reply(beat, reply, member=member, updated=updated, before=before)

    # -- members -------------------------------------------------------------------------------------------------------

    def _find_or_create_member(self, change: StreamsGroupChange, request: StreamsHeartbeat) -> StreamsGroupMember:
        """Return the joining member: a new member, or the existing member in its present state.

        A member joins again after it was fenced, or because the response to its join was lost; a static member that
        returns with a new id takes over its former state.
        """
        group, most_members = change.group, self._config.group_streams_max_size
        present = group.static_member(request.instance_id)
        if present is None and len(group.members) >= most_members and request.member_id not in group.members:
            reason = f"The streams group has reached its maximum capacity of {most_members} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
        if present is not None:
            return _replace_static_member(change, present, request.member_id)
        member = group.members.get(request.member_id)
        if member is None:
            logger.info("group %r: member %r joins", group.group_id, request.member_id)
            return StreamsGroupMember(request.member_id)
        return member

    # -- topology ------------------------------------------------------------------------------------------------------

    def _configure_topology(self, beat: _HeartbeatInProgress, member: StreamsGroupMember) -> bool:
        """Set a first topology, and its configuration if its topics have changed; return whether that affects tasks."""
        change, group = beat.change, beat.change.group
        topology = _updated_topology(change, beat.request)
        if member.topology_epoch < topology.epoch and group.topology_epoch != NO_TOPOLOGY_EPOCH:
            detail = (
                f"The member's topology epoch {member.topology_epoch} is older than the group's topology epoch "
                f"{topology.epoch}."
            )
            beat.statuses.append((Status.STALE_TOPOLOGY, detail))
        resolved, present = beat.resolved, group.configured_topology
        if resolved is None or (present is not None and resolved.version <= group.checked_version):
            assert present is not None, "the topology is resolved before the heartbeat is handled"
            return False
        configured = resolved.configured
        if present is None or present.metadata_hash != configured.metadata_hash:
            group.configured_topology = configured
            group.endpoint_cache.clear()
            if configured.error is not None:
                logger.info("group %r: topology is not ready: %s", group.group_id, configured.error.message)
        group.checked_version = resolved.version
        return configured.metadata_hash != group.metadata_hash

    def _check_size(self, configured: ConfiguredTopology, group_id: str) -> None:
        """Raise KafkaError STREAMS_INVALID_TOPOLOGY for more tasks or missing partitions than a topology can have."""
        count = sum(one.task_count for one in (configured.subtopologies or {}).values())
        count *= 1 + self._number_of_standby_replicas(group_id)
        if count > MAX_TASKS:
            reason = f"The topology has {count} tasks and standby tasks; the limit is {MAX_TASKS}."
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
        # The limit on tasks does not bound them: the tasks of a subtopology are as many as the partitions of its
        # largest topic.
        partitions = sum(topic.partition_count for topic in configured.internal_topics_to_create.values())
        if partitions > MAX_PARTITIONS_TO_CREATE:
            reason = (
                f"The missing internal topics of the topology have {partitions} partitions; the limit is "
                f"{MAX_PARTITIONS_TO_CREATE}."
            )
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)

    def _partition_count(self, name: str) -> int | None:
        topic = self._metadata.topic(name)
        return None if topic is None else len(topic.partitions)

    @staticmethod
    def _check_tasks(group: StreamsGroup, request: StreamsHeartbeat) -> None:
        """Raise KafkaError INVALID_REQUEST if the heartbeat has tasks that do not exist."""
        configured = group.configured_topology
        if request.owned is None or configured is None or not configured.is_ready:
            return
        for tasks in (request.owned.active, request.owned.standby, request.owned.warmup):
            _check_tasks_exist(tasks, configured.subtopologies or {})

    @staticmethod
    def _set_task_offsets(change: StreamsGroupChange, request: StreamsHeartbeat) -> None:
        if request.task_offsets is None and request.task_end_offsets is None:
            return
        former = change.group.task_offsets.get(request.member_id, NO_TASK_OFFSETS)
        offsets = former.offsets if request.task_offsets is None else request.task_offsets
        end_offsets = former.end_offsets if request.task_end_offsets is None else request.task_end_offsets
        change.set_task_offsets(request.member_id, MemberTaskOffsets(offsets, end_offsets))

    # -- target assignment ---------------------------------------------------------------------------------------------

    def _maybe_bump_epoch(self, change: StreamsGroupChange, *, must_bump: bool) -> None:
        """Bump the group epoch if required, or if the state of the topics or a setting has changed."""
        group = change.group
        configured = group.configured_topology
        assert configured is not None
        validated = configured.topology_epoch if configured.is_ready else NO_TOPOLOGY_EPOCH
        configs = self._assignment_configs(group.group_id)
        if must_bump or (validated, configs) != (group.validated_topology_epoch, group.last_assignment_configs):
            change.bump_epoch_for(configured.metadata_hash, validated, configs)

    def _maybe_update_target_assignment(self, beat: _HeartbeatInProgress, *, was_empty: bool) -> None:
        group = beat.change.group
        if was_empty:
            beat.delay_ms = self._setting(group, "streams.initial.rebalance.delay.ms")
        if beat.delay_ms > 0 or self._initial_delays.has(group, WHOLE_GROUP):
            beat.is_delayed = True
            detail = "Assignment delayed due to the configured initial rebalance delay."
            beat.statuses.append((Status.ASSIGNMENT_DELAYED, detail))
            return
        if group.epoch <= group.assignment_epoch:
            return
        now_ms = self._now_ms()
        if not group.can_compute_target_assignment(self._assignment_interval_ms(group), now_ms):
            detail = "Assignment delayed due to the configured assignment interval."
            beat.statuses.append((Status.ASSIGNMENT_DELAYED, detail))
            return
        if size_of_target_assignment(group) > ASSIGNMENT_SIZE_PER_TURN:
            beat.needs_assignment = True
            beat.statuses.append((Status.ASSIGNMENT_DELAYED, "The assignment is being computed."))
            return
        build_target_assignment(beat.change, now_ms)

    def _compute_in_slices(self, group: StreamsGroup) -> None:
        """Compute the target assignment of a large group, unless a computation is in progress.

        The assignment is used even if the group epoch has changed during the computation: otherwise no assignment would
        be used while members join. It is dropped if the topics have changed.
        """
        if group in self._in_computation:
            return
        self._in_computation.add(group)
        epoch, configured = group.epoch, group.configured_topology

        def computed(targets: dict[str, TasksTuple] | None, failure: Exception | None) -> None:
            self._in_computation.discard(group)
            if targets is None:
                logger.error("group %r: no assignment could be computed", group.group_id, exc_info=failure)
                return
            is_current = group.configured_topology is configured and group.assignment_epoch < epoch <= group.epoch
            if is_current and not group.is_dead:
                change = StreamsGroupChange(group)
                set_target_assignment(change, epoch, targets, self._now_ms())
                # If the append fails, the next heartbeat begins another computation.
                self._write(change, ignore)

        self._sliced_work.run(compute_target_assignment(group), computed)

    def _initial_delay_ended(self, group: StreamsGroup, _key: str) -> None:
        """Compute the first target assignment of a group whose initial rebalance delay has passed."""
        if group.is_dead or group.is_empty or group.configured_topology is None:
            return
        if group.epoch <= group.assignment_epoch:
            return
        if size_of_target_assignment(group) > ASSIGNMENT_SIZE_PER_TURN:
            self._compute_in_slices(group)
            return
        change = StreamsGroupChange(group)
        build_target_assignment(change, self._now_ms())
        # If the append fails, the next heartbeat computes the assignment.
        self._write(change, ignore)

    # -- responses -----------------------------------------------------------------------------------------------------

    def _write_and_reply(
        self,
        beat: _HeartbeatInProgress,
        reply: StreamsHeartbeatReply,
        *,
        member: StreamsGroupMember,
        updated: StreamsGroupMember,
        before: Iterable[CoordinatorRecord],
    ) -> bool:
        request, group = beat.request, beat.change.group
        # A member that reports other tasks than its own has not received the response with its assignment.
        has_other_tasks = request.owned is not None and not request.owned.is_equal(updated.assigned)
        has_new_assignment = request.is_joining or updated.assigned != member.assigned or has_other_tasks
        has_new_endpoint = updated.user_endpoint != member.user_endpoint
        if has_new_endpoint or (updated.assigned != member.assigned and updated.user_endpoint is not None):
            # The largest epoch is followed by 0: members compare epochs for equality only.
            group.endpoint_information_epoch = (group.endpoint_information_epoch + 1) % (LAST_EPOCH + 1)
        configured = group.configured_topology
        assert configured is not None
        result = StreamsHeartbeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(group),
            task_offset_interval_ms=self._setting(group, "streams.task.offset.interval.ms"),
            acceptable_recovery_lag=self._setting(group, "streams.acceptable.recovery.lag"),
            statuses=self._statuses(beat, updated, configured),
            assigned=updated.assigned if has_new_assignment else None,
            endpoint_information_epoch=group.endpoint_information_epoch,
            endpoints=self._endpoints(group, request),
            internal_topics_to_create=configured.internal_topics_to_create,
        )

        def done(outcome: ErrorCode) -> None:
            reply(result if outcome is ErrorCode.NONE else StreamsHeartbeatResult(outcome))

        if not self._write(beat.change, done, before=before):
            return False
        self._sessions.restart(group, updated.member_id, self._session_timeout_ms(group))
        self._watch_revocation(group, member, updated)
        if beat.delay_ms > 0:
            self._initial_delays.begin(group, WHOLE_GROUP, beat.delay_ms)
        if beat.needs_assignment:
            self._compute_in_slices(group)
        return True

    def _statuses(
        self, beat: _HeartbeatInProgress, member: StreamsGroupMember, configured: ConfiguredTopology
    ) -> Sequence[tuple[Status, str]]:
        group, statuses = beat.change.group, beat.statuses
        if configured.error is not None:
            statuses.append((configured.error.status, configured.error.message))
        if group.shutdown_request_member_id is not None:
            detail = (
                f"Streams group member {group.shutdown_request_member_id} encountered a fatal error and requested a "
                "shutdown for the entire application."
            )
            statuses.append((Status.SHUTDOWN_APPLICATION, detail))
        tags = group.last_assignment_configs.get(RACK_AWARE_ASSIGNMENT_TAGS)
        if tags and beat.request.version >= FIRST_VERSION_WITH_TAG_STATUS:
            missing = [tag for tag in map(str.strip, tags.split(",")) if tag not in member.client_tags]
            if missing:
                detail = (
                    f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
                    "Configure them via 'client.tag.<tagKey>' in your Streams config."
                )
                statuses.append((Status.MISSING_CLIENT_TAGS, detail))
        return statuses

    def _endpoints(self, group: StreamsGroup, request: StreamsHeartbeat) -> list[EndpointToPartitions] | None:
        """Return the partitions of all members with endpoints, None if the member has the present ones."""
        if group.endpoint_information_epoch == request.endpoint_information_epoch:
            return None
        found = []
        for member_id, member in group.members.items():
            if member.user_endpoint is None:
                continue
            cached = group.endpoint_cache.get(member_id)
            if cached is None:
                cached = endpoint_to_partitions(member, group.configured_topology, self._partition_count)
                assert cached is not None
                group.endpoint_cache[member_id] = cached
            found.append(cached)
        return found

    # -- leaving and deadlines -----------------------------------------------------------------------------------------

    def _leave_streams_group(
        self, group: StreamsGroup, request: StreamsHeartbeat, reply: StreamsHeartbeatReply
    ) -> None:
        """Remove a member, or mark a static one as absent. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = group.get_valid_member(request.member_id, request.instance_id)
        if request.shutdown_application:
            self._request_shutdown(group, member.member_id)
        result = StreamsHeartbeatResult(member_id=member.member_id, epoch=request.epoch)

        def done(outcome: ErrorCode) -> None:
            reply(result if outcome is ErrorCode.NONE else StreamsHeartbeatResult(outcome))

        if request.epoch == STATIC_LEAVE_EPOCH:
            # With assignment epoch 0, the member may commit with any epoch after it has returned with another id.
            assigned = member.assigned.with_active_epochs(0)
            absent = replace(member, epoch=STATIC_LEAVE_EPOCH, assigned=assigned, revoking=TasksTupleWithEpochs())
            self._leave_for_now(StreamsGroupChange(group), absent, done)
            return
        logger.info("group %r: member %r leaves", group.group_id, member.member_id)
        self._remove_members(group, [member.member_id], done)

    @staticmethod
    def _request_shutdown(group: StreamsGroup, member_id: str) -> None:
        if group.shutdown_request_member_id is None:
            logger.info("group %r: member %r requests the shutdown of the application", group.group_id, member_id)
            group.shutdown_request_member_id = member_id

    def _remove_members(self, group: StreamsGroup, member_ids: list[str], done: ResponseCallback) -> bool:
        """Remove members and bump the group epoch; return whether the change is in the log."""
        change = StreamsGroupChange(group)
        for member_id in member_ids:
            change.remove_member(member_id)
        # The next heartbeat of another member computes the target assignment.
        change.bump_epoch(group.metadata_hash)
        if group.is_empty:
            # Without members there is no assignment, and the next member does not wait for the assignment interval.
            change.set_assignment_epoch(0)
        return self._write(change, done)

    # -- the classic protocol ------------------------------------------------------------------------------------------

    def join(self, group: StreamsGroup, joining: JoinRequest) -> None:
        """Handle the JoinGroup of a classic member: an empty group becomes a classic group."""
        if not group.is_empty:
            super().join(group, joining)
            return
        classic = self._downgrade_empty(group)
        logger.info("group %r: the empty streams group became a classic group", group.group_id)
        self._classic.join(classic, joining)

    # -- settings ------------------------------------------------------------------------------------------------------

    def _number_of_standby_replicas(self, group_id: str) -> int:
        return self._dynamic_config.group_number(group_id, "streams.num.standby.replicas")

    def _assignment_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the settings of an assignment under Kafka's keys, as records have them."""
        configs = {NUM_STANDBY_REPLICAS: str(self._number_of_standby_replicas(group_id))}
        own = self._dynamic_config.named_config(ConfigResourceType.GROUP, group_id)
        tags = own.get("streams.rack.aware.assignment.tags")
        if tags is None:
            tags = ",".join(self._config.group_streams_rack_aware_assignment_tags)
        if tags:
            configs[RACK_AWARE_ASSIGNMENT_TAGS] = tags
        return configs


def _not_a_streams_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")


def _check_epoch(member: StreamsGroupMember, request: StreamsHeartbeat) -> None:
    """Raise KafkaError FENCED_MEMBER_EPOCH for a heartbeat with another epoch than the member's.

    The previous epoch is accepted while the member owns only its own tasks: a response may have been lost.
    """
    if request.epoch == member.epoch:
        return
    is_late = request.epoch < member.epoch and request.epoch == member.previous_epoch
    if is_late and request.owned is not None and request.owned.is_within(member.assigned):
        return
    relation = "greater" if request.epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({request.epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _updated_topology(change: StreamsGroupChange, request: StreamsHeartbeat) -> StreamsTopology:
    """Return the topology of the group; the first member sets it.

    Raises KafkaError INVALID_REQUEST for another topology of the same or a later epoch.
    """
    present, requested = change.group.topology, request.topology
    if present is None:
        if requested is None:
            # The log has members without a topology: a member sends its topology when it joins again.
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The group has no topology. The member must rejoin.")
        change.set_topology(requested, request.topology_value)
        return requested
    if requested is None or requested.epoch < present.epoch:
        return present
    if requested != present:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return present


def _check_tasks_exist(tasks: Tasks, subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    for name, partitions in (tasks or NO_TASKS).items():
        subtopology = subtopologies.get(name)
        if subtopology is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Subtopology {name} does not exist in the topology.")
        for partition in partitions:
            if not 0 <= partition < subtopology.task_count:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {partition} for subtopology {name} is invalid. Number of tasks for this subtopology: "
                    f"{subtopology.task_count}",
                )


def _replace_static_member(
    change: StreamsGroupChange, former: StreamsGroupMember, member_id: str
) -> StreamsGroupMember:
    """Give a static member that restarted its new member id and the target assignment of its former one.

    Raises KafkaError UNRELEASED_INSTANCE_ID while the former member has not left.
    """
    if not former.has_left_for_now:
        if former.member_id == member_id:
            return former  # the response to its join was lost, or it joins again after it was fenced
        reason = (
            f"Static member {member_id} with instance id {former.instance_id} cannot join the group because the "
            f"instance id is owned by {former.member_id} member."
        )
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, reason)
    member = replace(former, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    change.replace_member(former, member)
    return member


def _with_heartbeat(member: StreamsGroupMember, request: StreamsHeartbeat) -> StreamsGroupMember:
    """Return the member with the values that its heartbeat sets; the same object if nothing changes."""
    endpoint = request.user_endpoint
    if endpoint is None and not request.is_joining:
        endpoint = member.user_endpoint
    timeout_ms = request.rebalance_timeout_ms
    wanted = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=endpoint,
        client_tags=member.client_tags if request.client_tags is None else request.client_tags,
        client_id=request.client_id,
        client_host=request.client_host,
    )
    return member if wanted == member else wanted


def _affects_assignment(member: StreamsGroupMember, updated: StreamsGroupMember) -> bool:
    """Return whether a static member has changed in a way that requires another assignment."""
    return (member.topology_epoch, member.rack_id, member.client_tags, member.process_id) != (
        updated.topology_epoch,
        updated.rack_id,
        updated.client_tags,
        updated.process_id,
    )

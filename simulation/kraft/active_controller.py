"""The active controller of a modelled quorum: requests of brokers and operators, made into records.

It follows the rules of Kafka's ClusterControlManager, BrokerHeartbeatManager and ReplicationControlManager, without
eligible leader replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Protocol
from uuid import UUID

from ...protocol import metadata_records as r
from ...protocol.errors import ErrorCode
from ...protocol.messages import allocate_producer_ids as ids
from ...protocol.messages import alter_partition as alter
from ...protocol.messages import assign_replicas_to_dirs as assign
from ...protocol.messages import broker_heartbeat as heartbeat
from ...protocol.messages import broker_registration as registration
from ...protocol.messages import create_topics as create
from .metadata_state import (
    LOST,
    NO_LEADER,
    TOPIC_RESOURCE,
    UNASSIGNED,
    UNCHANGED,
    MetadataState,
    ModelBroker,
    ModelPartition,
    PartitionKey,
)

PRODUCER_IDS = 1000
ANY_EPOCH = -1


class NotLeaderError(Exception):
    """The controller is not the leader any more: the fate of its uncommitted records is unknown."""


class MetadataLog(Protocol):
    """The log of a leader. A Protocol because the module with the log, `quorum`, imports this one."""

    @property
    def end(self) -> int: ...

    @property
    def state(self) -> MetadataState: ...

    @property
    def is_in_transaction(self) -> bool: ...

    def append(self, records: Sequence[Any]) -> int: ...

    async def committed(self, end: int) -> None: ...

    async def outside_transaction(self) -> None: ...


class ActiveController:
    """Appends the records of a request, and responds when they are committed. It lives as long as its term."""

    def __init__(self, session: float, rng: Random, now: Callable[[], float], log: MetadataLog) -> None:
        self._session = session
        self._random = rng
        self._now = now
        self._log = log
        self._deadlines: dict[int, float] = {}
        """When the session of each broker ends."""
        self._offsets: dict[int, int] = {}
        """The metadata offset in the last heartbeat of each broker."""
        self._shutdown_offsets: dict[int, int] = {}
        self._handlers: dict[type, Callable[[Any], Any]] = {
            registration.BrokerRegistrationRequest: self._register,
            heartbeat.BrokerHeartbeatRequest: self._heartbeat,
            alter.AlterPartitionRequest: self._alter_partitions,
            assign.AssignReplicasToDirsRequest: self._assign_directories,
            ids.AllocateProducerIdsRequest: self._allocate_producer_ids,
            create.CreateTopicsRequest: self._create_topics,
        }

    @property
    def state(self) -> MetadataState:
        """Return the metadata with uncommitted records, as Kafka's controller uses them."""
        return self._log.state

    def activate(self) -> None:
        """Begin: all sessions begin, and a transaction of a former leader is aborted."""
        if self._log.is_in_transaction:
            self._log.append([r.AbortTransactionRecord(reason="failover")])
        for broker_id in self.state.brokers:
            self._touch(broker_id)

    async def handle(self, request: Any) -> Any:
        """Return the response when all records before it are committed. Raises NotLeaderError."""
        await self._log.outside_transaction()
        response = self._handlers[type(request)](request)
        await self._log.committed(self._log.end)
        return response

    def serves(self, request: Any) -> bool:
        """Return whether the controller has a handler for a request."""
        return type(request) in self._handlers

    def _append(self, records: Iterable[Any]) -> None:
        records = list(records)
        if records:
            self._log.append(records)

    def _is_stale(self, broker_id: int, epoch: int) -> bool:
        broker = self.state.brokers.get(broker_id)
        return broker is None or broker.epoch != epoch

    # -- brokers -----------------------------------------------------------------------------------------------------

    def _touch(self, broker_id: int) -> None:
        self._deadlines[broker_id] = self._now() + self._session

    def _has_session(self, broker_id: int) -> bool:
        return self._deadlines.get(broker_id, 0.0) > self._now()

    def _register(self, request: registration.BrokerRegistrationRequest) -> Any:
        broker_id, state = request.broker_id, self.state
        former = state.brokers.get(broker_id)
        levels = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
        for name, level in state.features.items():
            lowest, highest = levels.get(name, (0, 0))
            if not lowest <= level <= highest:
                return registration.BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        is_same = former is not None and former.incarnation_id == request.incarnation_id
        if former is not None and not is_same and self._has_session(broker_id) and not former.fenced:
            return registration.BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        records: list[Any] = []
        if former is not None and not is_same:
            # The new process may have lost records of the former process.
            records += self._removal(broker_id)
        epoch = former.epoch if is_same and former is not None else self._log.end
        record = r.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                r.BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in request.listeners
            ],
            features=[
                r.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in levels.items()
            ],
            rack=request.rack,
            fenced=former.fenced if is_same and former is not None else True,
            in_controlled_shutdown=former.leaving if is_same and former is not None else False,
            log_dirs=sorted(request.log_dirs),
        )
        self._append([*records, record])
        self._offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        self._touch(broker_id)
        return registration.BrokerRegistrationResponse(broker_epoch=epoch)

    def _heartbeat(self, request: heartbeat.BrokerHeartbeatRequest) -> Any:
        broker_id = request.broker_id
        broker = self.state.brokers.get(broker_id)
        if broker is None:
            return heartbeat.BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.epoch != request.broker_epoch:
            return heartbeat.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        self._touch(broker_id)
        offset = self._offsets[broker_id] = request.current_metadata_offset
        is_caught_up = offset >= broker.registered_at
        offline = set(request.offline_log_dirs) & set(broker.directories)
        if offline:
            self._append(self._directories_failed(broker_id, broker, offline))
            broker = self.state.brokers[broker_id]
        may_leave = False
        if broker.fenced:
            may_leave = request.want_shut_down
            if not request.want_shut_down and not request.want_fence and is_caught_up:
                self._append(self._unfencing(broker_id, broker))
        elif request.want_fence:
            self._append(self._fencing(broker_id))
            may_leave = request.want_shut_down
        elif request.want_shut_down:
            may_leave = self._leaves(broker_id, broker)
        now = self.state.brokers[broker_id]
        return heartbeat.BrokerHeartbeatResponse(
            is_caught_up=is_caught_up, is_fenced=now.fenced, should_shut_down=may_leave
        )

    def _leaves(self, broker_id: int, broker: ModelBroker) -> bool:
        """Move the leaders of a broker; return whether all other brokers have applied that."""
        if not broker.leaving:
            change = r.BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
            )
            had_leaders = any(one.leader == broker_id for one in self.state.partitions.values())
            self._append([change, *self._removal(broker_id)])
            self._shutdown_offsets[broker_id] = self._log.end - 1
            if had_leaders:
                return False
        if any(one.leader == broker_id for one in self.state.partitions.values()):
            return False
        active = [one for one, other in self.state.brokers.items() if other.is_active]
        lowest = min((self._offsets.get(one, -1) for one in active), default=self._log.end)
        if lowest < self._shutdown_offsets.get(broker_id, self._log.end - 1):
            self._shutdown_offsets.setdefault(broker_id, self._log.end - 1)
            return False
        self._append(self._fencing(broker_id))
        return True

    def fence_expired(self) -> None:
        """Fence the brokers whose sessions have ended."""
        if self._log.is_in_transaction:
            return
        for broker_id, broker in list(self.state.brokers.items()):
            if not broker.fenced and not self._has_session(broker_id):
                self._append(self._fencing(broker_id))

    def unregister(self, broker_id: int) -> None:
        """Remove the registration of a broker (UnregisterBroker)."""
        broker = self.state.brokers.get(broker_id)
        if broker is not None and broker.fenced:
            self._append(
                [*self._removal(broker_id), r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)]
            )

    def _fencing(self, broker_id: int) -> list[Any]:
        epoch = self.state.brokers[broker_id].epoch
        change = r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1)
        return [change, *self._removal(broker_id)]

    def _unfencing(self, broker_id: int, broker: ModelBroker) -> list[Any]:
        change = r.BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            fenced=-1,
            in_controlled_shutdown=-1 if broker.leaving else 0,
        )
        records: list[Any] = [change]
        for key, one in self.state.partitions.items():
            if one.leader == NO_LEADER and broker_id in one.isr and self._has_directory(broker_id, one, broker):
                records.append(r.PartitionChangeRecord(topic_id=key[0], partition_id=key[1], leader=broker_id))
        return records

    def _removal(self, broker_id: int) -> list[Any]:
        """Remove a broker from all ISRs, and elect others where it leads. The last replica in sync remains."""
        return [
            record
            for key, one in self.state.partitions.items()
            if broker_id in one.isr and (record := self._without(key, one, broker_id)) is not None
        ]

    def _without(self, key: PartitionKey, one: ModelPartition, broker_id: int) -> Any:
        isr = tuple(other for other in one.isr if other != broker_id) or one.isr
        return self._change(key, one, isr=isr, excluded=broker_id)

    def _directories_failed(self, broker_id: int, broker: ModelBroker, offline: set[UUID]) -> list[Any]:
        online = [one for one in broker.directories if one not in offline]
        if not online:
            return []
        records: list[Any] = [
            r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=online)
        ]
        for key, one in self.state.partitions.items():
            if broker_id in one.isr and one.directory(broker_id) in offline:
                change = self._without(key, one, broker_id)
                if change is not None:
                    records.append(change)
        return records

    # -- partitions --------------------------------------------------------------------------------------------------

    @staticmethod
    def _has_directory(broker_id: int, one: ModelPartition, broker: ModelBroker) -> bool:
        directory = one.directory(broker_id)
        return directory == UNASSIGNED or (directory != LOST and directory in broker.directories)

    def _may_lead(self, broker_id: int, one: ModelPartition) -> bool:
        broker = self.state.brokers.get(broker_id)
        return broker is not None and broker.is_active and self._has_directory(broker_id, one, broker)

    def _change(
        self,
        key: PartitionKey,
        one: ModelPartition,
        *,
        isr: tuple[int, ...] | None = None,
        excluded: int = NO_LEADER,
        preferred: bool = False,
        **values: Any,
    ) -> Any:
        """Return the record of a change with the election that it requires; None if nothing changes."""
        record = r.PartitionChangeRecord(topic_id=key[0], partition_id=key[1], **values)
        replicas = one.replicas if record.replicas is None else tuple(record.replicas)
        directories = one.directories if record.directories is None else tuple(record.directories)
        after = one._replace(replicas=replicas, directories=directories)
        new_isr = one.isr if isr is None else isr
        if new_isr != one.isr:
            record.isr = list(new_isr)
        candidates = [
            broker_id
            for broker_id in replicas
            if broker_id in new_isr and broker_id != excluded and self._may_lead(broker_id, after)
        ]
        if not preferred and one.leader in candidates:
            leader = one.leader
        else:
            leader = candidates[0] if candidates else NO_LEADER
        if leader != one.leader or set(one.replicas) - set(replicas):
            # Also where a replica is removed: it may fetch no more as a follower of this epoch.
            record.leader = leader
        is_empty = record.leader == UNCHANGED and record.isr is None and not values
        return None if is_empty else record

    def _alter_partitions(self, request: alter.AlterPartitionRequest) -> Any:
        if self._is_stale(request.broker_id, request.broker_epoch):
            return alter.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        records: list[Any] = []
        topics = []
        for topic in request.topics:
            results = []
            for wanted in topic.partitions:
                result, record = self._alter_partition(request.broker_id, topic.topic_id, wanted)
                results.append(result)
                if record is not None:
                    records.append(record)
            topics.append(alter.ResponseTopicData(topic_id=topic.topic_id, partitions=results))
        self._append(records)
        return alter.AlterPartitionResponse(topics=topics)

    def _alter_partition(
        self, broker_id: int, topic_id: UUID, wanted: alter.PartitionData
    ) -> tuple[alter.ResponsePartitionData, Any]:
        def refused(error: ErrorCode) -> tuple[alter.ResponsePartitionData, Any]:
            return alter.ResponsePartitionData(partition_index=wanted.partition_index, error_code=error), None

        state, key = self.state, (topic_id, wanted.partition_index)
        if topic_id not in state.topics:
            return refused(ErrorCode.UNKNOWN_TOPIC_ID)
        one = state.partitions.get(key)
        if one is None:
            return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if wanted.leader_epoch > one.leader_epoch or wanted.partition_epoch > one.partition_epoch:
            return refused(ErrorCode.NOT_CONTROLLER)
        if wanted.leader_epoch < one.leader_epoch:
            return refused(ErrorCode.FENCED_LEADER_EPOCH)
        if broker_id != one.leader:
            return refused(ErrorCode.INVALID_REQUEST)
        if wanted.partition_epoch < one.partition_epoch:
            return refused(ErrorCode.INVALID_UPDATE_VERSION)
        epochs = {each.broker_id: each.broker_epoch for each in wanted.new_isr_with_epochs} or dict.fromkeys(
            wanted.new_isr, ANY_EPOCH
        )
        if not epochs.keys() <= set(one.replicas) or broker_id not in epochs:
            return refused(ErrorCode.INVALID_REQUEST)
        for member, epoch in epochs.items():
            broker = state.brokers.get(member)
            if broker is None or not broker.is_active or epoch not in (ANY_EPOCH, broker.epoch):
                return refused(ErrorCode.INELIGIBLE_REPLICA)
        isr = tuple(member for member in one.replicas if member in epochs)
        done = self._completion(one, isr)
        if done:
            isr = tuple(member for member in isr if member in done["replicas"])
        record = self._change(key, one, isr=isr, **done) if done or isr != one.isr else None
        after = one if record is None else _after(state, key, record)
        if after.leader != broker_id:
            return alter.ResponsePartitionData(partition_index=key[1], error_code=ErrorCode.NEW_LEADER_ELECTED), record
        return alter.ResponsePartitionData(
            partition_index=key[1],
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            partition_epoch=after.partition_epoch,
        ), record

    def _completion(self, one: ModelPartition, isr: tuple[int, ...]) -> dict[str, Any]:
        """Return the changes that complete a reassignment, if the ISR permits it."""
        target = tuple(member for member in one.replicas if member not in one.removing)
        if not (one.adding or one.removing) or not set(one.adding) <= set(isr) or not set(target) & set(isr):
            return {}
        return {
            "replicas": list(target),
            "directories": [one.directory(member) for member in target],
            "adding_replicas": [],
            "removing_replicas": [],
        }

    def _assign_directories(self, request: assign.AssignReplicasToDirsRequest) -> Any:
        if self._is_stale(request.broker_id, request.broker_epoch):
            return assign.AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        records: list[Any] = []
        directories = []
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                results = []
                for wanted in topic.partitions:
                    key = (topic.topic_id, wanted.partition_index)
                    error, record = self._assign_directory(request.broker_id, key, directory.id)
                    results.append(assign.ResponsePartitionData(partition_index=key[1], error_code=error))
                    records += [] if record is None else [record]
                topics.append(assign.ResponseTopicData(topic_id=topic.topic_id, partitions=results))
            directories.append(assign.ResponseDirectoryData(id=directory.id, topics=topics))
        self._append(records)
        return assign.AssignReplicasToDirsResponse(directories=directories)

    def _assign_directory(self, broker_id: int, key: PartitionKey, directory: UUID) -> tuple[ErrorCode, Any]:
        state = self.state
        if key[0] not in state.topics:
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        one = state.partitions.get(key)
        if one is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if broker_id not in one.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        if one.directory(broker_id) == directory:
            return ErrorCode.NONE, None
        assigned = [
            directory if replica == broker_id else known
            for replica, known in zip(one.replicas, one.directories, strict=True)
        ]
        if directory in state.brokers[broker_id].directories:
            return ErrorCode.NONE, r.PartitionChangeRecord(topic_id=key[0], partition_id=key[1], directories=assigned)
        isr = tuple(other for other in one.isr if other != broker_id) or one.isr
        return ErrorCode.NONE, self._change(key, one, isr=isr, excluded=broker_id, directories=assigned)

    def _allocate_producer_ids(self, request: ids.AllocateProducerIdsRequest) -> Any:
        if self._is_stale(request.broker_id, request.broker_epoch):
            return ids.AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        first = max(self.state.next_producer_id, 0)
        self._append(
            [
                r.ProducerIdsRecord(
                    broker_id=request.broker_id,
                    broker_epoch=request.broker_epoch,
                    next_producer_id=first + PRODUCER_IDS,
                )
            ]
        )
        return ids.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_IDS)

    # -- topics and settings -----------------------------------------------------------------------------------------

    def _create_topics(self, request: create.CreateTopicsRequest) -> Any:
        results = []
        for topic in request.topics:
            error = self.create_topic(
                topic.name,
                topic.num_partitions if topic.num_partitions > 0 else 1,
                topic.replication_factor if topic.replication_factor > 0 else len(self.state.brokers),
                {one.name: one.value or "" for one in topic.configs},
            )
            results.append(create.CreatableTopicResult(name=topic.name, error_code=error))
        return create.CreateTopicsResponse(topics=results)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str] | None = None
    ) -> ErrorCode:
        """Create a topic."""
        records = self.topic_records(name, partitions, replication_factor, config or {})
        if isinstance(records, ErrorCode):
            return records
        self._append(records)
        return ErrorCode.NONE

    def topic_records(
        self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> list[Any] | ErrorCode:
        """Return the records of a new topic, or the error."""
        state = self.state
        if self._log.is_in_transaction:
            return ErrorCode.NOT_CONTROLLER
        if state.topic_id(name) is not None:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        active = sorted(one for one, broker in state.brokers.items() if broker.is_active)
        if len(active) < replication_factor:
            return ErrorCode.INVALID_REPLICATION_FACTOR
        topic_id = UUID(bytes=self._random.randbytes(16), version=4)
        records: list[Any] = [r.TopicRecord(name=name, topic_id=topic_id)]
        records += [
            r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)
            for key, value in config.items()
        ]
        first = self._random.randrange(len(active))
        for index in range(partitions):
            replicas = [active[(first + index + other) % len(active)] for other in range(replication_factor)]
            records.append(self._partition_record(topic_id, index, replicas))
        return records

    def _partition_record(self, topic_id: UUID, index: int, replicas: list[int]) -> Any:
        return r.PartitionRecord(
            topic_id=topic_id,
            partition_id=index,
            replicas=replicas,
            directories=[self._new_directory(one) for one in replicas],
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )

    def _new_directory(self, broker_id: int) -> UUID:
        broker = self.state.brokers.get(broker_id)
        return broker.directories[0] if broker is not None and len(broker.directories) == 1 else UNASSIGNED

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if it exists."""
        topic_id = self.state.topic_id(name)
        if topic_id is not None and not self._log.is_in_transaction:
            self._append([r.RemoveTopicRecord(topic_id=topic_id)])

    def replace_topic(self, name: str, partitions: int, replication_factor: int) -> None:
        """Delete a topic and create another one of its name in one batch."""
        topic_id = self.state.topic_id(name)
        if topic_id is None or self._log.is_in_transaction:
            return
        active = sorted(one for one, broker in self.state.brokers.items() if broker.is_active)
        if len(active) < replication_factor:
            return
        new_id = UUID(bytes=self._random.randbytes(16), version=4)
        records: list[Any] = [r.RemoveTopicRecord(topic_id=topic_id), r.TopicRecord(name=name, topic_id=new_id)]
        records += [
            self._partition_record(new_id, index, self._random.sample(active, replication_factor))
            for index in range(partitions)
        ]
        self._append(records)

    def reassign(self, name: str, index: int, target: Sequence[int]) -> None:
        """Move a partition to other replicas."""
        topic_id = self.state.topic_id(name)
        one = None if topic_id is None else self.state.partitions.get((topic_id, index))
        if topic_id is None or one is None or one.adding or one.removing or self._log.is_in_transaction:
            return
        adding = [member for member in target if member not in one.replicas]
        removing = [member for member in one.replicas if member not in target]
        replicas = [*target, *removing]
        known = dict(zip(one.replicas, one.directories, strict=True))
        record = self._change(
            (topic_id, index),
            one,
            replicas=replicas,
            directories=[known.get(member) or self._new_directory(member) for member in replicas],
            adding_replicas=adding,
            removing_replicas=removing,
        )
        merged = _after(self.state, (topic_id, index), record)
        done = self._completion(merged, merged.isr)
        if done:
            # All target replicas are in sync already.
            isr = tuple(member for member in merged.isr if member in done["replicas"])
            record = self._change((topic_id, index), one, isr=isr, **done)
        self._append([record])

    def elect_preferred(self) -> None:
        """Elect the first replica of each partition where it is in sync."""
        if self._log.is_in_transaction:
            return
        records = []
        for key, one in self.state.partitions.items():
            first = one.replicas[0]
            if one.leader not in (NO_LEADER, first) and first in one.isr and self._may_lead(first, one):
                records.append(self._change(key, one, preferred=True))
        self._append(records)

    def grow(self, name: str) -> None:
        """Add a partition to a topic."""
        topic_id = self.state.topic_id(name)
        if topic_id is None or self._log.is_in_transaction:
            return
        indexes = [index for known, index in self.state.partitions if known == topic_id]
        first = self.state.partitions[topic_id, 0]
        active = sorted(one for one, broker in self.state.brokers.items() if broker.is_active)
        if len(active) >= len(first.replicas):
            replicas = self._random.sample(active, len(first.replicas))
            self._append([self._partition_record(topic_id, len(indexes), replicas)])

    def set_config(self, kind: int, name: str, key: str, value: str | None) -> None:
        """Set or remove a setting."""
        if self._log.is_in_transaction or (kind == TOPIC_RESOURCE and self.state.topic_id(name) is None):
            return
        self._append([r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)])

    def no_op(self) -> None:
        """Append a NoOpRecord, so that the offsets of brokers advance."""
        self._append([r.NoOpRecord()])

    # -- transactions ------------------------------------------------------------------------------------------------

    def begin_transaction(self, before: Sequence[Any], records: Sequence[Any]) -> bool:
        """Append records in front of a transaction, its begin and its first records in one batch."""
        if self._log.is_in_transaction:
            return False
        self._append([*before, r.BeginTransactionRecord(name="model"), *records])
        return True

    def end_transaction(self, records: Sequence[Any], *, abort: bool) -> None:
        """Append the last records of a transaction and its end."""
        if self._log.is_in_transaction:
            end = r.AbortTransactionRecord(reason="model") if abort else r.EndTransactionRecord()
            self._append([*records, end])


def _after(state: MetadataState, key: PartitionKey, record: Any) -> ModelPartition:
    """Return a partition after a change."""
    copy = MetadataState(topics=state.topics, partitions={key: state.partitions[key]})
    copy.replay(record, 0)
    return copy.partitions[key]

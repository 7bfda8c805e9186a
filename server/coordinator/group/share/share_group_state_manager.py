"""The share state of the partitions that share groups read: its initialization, deletion, and changes by operators.

The share coordinator stores the state, and the `Persister` sends requests to it. The group coordinator has the record
of the partitions with state (Kafka: ShareGroupStatePartitionMetadata, in GroupMetadataManager and
GroupCoordinatorService). The record is written before a request to the share coordinator and again after its response,
so that the request is repeated if the outcome is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from .....common.room_logger import room_logger
from .....protocol.errors import ErrorCode, KafkaError
from .....protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
)
from .....protocol.messages.delete_share_group_state import PartitionData as DeletedPartition
from .....protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from .....protocol.messages.initialize_share_group_state import PartitionData as InitializedPartition
from .....protocol.messages.read_share_group_state_summary import (
    PartitionData as SummaryPartition,
)
from .....protocol.messages.read_share_group_state_summary import (
    PartitionResult as SummaryResult,
)
from .....protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from ....runtime.loop_sharing import CountBudget, raise_error
from ....runtime.scheduler import IsolatedWork
from ...coordinator_log import ResponseCallback, ignore
from ...creation_limiter import ClientIdentity
from ..assignment import NOTHING, Assignment
from ..group import Group
from ..group_metadata_manager import GroupMetadataManager
from .share_group import InitializationCheck, ShareGroup, check_share_group
from .share_group_change import ShareGroupChange
from .share_state_store import ShareStateStore
from .state_partition_metadata import StatePartitionMetadata, Topics, TopicState

if TYPE_CHECKING:
    from ....config.broker_config import BrokerConfig
    from ....metadata.metadata_cache import MetadataCache, TopicImage
    from ....runtime.loop_sharing import SlicedWork, Steps

logger = room_logger("groups")

UNINITIALIZED_OFFSET = -1
"""The first fetch determines the start offset, by the group's `share.auto.offset.reset`."""
FIRST_OFFSET = 0
NOTHING_TO_DELETE = "There is no offset information to delete."

Write = Callable[[ShareGroupChange, ResponseCallback], bool]


class PartitionOutcome(Protocol):
    """The result for one partition in the responses of the share coordinator."""

    partition: int
    error_code: int
    error_message: str | None


class TopicOutcome(Protocol):
    """The result for one topic in the responses of the share coordinator."""

    topic_id: UUID

    @property
    def partitions(self) -> Iterable[PartitionOutcome]: ...


class OffsetError(NamedTuple):
    """The error for one partition or topic of an operator's request."""

    code: ErrorCode
    message: str | None = None


class ShareGroupStateManager:
    """The share state of the partitions of all share groups of this broker.

    Owned by the share group manager and used on the loop's thread only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        group_manager: GroupMetadataManager,
        metadata: MetadataCache,
        persister: ShareStateStore,
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        sliced_work: SlicedWork,
        write: Write,
    ) -> None:
        """`write` appends a change of a group, as `ShareGroupManager` does."""
        self._config = config
        self._group_manager = group_manager
        self._metadata = metadata
        self._persister = persister
        self._now_ms = now_ms
        self._loop = loop
        self._sliced_work = sliced_work
        self._write = write
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Cancel the requests to the share coordinator."""
        for task in list(self._tasks):
            task.cancel()

    # -- initialization ------------------------------------------------------------------------------------------------

    def begin_initialization(self, change: ShareGroupChange) -> InitializeShareGroupStateRequest | None:
        """Add the partitions of subscribed topics without share state to the record; return the request for them.

        The request is for `initialize`, when the change is durable. A partition whose initialization has not ended
        after `group.share.initialize.retry.interval.ms` is added again. Kafka:
        maybeCreateInitializeShareGroupStateRequest.
        """
        group, now_ms, version = change.group, self._now_ms(), self._metadata.version
        check = group.initialization_check
        if check is not None and check.is_valid(version, group, now_ms):
            return None
        known = group.state_partitions or StatePartitionMetadata()
        interval_ms = max(self._config.group_share_initialize_retry_interval_ms, self._config.offsets_commit_timeout_ms)
        missing: dict[UUID, TopicState] = {}
        until_ms = float("inf")
        for name in group.subscribed_topics:
            topic = self._metadata.topic(name)
            if topic is None:
                continue
            absent = topic.partitions.keys() - _partitions(known.initialized, topic.topic_id)
            begun = known.initializing.get(topic.topic_id)
            if absent and begun is not None and now_ms - begun.timestamp_ms < interval_ms:
                absent -= begun.partitions
                until_ms = min(until_ms, begun.timestamp_ms + interval_ms)
            if absent:
                missing[topic.topic_id] = TopicState(name, frozenset(absent), now_ms)
        if not missing:
            group.initialization_check = InitializationCheck(version, group.epoch, group.state_partitions, until_ms)
            return None
        change.set_state_partitions(known.begin_initialization(missing))
        return _initialization_request(group, known, missing)

    def initialize(self, group: ShareGroup, request: InitializeShareGroupStateRequest) -> None:
        """Send the request of `begin_initialization`, and write its outcome in the record."""
        self._start(self._initialize(group, request))

    async def _initialize(self, group: ShareGroup, request: InitializeShareGroupStateRequest) -> None:
        response = await self._persister.initialize_state(request)
        errors = _errors(response.results)
        if errors:
            logger.warning("group %r: share state is not initialized: %s", group.group_id, next(iter(errors.values())))
        self._end_initialization(group, request, is_successful=not errors)

    def _end_initialization(
        self, group: ShareGroup, request: InitializeShareGroupStateRequest, *, is_successful: bool
    ) -> None:
        """Move the partitions to `initialized`; after an error remove them, so that the next heartbeat tries again."""
        known = group.state_partitions
        if group.is_dead or known is None:
            return
        topics = {
            topic.topic_id: TopicState(
                begun.name, frozenset(one.partition for one in topic.partitions) & begun.partitions, self._now_ms()
            )
            for topic in request.topics
            # A topic that was deleted since the request is not in the record any more.
            if (begun := known.initializing.get(topic.topic_id)) is not None
        }
        if topics:
            change = ShareGroupChange(group)
            change.set_state_partitions(
                known.finish_initialization(topics) if is_successful else known.cancel_initialization(topics)
            )
            self._write(change, ignore)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- start offsets -------------------------------------------------------------------------------------------------

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[str, Mapping[int, int]], client: ClientIdentity
    ) -> dict[tuple[str, int], OffsetError]:
        """Set the start offsets of partitions, by topic name; partitions without share state get share state.

        Creates the group if it does not exist. Returns the errors of partitions. Raises KafkaError GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP, GROUP_MAX_SIZE_REACHED, or the error of a write.
        """
        budget = CountBudget()
        errors: dict[tuple[str, int], OffsetError] = {}
        names: dict[UUID, str] = {}
        valid: dict[UUID, dict[int, int]] = {}
        for name, of_topic in offsets.items():
            topic = self._metadata.topic(name)
            for partition, offset in of_topic.items():
                if topic is not None and partition in topic.partitions:
                    names[topic.topic_id] = name
                    valid.setdefault(topic.topic_id, {})[partition] = offset
                else:
                    errors[name, partition] = OffsetError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                await budget.step()
        found = self._group_manager.find_group(group_id)
        if found is None:
            self._group_manager.check_creation_limit(client)
        group = ShareGroup(group_id) if found is None else _check_empty(found)
        if not valid:
            return errors
        topics = {
            topic_id: TopicState(names[topic_id], frozenset(of_topic), self._now_ms())
            for topic_id, of_topic in valid.items()
        }
        request = InitializeShareGroupStateRequest(
            group_id=group_id,
            topics=[
                InitializeStateData(
                    topic_id=topic_id,
                    partitions=[
                        InitializedPartition(partition=partition, state_epoch=group.epoch, start_offset=offset)
                        for partition, offset in of_topic.items()
                    ],
                )
                for topic_id, of_topic in valid.items()
            ],
        )
        change = ShareGroupChange(group)
        change.set_state_partitions((group.state_partitions or StatePartitionMetadata()).begin_initialization(topics))
        is_written, durable = self._append(change)
        if is_written and found is None:
            self._group_manager.add_group(group, client)
        await durable
        response = await self._persister.initialize_state(request)
        failed = _errors(response.results)
        for (topic_id, partition), error in failed.items():
            errors[names[topic_id], partition] = error
        if not failed:
            self._end_initialization(group, request, is_successful=True)
        return errors

    async def delete_offsets(self, group_id: str, names: Collection[str]) -> dict[str, OffsetError]:
        """Delete the start offsets of topics; return the error of each topic, which may be NONE.

        Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or the error of a write.
        """
        budget = CountBudget()
        errors: dict[str, OffsetError] = {}
        existing: list[TopicImage] = []
        for name in names:
            topic = self._metadata.topic(name)
            if topic is None:
                errors[name] = OffsetError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                existing.append(topic)
            await budget.step()
        if names and not existing:
            # The group is not looked up, as in Kafka.
            return errors
        group = _check_empty(self._group_manager.get_group(group_id))
        known = group.state_partitions or StatePartitionMetadata()
        topics: dict[UUID, str] = {}
        partitions: dict[UUID, Iterable[int]] = {}
        for topic in existing:
            if topic.topic_id in known.initialized:
                topics[topic.topic_id] = topic.name
                partitions[topic.topic_id] = known.initialized[topic.topic_id].partitions
            elif topic.topic_id in known.deleting:
                # An earlier deletion was not completed.
                topics[topic.topic_id] = topic.name
                partitions[topic.topic_id] = topic.partitions
            else:
                errors[topic.name] = OffsetError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE)
        if not topics:
            return errors
        change = ShareGroupChange(group)
        change.set_state_partitions(known.begin_deletion(topics))
        await self._written(change)
        failed = await self._delete_state(group_id, partitions)
        for topic_id, name in topics.items():
            errors[name] = failed.get(topic_id, OffsetError(ErrorCode.NONE))
        present = group.state_partitions
        if present is not None and not group.is_dead:
            change = ShareGroupChange(group)
            change.set_state_partitions(present.finish_deletion(topics.keys() - failed.keys()))
            await self._written(change)
        return errors

    def get_initialized_partitions(self, group_id: str) -> Assignment:
        """Return the partitions of a group with share state; none if there is no such share group.

        Raises KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        group = self._group_manager.find_group(group_id)
        if not isinstance(group, ShareGroup) or group.state_partitions is None:
            return NOTHING
        return group.state_partitions.initialized_partitions()

    async def read_summary(
        self, group_id: str, partitions: Mapping[UUID, Iterable[int]]
    ) -> dict[UUID, list[SummaryResult]]:
        """Return the start offsets and delivery complete counts of partitions, by topic id."""
        topics = [
            ReadStateSummaryData(
                topic_id=topic_id,
                # The leader epoch is unknown; the share coordinator does not compare -1.
                partitions=[SummaryPartition(partition=partition, leader_epoch=-1) for partition in sorted(indexes)],
            )
            for topic_id, indexes in partitions.items()
        ]
        if not topics:
            return {}
        request = ReadShareGroupStateSummaryRequest(group_id=group_id, topics=topics)
        response = await self._persister.read_state_summary(request)
        return {topic.topic_id: topic.partitions for topic in response.results}

    # -- deletion ------------------------------------------------------------------------------------------------------

    def delete_group(self, group: ShareGroup, reply: ResponseCallback) -> None:
        """Delete the share state of a group without members, and then the group; `reply` receives the outcome."""
        self._start(self._delete_group(group, reply))

    async def _delete_group(self, group: ShareGroup, reply: ResponseCallback) -> None:
        if group.is_dead:
            # Another request has deleted the group, or it moved away: no record may follow its tombstones.
            reply(ErrorCode.GROUP_ID_NOT_FOUND)
            return
        try:
            _check_empty(group)
            await self._delete_state_of_group(group)
        except KafkaError as error:
            reply(error.code)
        else:
            self._group_manager.delete_group(group.group_id, reply)

    async def _delete_state_of_group(self, group: ShareGroup) -> None:
        """Delete the state of all partitions of a group.

        Kafka: shareGroupBuildPartitionDeleteRequest. Raises KafkaError with the error of the share coordinator.
        """
        known = group.state_partitions
        if known is None:
            return
        partitions: dict[UUID, frozenset[int]] = {}
        names: dict[UUID, str] = {}
        for topic_id in known.topic_ids:
            name = self._metadata.topic_name(topic_id)
            topic = None if name is None else self._metadata.topic(name)
            # For a deleted topic there is no request: the share coordinator deletes its state.
            if topic is not None:
                begun = _partitions(known.initialized, topic_id) | _partitions(known.initializing, topic_id)
                partitions[topic_id] = frozenset(topic.partitions) if topic_id in known.deleting else begun
                names[topic_id] = topic.name
        change = ShareGroupChange(group)
        change.set_state_partitions(StatePartitionMetadata(deleting=names))
        await self._written(change)
        failed = await self._delete_state(group.group_id, partitions)
        for error in failed.values():
            logger.warning("group %r is not deleted: its share state remains: %s", group.group_id, error.code.name)
            raise KafkaError(error.code, error.message or "The share state could not be deleted.")

    async def _delete_state(self, group_id: str, partitions: Mapping[UUID, Iterable[int]]) -> dict[UUID, OffsetError]:
        """Delete the state of partitions; return the errors of topics."""
        request = DeleteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                DeleteStateData(
                    topic_id=topic_id, partitions=[DeletedPartition(partition=one) for one in sorted(indexes)]
                )
                for topic_id, indexes in partitions.items()
            ],
        )
        if not request.topics:
            return {}
        response = await self._persister.delete_state(request)
        return {topic_id: error for (topic_id, _), error in _errors(response.results).items()}

    def on_topics_deleted(self, names: frozenset[str], group_ids: Iterable[str]) -> None:
        """Remove deleted topics from the records of these groups (Kafka: maybeCleanupShareGroupState)."""
        self._sliced_work.run(self._remove_topics(names, list(group_ids)), raise_error)

    def _remove_topics(self, names: frozenset[str], group_ids: list[str]) -> Steps[None]:
        for group_id in group_ids:
            with IsolatedWork(f"deleted topics could not be removed from group {group_id!r}"):
                self._remove_topics_of_group(names, group_id)
            yield

    def _remove_topics_of_group(self, names: frozenset[str], group_id: str) -> None:
        try:
            group = self._group_manager.find_group(group_id)
        except KafkaError:
            return  # another broker coordinates the group
        if not isinstance(group, ShareGroup) or group.state_partitions is None:
            return
        known = group.state_partitions
        of_topics = [*known.initializing.items(), *known.initialized.items()]
        all_names = {topic_id: state.name for topic_id, state in of_topics} | dict(known.deleting)
        # A topic that was created again has another id.
        deleted = [
            topic_id
            for topic_id, name in all_names.items()
            if name in names and self._metadata.topic_name(topic_id) is None
        ]
        if deleted:
            change = ShareGroupChange(group)
            change.set_state_partitions(known.remove_topics(deleted))
            self._write(change, ignore)

    # -- records -------------------------------------------------------------------------------------------------------

    async def _written(self, change: ShareGroupChange) -> None:
        """Append a change and wait until it is durable. Raises KafkaError."""
        await self._append(change)[1]

    def _append(self, change: ShareGroupChange) -> tuple[bool, asyncio.Future[None]]:
        """Return whether a change is in the log, and a future that ends when it is durable, or raises KafkaError."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(outcome: ErrorCode) -> None:
            if future.done():
                return
            if outcome is ErrorCode.NONE:
                future.set_result(None)
            else:
                future.set_exception(KafkaError(outcome, "The group could not be written."))

        return self._write(change, done), future


def _partitions(topics: Topics, topic_id: UUID) -> frozenset[int]:
    state = topics.get(topic_id)
    return frozenset() if state is None else state.partitions


def _initialization_request(
    group: ShareGroup, known: StatePartitionMetadata, missing: Mapping[UUID, TopicState]
) -> InitializeShareGroupStateRequest:
    """Return the request for new partitions.

    Partitions that were added to a topic later start at their first record, not at the position of the group's
    `share.auto.offset.reset`, so that the group reads all records that are produced after its subscription.
    """
    topics = []
    for topic_id, state in missing.items():
        begun = _partitions(known.initializing, topic_id)
        # A retry for a partition of a new topic repeats the first request.
        repeated = frozenset() if topic_id in known.initialized else begun
        is_known = bool(begun) or topic_id in known.initialized
        topics.append(
            InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    InitializedPartition(
                        partition=partition,
                        state_epoch=group.epoch,
                        start_offset=FIRST_OFFSET if is_known and partition not in repeated else UNINITIALIZED_OFFSET,
                    )
                    for partition in sorted(state.partitions)
                ],
            )
        )
    return InitializeShareGroupStateRequest(group_id=group.group_id, topics=topics)


def _errors(results: Iterable[TopicOutcome]) -> dict[tuple[UUID, int], OffsetError]:
    """Return the errors in a response of the share coordinator by topic id and partition."""
    return {
        (topic.topic_id, one.partition): OffsetError(ErrorCode(one.error_code), one.error_message)
        for topic in results
        for one in topic.partitions
        if one.error_code
    }


def _check_empty(group: Group) -> ShareGroup:
    """Return the share group if it has no members. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    share_group = check_share_group(group)
    if not share_group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return share_group

"""Kafka's SharePartitionManager: the share-partitions and share sessions of a broker (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicIdPartition
from ...storage.log_values import FetchIsolation
from ..metadata.cluster_features import SINCE_SHARE_GROUPS
from ..runtime.loop_sharing import CountBudget
from .delayed_share_fetch import DelayedShareFetch, ShareFetch, ShareFetchResult
from .managed_share_partition import ManagedSharePartition, ignore_result
from .share_partition import ShareAcknowledgementBatch
from .share_session import ShareSession, ShareSessionCache

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ..replication.replica_manager import ReplicaManager
    from ..runtime.loop_sharing import SlicedWork
    from .persister import Persister
    from .share_group_config_provider import ShareGroupConfigProvider
    from .share_group_dlq_manager import ShareGroupDLQManager
    from .share_group_metrics import ShareGroupMetrics
    from .share_session import SharePartitionId

logger = room_logger("share")

LOADED_PARTITIONS_PER_TURN = 50
"""Share partitions of one fetch that begin to load: each has a task that reads its state."""
LONGEST_WAIT_MS = 300_000
"""The longest wait of a fetch, even if the client requests more."""
AcknowledgeCallback = Callable[[dict[TopicIdPartition, KafkaError | None]], None]
"""Called with the result of each partition."""


class SharePartitionManager:
    """The share-partitions and share sessions of this broker. Owned by the broker; used on the event loop.

    A share-partition is loaded by the first fetch. It is dropped when this broker does not lead its partition any more
    or missed a leader epoch, when the share coordinator fences it, and when no member of the group has a session: the
    next fetch loads it again.
    """

    def __init__(
        self,
        *,
        replica_manager: ReplicaManager,
        persister: Persister,
        config_provider: ShareGroupConfigProvider,
        dlq_manager: ShareGroupDLQManager,
        metrics: ShareGroupMetrics,
        max_share_sessions: int,
        share_version: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        sliced_work: SlicedWork,
        now_ms: Callable[[], int],
    ) -> None:
        """`share_version` returns the finalized level of the feature share.version."""
        self.metrics = metrics
        self.config_provider = config_provider
        self.sessions = ShareSessionCache(max_share_sessions, self._on_member_leave)
        self._replica_manager = replica_manager
        self._persister = persister
        self._dlq_manager = dlq_manager
        self._share_version = share_version
        self._loop = loop
        self._sliced_work = sliced_work
        self._now_ms = now_ms
        self._partitions: dict[str, dict[SharePartitionId, ManagedSharePartition]] = {}
        """The share-partitions by group, then by partition."""
        self._by_topic_partition: dict[TopicPartition, dict[ManagedSharePartition, None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        replica_manager.on_role_change(self._on_role_change)

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster serves share groups."""
        return self._share_version() >= SINCE_SHARE_GROUPS

    @property
    def share_partitions(self) -> list[ManagedSharePartition]:
        """The loaded share-partitions."""
        return [managed for partitions in self._partitions.values() for managed in partitions.values()]

    async def close(self) -> None:
        """Fence all share-partitions and end their writes."""
        partitions = self.share_partitions
        self._partitions.clear()
        self._by_topic_partition.clear()
        for managed in partitions:
            await managed.stop()
        await asyncio.gather(*self._stopping, return_exceptions=True)

    # -- fetches ---------------------------------------------------------------------------------------------------

    async def begin_to_load(self, fetch: ShareFetch) -> list[ManagedSharePartition]:
        """Return the share partitions of a fetch, in several turns of the loop where many are not loaded yet.

        Adds the errors of partitions that this broker does not lead to `fetch.errors`.
        """
        if not fetch.may_acquire:
            return []
        partitions: list[ManagedSharePartition] = []
        budget = CountBudget(LOADED_PARTITIONS_PER_TURN)
        for topic_id_partition in fetch.partitions:
            # A session may have ended in an earlier turn: the share partitions of a group without members are dropped.
            if not self.sessions.has_members(fetch.group_id):
                break
            try:
                managed = self._get_or_create(fetch.group_id, topic_id_partition)
            except KafkaError as error:
                fetch.errors[topic_id_partition] = error.as_result()
            else:
                partitions.append(managed)
                if managed.share.is_active:
                    continue
            await budget.step()
        return partitions

    def fetch_messages(
        self,
        fetch: ShareFetch,
        partitions: Sequence[ManagedSharePartition],
        respond: Callable[[dict[TopicIdPartition, ShareFetchResult]], None],
    ) -> DelayedShareFetch | None:
        """Acquire records of the share partitions that `begin_to_load` returned.

        `respond` gets a result for each partition with records or an error. Returns the fetch, to be cancelled if the
        client disconnects before the response, or None if there is nothing to acquire.
        """
        self.metrics.fetch_requests += 1
        if not fetch.may_acquire:
            respond({})
            return None
        operation = DelayedShareFetch(
            fetch,
            partitions,
            replica_manager=self._replica_manager,
            sliced_work=self._sliced_work,
            metrics=self.metrics,
            respond=respond,
        )
        if fetch.max_wait_ms <= 0 and all(managed.share.is_active for managed in partitions):
            operation.force_complete()
        else:
            operation.try_complete()
        if operation.is_completed:
            operation.has_waited = True
            return operation
        wait_ms = min(fetch.max_wait_ms, LONGEST_WAIT_MS)
        self._replica_manager.share_fetch_purgatory.watch(operation, _FetchKeys(partitions), wait_ms)
        operation.has_waited = True
        return operation

    def _get_or_create(self, group_id: str, topic_id_partition: TopicIdPartition) -> ManagedSharePartition:
        """Return a share-partition, and begin to load a new one. Raises KafkaError unless this broker leads it."""
        topic_id, topic, index = topic_id_partition
        found = self._partitions.get(group_id, {}).get((topic_id, index))
        if found is not None:
            return found
        partition = self._replica_manager.get_leader_partition(topic, index)
        if partition.topic_id != topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"the topic id of {topic} is {partition.topic_id}")
        managed = ManagedSharePartition(
            group_id,
            topic_id_partition,
            partition,
            settings=lambda: self.config_provider.settings(group_id),
            replica_manager=self._replica_manager,
            persister=self._persister,
            dlq_manager=self._dlq_manager,
            metrics=self.metrics,
            loop=self._loop,
            sliced_work=self._sliced_work,
            now_ms=self._now_ms,
            on_change=self._on_change,
            on_failure=self._on_failure,
            on_dead_letters_written=self._on_dead_letters_written,
        )
        self._partitions.setdefault(group_id, {})[topic_id, index] = managed
        self._by_topic_partition.setdefault(topic_id_partition.topic_partition, {})[managed] = None
        managed.initialize()
        return managed

    def _on_change(self, managed: ManagedSharePartition) -> None:
        """Complete fetches that wait for records of a share-partition."""
        # Each check of a fetch walks through all its partitions: not for each of thousands that are loaded and empty.
        if _may_complete_fetches(managed):
            self._replica_manager.share_fetch_purgatory.check_and_complete(_group_key(managed))

    def _on_failure(self, managed: ManagedSharePartition, error: KafkaError) -> None:
        logger.info("share-partition %s:%s is unloaded: %s", managed.group_id, managed.topic_id_partition, error)
        self._remove(managed)

    def _on_dead_letters_written(self, managed: ManagedSharePartition) -> None:
        """Drop a share-partition whose last member left while dead letters were written."""
        if not self.sessions.has_members(managed.group_id):
            self._drop_when_written(managed)

    def _remove(self, managed: ManagedSharePartition) -> None:
        """Drop a share-partition; fetches that wait for it are completed."""
        partitions = self._partitions.get(managed.group_id, {})
        topic_id, _, index = managed.topic_id_partition
        if partitions.get((topic_id, index)) is managed:
            del partitions[topic_id, index]
            if not partitions:
                del self._partitions[managed.group_id]
            topic_partition = managed.topic_id_partition.topic_partition
            others = self._by_topic_partition[topic_partition]
            del others[managed]
            if not others:
                del self._by_topic_partition[topic_partition]
        managed.close()
        if managed.error is None:
            managed.error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share-partition is fenced.")
        self._on_change(managed)

    def _on_role_change(self, topic_partition: TopicPartition) -> None:
        """Drop the share-partitions of a partition whose state another leader may change, or has changed."""
        for managed in list(self._by_topic_partition.get(topic_partition, ())):
            if not managed.is_led or not managed.continue_in_present_leader_epoch():
                self._remove(managed)

    async def on_share_version_change(self) -> None:
        """End all sessions and share-partitions if share groups were disabled (Kafka: onShareVersionToggle)."""
        budget = CountBudget(LOADED_PARTITIONS_PER_TURN)
        for session in self.sessions.sessions:
            if self.is_enabled:
                return
            self.sessions.remove(session)
            await budget.step()
        for managed in self.share_partitions:
            if self.is_enabled:
                return
            if managed.error is None:
                self._remove(managed)
            await budget.step()

    # -- acknowledgements ------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        batches: Mapping[TopicIdPartition, Iterable[ShareAcknowledgementBatch]],
        done: AcknowledgeCallback,
    ) -> None:
        """Acknowledge records; `done` is called when the persister has written all changes."""
        self.metrics.acknowledgement_requests += 1
        results: dict[TopicIdPartition, KafkaError | None] = {}

        def acknowledged(topic_id_partition: TopicIdPartition, error: KafkaError | None) -> None:
            results[topic_id_partition] = error
            if error is None:
                self._count(batches[topic_id_partition])
            if len(results) == len(batches):
                if any(results.values()):
                    self.metrics.failed_acknowledgement_requests += 1
                done(results)

        if not batches:
            done({})
        for topic_id_partition, some in batches.items():
            self._acknowledge(group_id, member_id, topic_id_partition, some, acknowledged)

    def _acknowledge(
        self,
        group_id: str,
        member_id: str,
        topic_id_partition: TopicIdPartition,
        batches: Iterable[ShareAcknowledgementBatch],
        acknowledged: Callable[[TopicIdPartition, KafkaError | None], None],
    ) -> None:
        topic_id, _, index = topic_id_partition
        managed = self._partitions.get(group_id, {}).get((topic_id, index))
        if managed is None or not managed.share.is_active:
            reason = "This server does not host this topic-partition."
            acknowledged(topic_id_partition, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason))
            return
        try:
            update = managed.share.acknowledge(member_id, batches, self._loop.time())
        except KafkaError as error:
            managed.set_timer()
            acknowledged(topic_id_partition, error.as_result())
            return
        managed.submit(update, lambda error: acknowledged(topic_id_partition, error))

    def _count(self, batches: Iterable[ShareAcknowledgementBatch]) -> None:
        for first_offset, last_offset, types in batches:
            if len(types) == 1:
                self.metrics.record_acknowledgements(types[0], last_offset - first_offset + 1)
            else:
                for kind in types:
                    self.metrics.record_acknowledgements(kind, 1)

    # -- sessions --------------------------------------------------------------------------------------------------

    def release_session(self, session: ShareSession) -> None:
        """End a session and release the records of its member, unless the session has ended before."""
        if self.sessions.remove(session):
            self._on_member_leave(session)

    def _on_member_leave(self, session: ShareSession) -> None:
        """Release the records of a member whose session has ended. Drop share-partitions that no member uses."""
        group_id = session.key.group_id
        self._release(session)
        if not self.sessions.has_members(group_id):
            for managed in list(self._partitions.get(group_id, {}).values()):
                self._drop_when_written(managed)

    def _release(self, session: ShareSession) -> None:
        """Make the records that a member has acquired available."""
        group_id, member_id = session.key
        # In all partitions of the group: the member may have removed some from its session before their locks expired.
        for managed in list(self._partitions.get(group_id, {}).values()):
            if managed.share.is_active:
                update = managed.share.release_acquired_records(member_id)
                if update:
                    managed.submit(update, ignore_result)

    def _drop_when_written(self, managed: ManagedSharePartition) -> None:
        """Drop a share-partition that no member uses, after its writes."""

        def drop(_: KafkaError | None) -> None:
            if not managed.is_writing_dead_letters and not self.sessions.has_members(managed.group_id):
                self._remove(managed)

        managed.when_written(drop)


def _may_complete_fetches(managed: ManagedSharePartition) -> bool:
    """Whether a fetch that waits for a share partition may complete because of its error or of its records.

    A fetch with a `min_bytes` of 0 that waits until its share partitions are loaded ends with its wait time instead.
    """
    share, partition = managed.share, managed.partition
    if managed.error is not None or not share.is_active or not managed.is_led:
        return True
    # The high watermark is the greatest bound of the isolation levels, one of which each fetch has.
    bound = partition.read_bound(FetchIsolation.HIGH_WATERMARK)
    return share.can_acquire_records() and share.next_fetch_offset() < bound


class _FetchKeys(Collection[object]):
    """The keys of a fetch, two per share-partition. They are not in a list, which would be made in one turn."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: Sequence[ManagedSharePartition]) -> None:
        self._partitions = partitions

    def __len__(self) -> int:
        return 2 * len(self._partitions)

    def __iter__(self) -> Iterator[object]:
        for managed in self._partitions:
            yield managed.topic_id_partition.topic_partition
            yield _group_key(managed)

    def __contains__(self, key: object) -> bool:
        return any(key == one for one in self)


def _group_key(managed: ManagedSharePartition) -> tuple[str, SharePartitionId]:
    """Return the key of fetches that wait for records of one group."""
    topic_id, _, index = managed.topic_id_partition
    return managed.group_id, (topic_id, index)

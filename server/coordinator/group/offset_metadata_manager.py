"""Kafka's OffsetMetadataManager: writes, transactions, expiration and deletion of committed offsets.

Commits are in memory, and so can be fetched, once their records are durable. Commits in a transaction are written
immediately and count when the transaction is committed (KIP-98); `GroupOffsets` keeps both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.topic_partition import TopicPartitionKey
from ...runtime.loop_sharing import lookup_steps, raise_error
from ...runtime.scheduler import IsolatedWork
from ..coordinator_log import ResponseCallback, ignore
from ..creation_limiter import UNKNOWN_CLIENT, ClientIdentity
from .group import Group, GroupType
from .group_metadata_manager import OFFSET_WRITE_ERRORS, GroupMetadataManager
from .group_records import new_offset_commit_record, new_offset_commit_tombstone
from .offsets import CommittedOffset

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...runtime.loop_sharing import SlicedWork, Steps

MINUTE_MS = 60_000

FIRST_VERSION_WITH_MEMBER_EPOCH = 9

TOMBSTONES_PER_BATCH = 500
"""Tombstones for one group's offsets of deleted topics, written together: a millisecond, and less than the largest
batch.
"""

Commits = Mapping[TopicPartitionKey, CommittedOffset]


@dataclass(frozen=True, slots=True)
class Committer:
    """The member that commits offsets. A consumer with manual assignment has neither generation nor member id."""

    member_id: str = ""
    group_instance_id: str | None = None
    generation: int = -1
    version: int = 0
    """The version of OffsetCommit, which determines the available error codes."""
    client: ClientIdentity = UNKNOWN_CLIENT

    @property
    def missing_group_error(self) -> ErrorCode:
        """The error code for a member whose group does not exist."""
        is_newer = self.version >= FIRST_VERSION_WITH_MEMBER_EPOCH
        return ErrorCode.GROUP_ID_NOT_FOUND if is_newer else ErrorCode.ILLEGAL_GENERATION


class OffsetMetadataManager:
    """The offsets of all groups that this broker coordinates.

    Owned by the group coordinator and used on the loop's thread only.
    """

    def __init__(self, config: BrokerConfig, group_manager: GroupMetadataManager, sliced_work: SlicedWork) -> None:
        self._config = config
        self._group_manager = group_manager
        self._sliced_work = sliced_work
        self._open_transactions: dict[tuple[int, int], set[str]] = {}
        """The ids of groups with pending offsets, by partition of `__consumer_offsets` and producer id (Kafka:
        OpenTransactions)."""
        self._deleted_topics: dict[str, frozenset[str]] = {}
        """The deleted topics whose offsets have not been searched for yet, by group id."""
        self._partitions_to_delete: dict[str, list[TopicPartitionKey]] = {}
        """The partitions of deleted topics whose offsets are still to be deleted, by group id."""
        self._is_deleting = False

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, group: Group, offsets: Commits, reply: ResponseCallback) -> None:
        """Append offsets; `reply` gets the outcome when they are durable, or REQUEST_TIMED_OUT before.

        Offsets that become durable after the timeout still count.
        """
        group.offsets.begin(offsets)
        complete = _first_outcome(reply)

        def done(outcome: ErrorCode) -> None:
            group.offsets.finish(offsets)
            if not outcome:
                group.offsets.commit(offsets)
            complete(outcome)

        self._group_manager.append(
            group.group_id,
            (new_offset_commit_record(group.group_id, partition, offset) for partition, offset in offsets.items()),
            done,
            on_overdue=lambda: complete(ErrorCode.REQUEST_TIMED_OUT),
        )

    def commit_transactional_offsets(
        self, group: Group, producer: ProducerIdentity, offsets: Commits, reply: ResponseCallback
    ) -> None:
        """Append offsets as a part of the producer's transaction; `reply` as in `commit_offsets`."""
        group_offsets, index = group.offsets, self._group_manager.partition_for(group.group_id)
        group_offsets.begin_pending(offsets)
        complete = _first_outcome(reply)

        def done(outcome: ErrorCode) -> None:
            group_offsets.finish_pending(offsets)
            if outcome is ErrorCode.NONE:
                group_offsets.add_pending(producer.producer_id, offsets)
                self._open_transactions.setdefault((index, producer.producer_id), set()).add(group.group_id)
            complete(outcome)

        self._group_manager.append(
            group.group_id,
            (new_offset_commit_record(group.group_id, partition, offset) for partition, offset in offsets.items()),
            done,
            on_overdue=lambda: complete(ErrorCode.REQUEST_TIMED_OUT),
            producer=producer,
        )

    def complete_transaction(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop the pending offsets of a transaction whose marker is durable in a partition.

        Raises KafkaError, and changes nothing, if this broker has not loaded the groups of the partition.
        """
        self._group_manager.check_partition_loaded(index)
        for group_id in self._open_transactions.get((index, producer_id), ()):
            group = self._group_manager.find_group(group_id)
            if group is not None:
                group.offsets.complete_transaction(producer_id, is_commit=is_commit)
        self._open_transactions.pop((index, producer_id), None)

    def on_group_loaded(self, group: Group) -> None:
        """Add the open transactions of a loaded group."""
        for producer_id in group.offsets.pending:
            key = self._group_manager.partition_for(group.group_id), producer_id
            self._open_transactions.setdefault(key, set()).add(group.group_id)

    def on_group_unloaded(self, group: Group) -> None:
        """Remove the open transactions of a group that moved away or was deleted."""
        index = self._group_manager.partition_for(group.group_id)
        for producer_id in group.offsets.pending:
            group_ids = self._open_transactions.get((index, producer_id), set())
            group_ids.discard(group.group_id)
            if not group_ids:
                self._open_transactions.pop((index, producer_id), None)

    # -- deletion and expiration ---------------------------------------------------------------------------------------

    def delete_offsets(self, group: Group, partitions: Iterable[TopicPartitionKey], reply: ResponseCallback) -> None:
        """Append tombstones of offsets; `reply` gets the outcome when they are durable."""
        deleted = list(partitions)

        def done(outcome: ErrorCode) -> None:
            if outcome is ErrorCode.NONE:
                group.offsets.remove(deleted)
            reply(OFFSET_WRITE_ERRORS.get(outcome, outcome))

        self._group_manager.append(
            group.group_id,
            (new_offset_commit_tombstone(group.group_id, partition) for partition in deleted),
            done,
            on_overdue=lambda: None,
        )

    def cleanup_expired_offsets(self, group: Group, now_ms: int) -> None:
        """Delete the expired offsets of a group, and the group with its last offset if it has no members.

        Share groups have no offsets and do not expire, as in Kafka.
        """
        if group.is_dead or group.type is GroupType.SHARE:
            return
        offsets, condition = group.offsets, group.offset_expiration_condition
        partitions: list[TopicPartitionKey] = []
        if condition is not None:
            partitions = list(offsets.expired(now_ms, self._config.offsets_retention_minutes * MINUTE_MS, condition))
        is_last = len(partitions) == len(offsets.committed) and not offsets.in_flight and not offsets.pending
        if is_last and group.can_be_forgotten:
            self._group_manager.delete_group(group.group_id, ignore)
        elif partitions:
            self.delete_offsets(group, partitions, ignore)

    # -- deleted topics ------------------------------------------------------------------------------------------------

    def on_topics_deleted(self, topics: Iterable[str], group_ids: Iterable[str]) -> None:
        """Delete the offsets of these topics in all these groups: they have no meaning for a topic of the same name.

        A million offsets in thousands of groups are possible, so that this is long work. `finish_topic_deletion`
        completes it for one group before a commit.
        """
        deleted = frozenset(topics)
        waiting = dict.fromkeys(group_ids, deleted)
        unions: dict[frozenset[str], frozenset[str]] = {}
        for group_id, former in self._deleted_topics.items():
            if former not in unions:
                unions[former] = former | deleted  # most groups wait for the same topics
            waiting[group_id] = unions[former]
        self._deleted_topics = waiting
        if not self._is_deleting:
            self._is_deleting = True
            self._sliced_work.run(self._delete_offsets_of_topics(), self._deletion_ended)

    def finish_topic_deletion(self, group_id: str) -> None:
        """Delete the offsets of deleted topics in a group that is about to commit, perhaps for a new topic."""
        while group_id in self._deleted_topics or group_id in self._partitions_to_delete:
            self._delete_some_offsets(group_id)

    def _delete_offsets_of_topics(self) -> Steps[None]:
        while waiting := self._partitions_to_delete or self._deleted_topics:
            group_id = next(reversed(waiting))
            with IsolatedWork(f"offsets of deleted topics could not be removed from group {group_id!r}"):
                self._delete_some_offsets(group_id)
            yield

    def _deletion_ended(self, result: None, error: Exception | None) -> None:
        self._is_deleting = False
        raise_error(result, error)

    def _delete_some_offsets(self, group_id: str) -> None:
        """Search a group for offsets of deleted topics, and append the tombstones of some of them."""
        topics, partitions = (
            self._deleted_topics.pop(group_id, None),
            self._partitions_to_delete.pop(group_id, []),
        )
        try:
            group = self._group_manager.find_group(group_id)
        except KafkaError:
            return  # another broker coordinates the group
        if group is None or group.is_dead:
            return
        if topics is not None:
            partitions += group.offsets.partitions_of(topics)
        count = max(1, TOMBSTONES_PER_BATCH // lookup_steps(group_id))
        some = partitions[-count:]
        del partitions[-count:]
        # Before the append: it may complete another request, whose client commits in the same turn.
        if partitions:
            self._partitions_to_delete[group_id] = partitions
        if some:
            self.delete_offsets(group, some, ignore)


def _first_outcome(reply: ResponseCallback) -> ResponseCallback:
    """Return a function that passes only its first outcome on: that of the write, or its timeout."""
    waiting = [reply]

    def complete(outcome: ErrorCode) -> None:
        if waiting:
            waiting.pop()(OFFSET_WRITE_ERRORS.get(outcome, outcome))

    return complete

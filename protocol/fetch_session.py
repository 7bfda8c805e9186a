"""Incremental fetch sessions (KIP-227) with one broker: after the first fetch only changes are sent. No I/O.

The broker remembers the partitions of a session; a request lists partitions that are new or have another position, and
partitions to be removed. Session epoch 0 opens a session, 1, 2, … continue it, and after 2147483647 follows 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from .errors import ErrorCode
from .messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from .topic_partition import TopicPartition

NO_SESSION = 0
_FULL_FETCH = 0
_MAX_EPOCH = 0x7FFFFFFF


class FetchTarget(NamedTuple):
    """The position and limits of one partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int
    last_fetched_epoch: int = -1
    """The epoch of a follower's last record."""
    log_start_offset: int = -1
    """The log start offset of a follower."""


class FetchSessionHandler:
    """The session with one broker, if there is one."""

    __slots__ = ("_epoch", "_sent", "_session_id", "_uses_topic_ids")

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = _FULL_FETCH
        self._sent: dict[TopicPartition, FetchTarget] = {}
        self._uses_topic_ids = False

    def fill(
        self, request: FetchRequest, wanted: Mapping[TopicPartition, FetchTarget], *, uses_topic_ids: bool
    ) -> None:
        """Write session id, epoch and partitions into a request; a session uses either topic names or ids."""
        if uses_topic_ids != self._uses_topic_ids:
            self._epoch = _FULL_FETCH
            self._uses_topic_ids = uses_topic_ids
        request.session_id = self._session_id
        request.session_epoch = self._epoch
        if self._epoch == _FULL_FETCH:
            request.topics = _topics(wanted)
        else:
            forgotten = {
                tp: target
                for tp, target in self._sent.items()
                if (now := wanted.get(tp)) is not target and (now is None or now.topic_id != target.topic_id)
            }
            request.topics = _topics(
                {
                    tp: target
                    for tp, target in wanted.items()
                    if (sent := self._sent.get(tp)) is not target and sent != target
                }
            )
            request.forgotten_topics_data = _forgotten(forgotten)
        self._sent = dict(wanted)

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """Apply a response to the session."""
        if error is not ErrorCode.NONE:
            self.reset(keep_id=error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session_id == NO_SESSION:
            self.reset(keep_id=False)
        else:
            self._session_id = session_id
            self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1

    def reset(self, *, keep_id: bool = True) -> None:
        """Start again with a full fetch; a retained id makes the broker close the old session."""
        if not keep_id:
            self._session_id = NO_SESSION
        self._epoch = _FULL_FETCH
        self._sent = {}


def _topics(targets: Mapping[TopicPartition, FetchTarget]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for tp, target in targets.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = FetchTopic(topic=tp.topic, topic_id=target.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=target.offset,
                partition_max_bytes=target.max_bytes,
                last_fetched_epoch=target.last_fetched_epoch,
                log_start_offset=target.log_start_offset,
            )
        )
    return list(topics.values())


def _forgotten(targets: Mapping[TopicPartition, FetchTarget]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for tp, target in targets.items():
        topic = topics.setdefault((tp.topic, target.topic_id), ForgottenTopic(topic=tp.topic, topic_id=target.topic_id))
        topic.partitions.append(tp.partition)
    return list(topics.values())

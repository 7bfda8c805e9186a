"""A share session with one broker (KIP-932): after the first fetch, requests list changes of the partitions. No I/O.

The broker keeps the partitions of a session, and the records that the member has acquired in it. Epoch 0 opens a
session and closes a previous session of this member; 1, 2, … continue it, and 2147483647 is followed by 1. Epoch -1
closes it, and the broker then releases the acquired records. Acknowledgements require an open session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from ...protocol.errors import ErrorCode
from ...protocol.messages import share_acknowledge, share_fetch
from ...protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ...protocol.messages.share_fetch import ShareFetchRequest
from ...protocol.topic_partition import TopicIdPartition
from .acknowledgements import Acknowledgements

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 0x7FFFFFFF

_RESET = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED}
)
"""Errors after which the broker has no session with this epoch."""

ByPartition = Mapping[TopicIdPartition, Acknowledgements]


class ShareSessionHandler:
    """The session of one member with one broker, if there is one."""

    __slots__ = ("_epoch", "_member_id", "_partitions")

    def __init__(self, member_id: str) -> None:
        self._member_id = member_id
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicIdPartition, None] = {}

    @property
    def epoch(self) -> int:
        """Return the epoch of the next request."""
        return self._epoch

    @property
    def is_new(self) -> bool:
        """Return whether the next request opens a session."""
        return self._epoch == INITIAL_EPOCH

    @property
    def is_closing(self) -> bool:
        return self._epoch == FINAL_EPOCH

    @property
    def partitions(self) -> Collection[TopicIdPartition]:
        """Return the partitions that the broker has in the session."""
        return self._partitions.keys()

    def fill_fetch(
        self, request: ShareFetchRequest, wanted: Iterable[TopicIdPartition], acknowledgements: ByPartition
    ) -> None:
        """Write member, epoch, changed partitions and acknowledgements into a request."""
        assert not (self.is_new and acknowledgements), "acknowledgements require an open session"
        target = dict.fromkeys(wanted)
        added = [tip for tip in target if self.is_new or tip not in self._partitions]
        # A listed partition joins the session; a partition with acknowledgements only must leave it again.
        removed = [] if self.is_new else [tip for tip in self._partitions if tip not in target]
        removed += [tip for tip in acknowledgements if tip not in target and tip not in self._partitions]
        topics: dict[UUID, share_fetch.FetchTopic] = {}
        for tip in dict.fromkeys([*added, *acknowledgements]):
            topic = topics.setdefault(tip.topic_id, share_fetch.FetchTopic(topic_id=tip.topic_id))
            batches = acknowledgements[tip].batches() if tip in acknowledgements else ()
            topic.partitions.append(
                share_fetch.FetchPartition(
                    partition_index=tip.partition,
                    acknowledgement_batches=[
                        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                        for first, last, types in batches
                    ],
                )
            )
        forgotten: dict[UUID, share_fetch.ForgottenTopic] = {}
        for tip in removed:
            left = forgotten.setdefault(tip.topic_id, share_fetch.ForgottenTopic(topic_id=tip.topic_id))
            left.partitions.append(tip.partition)
        request.member_id = self._member_id
        request.share_session_epoch = self._epoch
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(forgotten.values())
        self._partitions = target

    def fill_acknowledge(self, request: ShareAcknowledgeRequest, acknowledgements: ByPartition) -> None:
        """Write member, epoch and acknowledgements into a request."""
        assert not self.is_new, "acknowledgements require an open session"
        topics: dict[UUID, share_acknowledge.AcknowledgeTopic] = {}
        for tip, taken in acknowledgements.items():
            topic = topics.setdefault(tip.topic_id, share_acknowledge.AcknowledgeTopic(topic_id=tip.topic_id))
            topic.partitions.append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=tip.partition,
                    acknowledgement_batches=[
                        share_acknowledge.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=types
                        )
                        for first, last, types in taken.batches()
                    ],
                )
            )
        request.member_id = self._member_id
        request.share_session_epoch = self._epoch
        request.topics = list(topics.values())

    def close(self) -> None:
        """Let the next request close the session."""
        assert not self.is_new
        self._epoch = FINAL_EPOCH

    def answered(self, error: ErrorCode) -> None:
        """Apply the top-level error of a response."""
        if self.is_closing or error in _RESET:
            self.reset()
        else:
            self._epoch = self._epoch + 1 if self._epoch < MAX_EPOCH else 1

    def reset(self) -> None:
        """Open a new session with the next request: it is unknown whether the broker received the last request."""
        self._epoch = INITIAL_EPOCH
        self._partitions = {}

"""Incremental fetch sessions (KIP-227): the broker remembers a reader's partitions and answers with what changed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
"""A session unused for this long may make room for a new one (Kafka's min.incremental.fetch.session.eviction.ms)."""

MOST_PARTITIONS = 100_000
"""Partitions in all sessions together, about 50 MB: beyond that readers go on without a session."""

Worth = tuple[bool, int]
"""Whether a session is a follower's, and its partitions: the less, the sooner it makes room."""

PartitionKey = tuple[str | UUID, int]
"""Topic name (Fetch <= 12) or topic id (>= 13), and partition index."""


@dataclass(slots=True)
class FetchItem:
    """One partition to fetch, and what the reader was last told of it."""

    topic: str | UUID
    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    must_answer: bool = True
    """The last answer was one of which no watermark is taken, or there was none yet in this term of the leader."""


class FetchSession:
    """One reader's partitions, in the order in which they are served."""

    __slots__ = ("created", "epoch", "id", "is_follower", "items", "last_used", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        items: dict[PartitionKey, FetchItem],
        *,
        uses_topic_ids: bool,
        now: float,
        is_follower: bool = False,
    ) -> None:
        self.id = session_id
        self.is_follower = is_follower
        self.epoch = 1
        self.items = items
        self.uses_topic_ids = uses_topic_ids
        self.created = self.last_used = now

    @property
    def worth(self) -> Worth:
        """What it is compared by."""
        return self.is_follower, len(self.items)

    def update(self, request: FetchRequest, *, uses_topic_ids: bool) -> None:
        """Take over added, changed and forgotten partitions of an incremental request, in this order."""
        for key, item in requested_items(request, uses_topic_ids=uses_topic_ids).items():
            known = self.items.get(key)
            if known is None:
                self.items[key] = item
            else:
                # In another term a follower takes nothing of what it was told in the one before.
                if known.request.current_leader_epoch != item.request.current_leader_epoch:
                    known.must_answer = True
                known.request = item.request
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if uses_topic_ids else topic.topic
            for index in topic.partitions:
                self.items.pop((name, index), None)

    def keep_changed(self, key: PartitionKey, data: PartitionData) -> bool:
        """Whether an incremental answer has to mention `data`; remembers what it says if so."""
        item = self.items.get(key)
        if item is None:
            return True
        has_records = data.records is not None and len(data.records) > 0
        changed = (
            item.must_answer
            or has_records
            or data.error_code != 0
            or data.high_watermark != item.high_watermark
            or data.log_start_offset != item.log_start_offset
            or data.diverging_epoch.end_offset >= 0
            or data.preferred_read_replica >= 0
        )
        if changed:
            item.high_watermark = data.high_watermark
            item.log_start_offset = data.log_start_offset
            item.must_answer = data.error_code != 0 or data.diverging_epoch.end_offset >= 0
        if has_records:
            # Served partitions go to the end, so that one busy partition cannot use up every answer's bytes.
            del self.items[key]
            self.items[key] = item
        return changed


class FetchSessions:
    """All sessions, at most `max.incremental.fetch.session.cache.slots` of them (Kafka's FetchSessionCache).

    Sessions of followers take the places of others, never the other way round: however many readers there are, what
    replicas ask for stays small.
    """

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._random = rng
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, items: dict[PartitionKey, FetchItem], *, uses_topic_ids: bool, now: float, is_follower: bool = False
    ) -> FetchSession | None:
        """A new session, or None when there is no room: the reader then goes on without one."""
        while len(self._sessions) >= self._slots or self._partitions + len(items) > MOST_PARTITIONS:
            if not self._evict((is_follower, len(items)), now):
                return None
        session_id = self._random.randint(1, MAX_EPOCH)
        while session_id in self._sessions:
            session_id = self._random.randint(1, MAX_EPOCH)
        session = FetchSession(session_id, items, uses_topic_ids=uses_topic_ids, now=now, is_follower=is_follower)
        self._sessions[session_id] = session
        self._partitions += len(items)
        return session

    def resume(self, request: FetchRequest, *, uses_topic_ids: bool, now: float) -> FetchSession | None:
        """The session that an incremental request continues, brought up to date; None, and closed, if that empties it.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"the fetch session is at epoch {session.epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the fetch session mixes topic names and ids")
        self.close(session.id)
        session.update(request, uses_topic_ids=uses_topic_ids)
        if not session.items:
            return None
        while self._partitions + len(session.items) > MOST_PARTITIONS:
            if not (session.is_follower and self._evict(session.worth, now)):
                text = "there are too many partitions in fetch sessions"
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, text)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        # Least recently used first.
        self._sessions[session.id] = session
        self._partitions += len(session.items)
        session.last_used = now
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.items)

    def _evict(self, wanted: Worth, now: float) -> bool:
        """Make room for a session: an unused one goes, else the least worth, if it is not young, or no follower's."""
        long_ago = now - EVICTION_MS / 1000
        victim = next(iter(self._sessions.values()), None)
        if victim is not None and victim.last_used >= long_ago:
            may_yield = (
                session
                for session in self._sessions.values()
                if session.created < long_ago or (wanted[0] and not session.is_follower)
            )
            victim = min(may_yield, key=lambda session: session.worth, default=None)
            if victim is not None and victim.worth >= wanted:
                victim = None
        if victim is not None:
            self.close(victim.id)
        return victim is not None


def requested_items(request: FetchRequest, *, uses_topic_ids: bool) -> dict[PartitionKey, FetchItem]:
    """The partitions that a request names, in its order."""
    items: dict[PartitionKey, FetchItem] = {}
    for topic in request.topics:
        name: str | UUID = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            items[(name, partition.partition)] = FetchItem(name, partition)
    return items

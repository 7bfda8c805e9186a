"""Incremental fetch sessions (KIP-227): the broker keeps the partitions of a reader, and returns the changed ones."""

from __future__ import annotations

import random
from collections import Counter
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

MAX_PARTITIONS = 100_000
"""Partitions in all sessions together, about 50 MB: above it readers fetch without a session."""

Worth = tuple[bool, int]
"""Whether a session is a follower's, and its partitions: the less, the sooner it makes room."""

Client = tuple[str, int]
"""The address and port of a reader's connection."""
NO_CLIENT: Client = ("", 0)

PartitionKey = tuple[str | UUID, int]
"""Topic name (Fetch <= 12) or topic id (>= 13), and partition index."""


@dataclass(slots=True)
class CachedPartition:
    """One partition of a session, and the offsets in the last response."""

    topic: str | UUID
    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    must_answer: bool = True
    """Whether the next response must contain the partition: after an error, or a new leader epoch."""


class FetchSession:
    """One reader's partitions, in the order in which they are served."""

    __slots__ = ("client", "created", "epoch", "id", "is_follower", "items", "last_used", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        items: dict[PartitionKey, CachedPartition],
        *,
        uses_topic_ids: bool,
        now: float,
        is_follower: bool = False,
        client: Client = NO_CLIENT,
    ) -> None:
        """`client` is the connection that opened the session; it may be continued on another one."""
        self.id = session_id
        self.client = client
        self.is_follower = is_follower
        self.epoch = 1
        self.items = items
        self.uses_topic_ids = uses_topic_ids
        self.created = self.last_used = now

    @property
    def worth(self) -> Worth:
        """The value by which sessions are compared for eviction."""
        return self.is_follower, len(self.items)

    def update(self, request: FetchRequest, *, uses_topic_ids: bool) -> None:
        """Take over added, changed and forgotten partitions of an incremental request, in this order."""
        items = self.items
        for topic in request.topics:
            name: str | UUID = topic.topic_id if uses_topic_ids else topic.topic
            for partition in topic.partitions:
                key = name, partition.partition
                known = items.get(key)
                if known is None:
                    items[key] = CachedPartition(name, partition)
                    continue
                # The follower's state for the previous leader epoch does not apply to the new one.
                if known.request.current_leader_epoch != partition.current_leader_epoch:
                    known.must_answer = True
                known.request = partition
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                items.pop((name, index), None)

    def keep_sent(self, key: PartitionKey, high_watermark: int, log_start_offset: int) -> None:
        """Keep the offsets of a response with records and without an error, as `keep_changed`."""
        # Served partitions go to the end, so that one busy partition cannot use up every answer's bytes.
        item = self.items[key] = self.items.pop(key)
        item.high_watermark, item.log_start_offset, item.must_answer = high_watermark, log_start_offset, False

    def keep_changed(self, key: PartitionKey, data: PartitionData) -> bool:
        """Whether an incremental response must contain `data`, whose offsets are kept if so."""
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


class Usage:
    """Sessions, or partitions in them, by connection and by address."""

    __slots__ = ("_by_address", "_by_client")

    def __init__(self) -> None:
        self._by_client: Counter[Client] = Counter()
        self._by_address: Counter[str] = Counter()

    def add(self, client: Client, count: int) -> None:
        """Add to the usage of a client; a negative count subtracts."""
        self._by_client[client] += count
        self._by_address[client[0]] += count
        if not self._by_client[client]:
            del self._by_client[client]
        if not self._by_address[client[0]]:
            del self._by_address[client[0]]

    def exceeds(self, one: Client, other: Client, count: int) -> bool:
        """Whether a connection, or its address, uses more than another one would with `more` added."""
        of_clients, of_addresses = self._by_client, self._by_address
        return of_clients[one] > of_clients[other] + count or of_addresses[one[0]] > of_addresses[other[0]] + count

    def is_exceeded(self, client: Client, count: int) -> bool:
        """Whether there may be a connection or address for which `exceeds` is true."""
        of_clients, of_addresses = self._by_client, self._by_address
        most_of_a_client = max(of_clients.values(), default=0)
        most_of_an_address = max(of_addresses.values(), default=0)
        return most_of_a_client > of_clients[client] + count or most_of_an_address > of_addresses[client[0]] + count


class FetchSessionCache:
    """All sessions, at most `max.incremental.fetch.session.cache.slots` of them (Kafka's FetchSessionCache).

    Sessions of followers replace others, never the other way round: with any number of consumers, the requests of
    replicas remain small. A connection or address with more sessions than another one makes room for it, so that no
    client fills the cache; Kafka has no such rule.
    """

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._random = rng
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0
        self._sessions_used = Usage()
        self._partitions_used = Usage()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        items: dict[PartitionKey, CachedPartition],
        *,
        uses_topic_ids: bool,
        now: float,
        is_follower: bool = False,
        client: Client = NO_CLIENT,
    ) -> FetchSession | None:
        """Return a new session, or None when there is no room: the reader then fetches without a session."""
        while len(self._sessions) >= self._slots or self._partitions + len(items) > MAX_PARTITIONS:
            if not self._evict((is_follower, len(items)), client, now):
                return None
        session_id = self._random.randint(1, MAX_EPOCH)
        while session_id in self._sessions:
            session_id = self._random.randint(1, MAX_EPOCH)
        session = FetchSession(
            session_id, items, uses_topic_ids=uses_topic_ids, now=now, is_follower=is_follower, client=client
        )
        self._add(session)
        return session

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session with this id."""
        return self._sessions.get(session_id)

    def resume(
        self, session_id: int, epoch: int, request: FetchRequest, *, uses_topic_ids: bool, now: float
    ) -> FetchSession | None:
        """Return the session that an incremental request continues, brought up to date; None, and closed, if that
        empties it.

        The id and the epoch of the session are arguments, because equal requests of many sessions are decoded once.
        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session_id} does not exist")
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"the fetch session is at epoch {session.epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the fetch session mixes topic names and ids")
        partitions = len(session.items)
        session.update(request, uses_topic_ids=uses_topic_ids)
        if len(session.items) == partitions > 0:
            # The usual request: it changes no number that is counted.
            del self._sessions[session_id]
            self._sessions[session_id] = session
        else:
            self._remove(session, partitions)
            if not session.items:
                return None
            while self._partitions + len(session.items) > MAX_PARTITIONS:
                if not (session.is_follower and self._evict(session.worth, session.client, now)):
                    text = "there are too many partitions in fetch sessions"
                    raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, text)
            self._add(session)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used = now
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            self._remove(session, len(session.items))

    def _remove(self, session: FetchSession, partitions: int) -> None:
        """Remove a session that was added, or last counted, with this number of partitions."""
        del self._sessions[session.id]
        self._partitions -= partitions
        self._sessions_used.add(session.client, -1)
        self._partitions_used.add(session.client, -partitions)

    def _add(self, session: FetchSession) -> None:
        """Add a session as the one used last: they are in this order."""
        self._sessions[session.id] = session
        self._partitions += len(session.items)
        self._sessions_used.add(session.client, 1)
        self._partitions_used.add(session.client, len(session.items))

    def _evict(self, wanted: Worth, client: Client, now: float) -> bool:
        """Make room for a session of a client; False if no session has to go for it.

        In this order: a session that is unused for long; one of a connection or address that uses more than the client
        would; the one worth least, if it is worth less than the new one and not young, or not a follower's.
        """
        long_ago = now - EVICTION_MS / 1000
        victim = next(iter(self._sessions.values()), None)
        if victim is not None and victim.last_used >= long_ago:
            victim = self._unfair(wanted, client) or self._least_worth(wanted, client, long_ago)
        if victim is not None:
            self.close(victim.id)
        return victim is not None

    def _unfair(self, wanted: Worth, client: Client) -> FetchSession | None:
        """Return the longest unused session of a client that would have more sessions than this client."""
        is_follower, partitions = wanted
        used, count = self._short(partitions)
        # Readers without a session reach this with each fetch: no walk through all sessions for nothing.
        if used.is_exceeded(client, count):
            for session in self._sessions.values():
                if (is_follower or not session.is_follower) and used.exceeds(session.client, client, count):
                    return session
        return None

    def _least_worth(self, wanted: Worth, client: Client, long_ago: float) -> FetchSession | None:
        """Return the session worth least, unless it is worth as much as the new one, or its client uses less."""
        is_follower = wanted[0]
        used, _ = self._short(0)
        may_yield = (
            session
            for session in self._sessions.values()
            if (is_follower and not session.is_follower)
            or (session.created < long_ago and not used.exceeds(client, session.client, 0))
        )
        victim = min(may_yield, key=lambda session: session.worth, default=None)
        return None if victim is None or victim.worth >= wanted else victim

    def _short(self, partitions: int) -> tuple[Usage, int]:
        """Return the usage that exceeds its limit, and the part that a new session with these partitions would add."""
        if len(self._sessions) >= self._slots:
            return self._sessions_used, 1
        return self._partitions_used, partitions


def requested_items(request: FetchRequest, *, uses_topic_ids: bool) -> dict[PartitionKey, CachedPartition]:
    """Return the partitions that a request names, in its order."""
    items: dict[PartitionKey, CachedPartition] = {}
    for topic in request.topics:
        name: str | UUID = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            items[(name, partition.partition)] = CachedPartition(name, partition)
    return items

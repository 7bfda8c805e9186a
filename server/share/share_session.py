"""Kafka's ShareSession and ShareSessionCache: the partitions that each member fetches from this broker (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ..replication.fetch_session import NO_CLIENT, Client, Usage

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
MAX_PARTITIONS = 100_000
"""Partitions in all sessions together."""


SharePartitionId = tuple[UUID, int]
"""Topic id and partition. The name of the topic is looked up for each request."""


class ShareSessionKey(NamedTuple):
    """The identity of a session: a member has one session per broker."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions of one member, in the order in which they are served, and the epoch of its next request."""

    __slots__ = ("client", "connection", "epoch", "key", "partitions")

    def __init__(
        self,
        key: ShareSessionKey,
        partitions: Iterable[SharePartitionId],
        connection: object,
        client: Client = NO_CLIENT,
    ) -> None:
        self.key = key
        self.partitions: dict[SharePartitionId, bool] = dict.fromkeys(partitions, False)
        """The value is whether the next response must contain the partition: after it was added, and after an error."""
        self.epoch = 1
        self.connection = connection
        """The connection that opened the session. The session ends when it is closed."""
        self.client = client
        """The address and port of the connection."""

    def update(self, added: Iterable[SharePartitionId], forgotten: Iterable[SharePartitionId]) -> None:
        """Add and remove partitions, in this order."""
        for partition in added:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def keep_changed(self, partition: SharePartitionId, *, has_records: bool, has_error: bool) -> bool:
        """Return whether the response of a subsequent request must contain the partition, and update its order."""
        must_answer = self.partitions.get(partition)
        if must_answer is None:
            return True
        if has_records:
            # Served partitions move to the end, so that one busy partition cannot use up the bytes of each response.
            del self.partitions[partition]
        self.partitions[partition] = has_error
        return must_answer or has_records or has_error

    def rotated(self) -> list[SharePartitionId]:
        """Return the partitions, in each epoch from another one on (Kafka: PartitionRotateStrategy)."""
        partitions = list(self.partitions)
        begin = (self.epoch - 1) % len(partitions) if partitions else 0
        return partitions[begin:] + partitions[:begin]


class ShareSessionCache:
    """All share sessions of a broker, at most `group.share.max.share.sessions`. Used on the event loop.

    A connection or address that has more sessions, or more partitions in them, than another one makes room for it, so
    that no client fills the cache; Kafka has no such rule. A session ends with its connection, as in Kafka.
    """

    def __init__(self, max_entries: int, on_member_leave: Callable[[ShareSession], None]) -> None:
        """`on_member_leave` is called with a session that was removed because its connection was closed, for the
        session of another client, or for a session that the limits do not allow."""
        self._max_entries = max_entries
        self._on_member_leave = on_member_leave
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[ShareSession, None]] = {}
        """The sessions by the id of the connection: members of several groups, or several members, may use one."""
        self._members: dict[str, int] = {}
        self._sessions_used = Usage()
        self._partitions_used = Usage()
        self._partitions = 0
        self.evictions = 0
        """Sessions that ended with their connection, or were evicted for the session of another client."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def sessions(self) -> list[ShareSession]:
        """The open sessions."""
        return list(self._sessions.values())

    @property
    def partition_count(self) -> int:
        """The partitions of all sessions together."""
        return self._partitions

    def get(self, key: ShareSessionKey) -> ShareSession:
        """Return a session. Raises KafkaError SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found.")
        return session

    def is_open(self, session: ShareSession) -> bool:
        """Whether a session has not ended."""
        return self._sessions.get(session.key) is session

    def has_members(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._members

    def open(
        self,
        key: ShareSessionKey,
        partitions: Iterable[SharePartitionId],
        connection: object,
        client: Client = NO_CLIENT,
    ) -> ShareSession:
        """Return a new session in place of a former one. Raises KafkaError SHARE_SESSION_LIMIT_REACHED."""
        former = self._sessions.get(key)
        if former is not None:
            self.remove(former)
        session = ShareSession(key, partitions, connection, client)
        count = len(session.partitions)
        while len(self) >= self._max_entries or self._partitions + count > MAX_PARTITIONS:
            if len(self) >= self._max_entries:
                victim = self._unfair(self._sessions_used, client, 1)
            else:
                victim = self._unfair(self._partitions_used, client, count)
            if victim is None:
                if former is not None:
                    # The member has no session any more: its records would remain acquired until their locks expire.
                    self._on_member_leave(former)
                reason = "The limit of share sessions has been reached."
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, reason)
            self._evict(victim)
        self._sessions[key] = session
        self._by_connection.setdefault(id(connection), {})[session] = None
        self._members[key.group_id] = self._members.get(key.group_id, 0) + 1
        self._sessions_used.add(client, 1)
        self._count_partitions(session, count)
        return session

    def _unfair(self, used: Usage, client: Client, count: int) -> ShareSession | None:
        """Return the session, unused for longest, of a client that uses more than this one would with `count` more."""
        if used.is_exceeded(client, count):
            for session in self._sessions.values():
                if used.exceeds(session.client, client, count):
                    return session
        return None

    def _count_partitions(self, session: ShareSession, count: int) -> None:
        """Add to the partitions of a session and of its client; a negative count subtracts."""
        self._partitions += count
        self._partitions_used.add(session.client, count)

    def resume(
        self,
        key: ShareSessionKey,
        epoch: int,
        added: Iterable[SharePartitionId] = (),
        forgotten: Iterable[SharePartitionId] = (),
    ) -> ShareSession:
        """Return the session of a subsequent request, with its changes applied and the epoch of the next request.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED.
        """
        session = self.get(key)
        if session.epoch != epoch:
            reason = f"The share session epoch is {session.epoch}, not {epoch}."
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, reason)
        before = len(session.partitions)
        # Each once: a request may name a partition twice.
        new = dict.fromkeys(partition for partition in added if partition not in session.partitions)
        while new and self._partitions + len(new) > MAX_PARTITIONS:
            victim = self._unfair(self._partitions_used, session.client, len(new))
            if victim is None:
                reason = "There are too many partitions in share sessions."
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, reason)
            self._evict(victim)
        session.update(new, forgotten)
        self._count_partitions(session, len(session.partitions) - before)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        # The sessions are in the order of their last use.
        del self._sessions[key]
        self._sessions[key] = session
        return session

    def remove(self, session: ShareSession) -> bool:
        """End a session; return False if it has ended before. Ends no other session of the member."""
        if not self.is_open(session):
            return False
        del self._sessions[session.key]
        of_connection = self._by_connection[id(session.connection)]
        del of_connection[session]
        if not of_connection:
            del self._by_connection[id(session.connection)]
        group_id = session.key.group_id
        self._members[group_id] -= 1
        if not self._members[group_id]:
            del self._members[group_id]
        self._sessions_used.add(session.client, -1)
        self._count_partitions(session, -len(session.partitions))
        return True

    def on_disconnect(self, connection: object) -> None:
        """End the sessions that a closed connection has opened."""
        for session in list(self._by_connection.get(id(connection), ())):
            self._evict(session)

    def _evict(self, session: ShareSession) -> None:
        self.remove(session)
        self.evictions += 1
        self._on_member_leave(session)

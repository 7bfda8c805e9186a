"""Fetches of consumers at the end of the same partition, which wait together and receive the same response."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from ...protocol.joint_fetch import NO_SESSION, RepeatedFetch, SharedFetchResponse, read_equal_fetch
from ...protocol.messages.fetch import FetchResponse
from ..replication.delayed_fetch import DelayedFetch
from ..runtime.loop_sharing import Steps, raise_error

if TYPE_CHECKING:
    from ...protocol.joint_fetch import EqualFetch
    from ...protocol.messages.fetch import PartitionData
    from ..network.connection import Connection
    from ..replication.delayed_fetch import FetchResult, LongFetch
    from ..replication.fetch_session import FetchSession
    from .handlers.fetch import PendingFetch
    from .request_context import Respond
    from .services import Services

logger = room_logger("apis")

MAX_MEMBERS = 64
"""Fetches that wait together: they are answered in one turn, in some tenths of a millisecond."""
JOINABLE_PART = 0.02
"""The fraction of the wait of a fetch in which other fetches may join it. They are answered at its deadline, which is
earlier than their own by at most this fraction."""

GroupKey: TypeAlias = tuple[str, bool, bytes]
"""The name of the listener, whose endpoints may be in the response; whether the requests continue a fetch session; and
`EqualFetch.key`."""


_new_tuple = tuple.__new__  # the generated constructor of a NamedTuple takes twice as long


class Member(NamedTuple):
    """One request of a group."""

    correlation_id: int
    session: FetchSession | None


class JointFetch:
    """The groups of equal fetches that wait. Owned by `KafkaApis`; used on the event loop's thread.

    The first fetch of a group is read, waits and is read again like any other. Later equal requests are only compared
    with it, wait in the purgatory as one operation with it, and get its results: the rules of Fetch are applied once
    for the whole group. Each request updates its own fetch session, with the code for single requests.

    Only for consumers whose requests pass no authorizer, quota or interceptor, and that read one partition.
    """

    def __init__(self, services: Services) -> None:
        self._sessions = services.fetch_sessions
        self._config = services.config
        self._fault = services.fault
        self._replica_manager = services.replica_manager
        self.sliced_work = services.sliced_work
        self.groups: dict[GroupKey, FetchGroup] = {}
        """The waiting groups. If several have the same key, the latest one."""

    def handle(self, connection: Connection, respond: Respond, buffer: memoryview, start: int, end: int) -> bool:
        """Handle the request in the frame at `[start, end)` if it joins a group or repeats the last request.

        `respond` sends a response. Return False if the request is handled like others.
        """
        if self.groups and self.join(connection, buffer, start, end):
            connection.last_request = None  # a request that waits alone is kept, and no request of a group
            return True
        last = connection.last_request
        if last is None:
            return False
        fetch, repeated = last
        values = repeated.read(buffer, start, end)
        if values is not None and self._fault("fetch-session-lost"):
            self._sessions.close(fetch.request.session_id)
        if values is None or not fetch.repeat(respond, values, self._config.fetch_max_bytes):
            connection.last_request = None
            return False
        self._lead_others(connection, fetch, fetch.read(fetch.respond), buffer, start, end)
        return True

    def keep(
        self,
        connection: Connection,
        fetch: PendingFetch,
        waiting: DelayedFetch | LongFetch | None,
        buffer: memoryview,
        start: int,
        end: int,
    ) -> None:
        """Keep a fetch, whose request is in the frame at `[start, end)`, for equal and repeated requests.

        `waiting` is its wait, None after a response.
        """
        connection.last_request = None
        if not fetch.is_joinable or self._lead_others(connection, fetch, waiting, buffer, start, end):
            return
        request = fetch.request
        # A request that opens or closes a session is not repeated.
        if request.session_epoch > 0 or (request.session_id, request.session_epoch) == NO_SESSION:
            with suppress(ValueError):
                connection.last_request = fetch, RepeatedFetch(buffer, start, end, request)

    def _lead_others(
        self,
        connection: Connection,
        fetch: PendingFetch,
        waiting: DelayedFetch | LongFetch | None,
        buffer: memoryview,
        start: int,
        end: int,
    ) -> bool:
        """Let later requests join a fetch if other fetches wait for the same partition. Return whether they may."""
        if not isinstance(waiting, DelayedFetch) or not waiting.has_other_fetches:
            return False
        connection.last_request = None
        self.lead(connection, fetch, waiting, buffer, start, end)
        return True

    def join(self, connection: Connection, buffer: memoryview, start: int, end: int) -> bool:
        """Let the request in the frame at `[start, end)` wait in a group. Return False if it is handled alone."""
        request = read_equal_fetch(buffer, start, end)
        if request is None:
            return False
        group = self.groups.get(_key(connection, request))
        # The condition of the group is checked, as it is when a request begins to wait alone.
        if group is None:
            return False
        now = self._replica_manager.loop_time()
        if not group.is_joinable(now) or group.waiting.try_complete():
            return False
        session = None
        if request.session_id:
            session = self._continue_session(group, request, now)
            if session is None:
                return False
        group.add(connection, _new_tuple(Member, (request.correlation_id, session)))
        return True

    def _continue_session(self, group: FetchGroup, request: EqualFetch, now: float) -> FetchSession | None:
        """Return the updated session of a request. Return None, with an unchanged session, if it is handled alone."""
        sessions = self._sessions
        if self._fault("fetch-session-lost"):
            sessions.close(request.session_id)
        session, fetch = sessions.get(request.session_id), group.fetch
        if session is None or len(session.items) != 1 or group.partition_key not in session.items:
            return None
        try:
            return sessions.resume(
                request.session_id,
                request.session_epoch,
                fetch.request,
                uses_topic_ids=fetch.uses_topic_ids,
                now=now,
            )
        except KafkaError:
            return None

    def lead(
        self,
        connection: Connection,
        fetch: PendingFetch,
        waiting: DelayedFetch,
        buffer: memoryview,
        start: int,
        end: int,
    ) -> None:
        """Let later requests join a fetch that waits as `waiting`, whose request is in the frame at `[start, end)`."""
        request = read_equal_fetch(buffer, start, end)
        if request is not None:
            key, now = _key(connection, request), self._replica_manager.loop_time()
            group = FetchGroup(self, key, fetch, waiting, now + (waiting.deadline - now) * JOINABLE_PART)
            group.add(connection, Member(request.correlation_id, fetch.session))
            self.groups[key] = fetch.group = group

    def end(self, key: GroupKey, group: FetchGroup) -> None:
        """Let no further request join a group, whose wait has ended."""
        if self.groups.get(key) is group:
            del self.groups[key]
        group.fetch.group = None  # otherwise both would be kept until the next run of the garbage collector


def _key(connection: Connection, request: EqualFetch) -> GroupKey:
    return connection.session.listener.name, request.session_id != 0, request.key


class FetchGroup:
    """A fetch that waits, and the connections whose requests get its results."""

    __slots__ = ("_join_until", "_joint_fetch", "_key", "_members", "fetch", "partition_key", "waiting")

    def __init__(
        self, joint_fetch: JointFetch, key: GroupKey, fetch: PendingFetch, waiting: DelayedFetch, join_until: float
    ) -> None:
        """Requests may join `fetch`, which waits as `waiting`, until the loop time `join_until`."""
        self._joint_fetch = joint_fetch
        self._key = key
        self._join_until = join_until
        self._members: dict[Connection, Member] = {}
        """The requests, in the order of their responses. A connection handles one request at a time."""
        self.fetch = fetch
        """The fetch of the first request."""
        self.partition_key = fetch.partition_key
        self.waiting = waiting

    def is_joinable(self, now: float) -> bool:
        """Return whether a request may join."""
        return now <= self._join_until and len(self._members) < MAX_MEMBERS

    def add(self, connection: Connection, member: Member) -> None:
        """Let a request wait, until the response or until its connection is closed."""
        self._members[connection] = member
        self.waiting.size = len(self._members)
        connection.on_close = partial(self._leave, connection)

    def _leave(self, connection: Connection) -> None:
        """Forget the request of a connection that is closed; cancel the fetch if no other request waits."""
        self._members.pop(connection, None)
        self.waiting.size = len(self._members)
        if not self._members:
            self._joint_fetch.end(self._key, self)
            self.waiting.cancel()

    def respond(self, results: list[FetchResult]) -> None:
        """Respond to all requests with the results for their partition."""
        self._joint_fetch.end(self._key, self)
        try:
            data, response = self.fetch.joint_answer(results)
            steps = self._responding(data, response)
        except Exception:
            logger.exception("a fetch of %d consumers failed", len(self._members))
            for connection in list(self._members):
                connection.abort()
            return
        if type(data.records) is bytes:
            for _ in steps:
                pass
        else:
            # The range of a file is sent to one connection and read again for the next, which takes longer.
            self._joint_fetch.sliced_work.run(steps, raise_error)

    def _responding(self, data: PartitionData, response: FetchResponse) -> Steps[None]:
        fetch, members, key = self.fetch, self._members, self.partition_key
        shared = unchanged = None
        is_read = True
        for connection, (correlation_id, session) in list(members.items()):
            if members.pop(connection, None) is None:
                continue  # it was closed during an earlier step
            try:
                if not is_read:
                    data, response = fetch.joint_answer(fetch.read_again())
                    shared = None
                if session is None or session.keep_changed(key, data):
                    chosen = shared = shared or SharedFetchResponse(response, fetch.version)
                    is_read = type(data.records) is bytes
                else:
                    chosen = unchanged = unchanged or SharedFetchResponse(FetchResponse(), fetch.version)
                connection.send(*chosen.frame(correlation_id, 0 if session is None else session.id))
            except Exception:
                logger.exception("the response to a fetch failed")
                connection.abort()
            yield

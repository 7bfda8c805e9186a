"""Injected faults: requests with errors, late responses or none, and failures of the broker's disk.

    with broker.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3) as fault:
        producer.flush()
    assert len(fault.requests) == 3

A fault is active until its `with` block ends, or until `end`; it applies to requests of one API or of all, of one
client or of all, the first `times` of them. Several faults are checked in the order of their creation; the first match
applies. Other requests are handled normally, at the same speed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from ..protocol.apis import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..server.apis.table import SERVED, TELEMETRY
from . import exchange as ways
from .disk import FaultyDisk
from .exchange import Exchange, kept
from .partition_faults import BY_PARTITION, OF_LEADERS, FaultTarget
from .slow_answers import drip

if TYPE_CHECKING:
    from uuid import UUID

    from ..server.apis.kafka_apis import KafkaApis
    from ..server.apis.request_context import Handle, RequestContext, Respond
    from ..server.broker_state import BrokerState
    from ..server.coordinator.group.group_coordinator import GroupCoordinator
    from ..server.metadata.metadata_cache import MetadataCache

T = TypeVar("T")
Api: TypeAlias = ApiKey | str | None
"""The API in Kafka's spelling, "Produce"; None for all."""
_OF_MEMBERS = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    }
)
"""Requests of group members to their coordinator."""
OnLoop: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Calls a function on the thread of the broker's loop and waits for it."""


@dataclass(frozen=True, slots=True)
class MetRequest:
    """A request to which a fault was applied."""

    api: ApiKey
    version: int
    client_id: str | None
    request: Any
    """The message; of a Produce request a copy, with its batches in `records`."""
    at: float
    """Arrival time in seconds of a monotonic clock."""


class Fault(AbstractContextManager["Fault"]):
    """One active fault. `requests` are the requests to which it was applied."""

    def __init__(
        self,
        faults: RequestFaults,
        do: Callable[[Exchange], Any],
        *,
        apis: Collection[ApiKey] | None,
        times: int | None,
        after: int,
        client_id: str | None,
        where: Callable[[Any], bool] | None,
        is_about: Callable[[Exchange], bool] | None = None,
    ) -> None:
        self.requests: list[MetRequest] = []
        self._faults = faults
        self._do = do
        self._apis = apis
        self._left = times
        self._passed_over = after
        self._client_id = client_id
        self._where = where
        self._is_about = is_about

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the fault. A second call has no effect."""
        self._faults.remove(self)

    @property
    def is_over(self) -> bool:
        """Return whether it has been applied to its maximum number of requests."""
        return self._left == 0

    def takes(self, api: ApiKey) -> bool:
        """Return whether it applies to that API."""
        return self._apis is None or api in self._apis

    def meets(self, exchange: Exchange) -> bool:
        """Return whether it applies to this request, and count it."""
        context, request = exchange.context, exchange.request
        if self.is_over or not self.takes(exchange.api):
            return False
        if self._client_id is not None and context.client_id != self._client_id:
            return False
        if self._where is not None and not self._where(request):
            return False
        if self._is_about is not None and not self._is_about(exchange):
            return False
        if self._passed_over:
            self._passed_over -= 1
            return False
        if self._left is not None:
            self._left -= 1
        now = asyncio.get_running_loop().time()
        self.requests.append(MetRequest(exchange.api, context.api_version, context.client_id, kept(request), now))
        return True

    def befall(self, exchange: Exchange) -> Any:
        """Apply the fault; has the result of a handler."""
        return self._do(exchange)


class RequestFaults:
    """Faults of one broker's requests and groups. Thread-safe."""

    def __init__(self, on_loop: OnLoop) -> None:
        self._on_loop = on_loop
        self._faults: list[Fault] = []
        self._apis: KafkaApis | None = None
        self._group_coordinator: GroupCoordinator | None = None
        self._metadata: MetadataCache | None = None

    # -- requests --------------------------------------------------------------------------------------------------

    def error(
        self,
        api: Api,
        code: ErrorCode | int | str,
        *,
        handled: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        **which: Any,
    ) -> Fault:
        """Respond with an error, in every error field of the response, or for one topic or partition only.

        Other partitions of the request are handled normally, and a request without the partition is not affected. With
        `handled` only the response is wrong: the request is executed. `which` is `times` (all), `after` (skip this
        number first), `client_id`, `where`, a predicate of the request, and `late`, a delay in seconds; all faults of
        requests have these parameters.
        """
        error = KafkaError(_code(code), "injected fault")
        if topic is None and partition is None:
            return self._add(api, partial(ways.answer_error, error, handled), **which)
        if topic is None:
            raise ValueError(f"partition={partition} requires a topic")
        if api is None or _api(api) not in BY_PARTITION:
            raise ValueError(f"{api}: an error of a partition is supported by {', '.join(map(_camel, BY_PARTITION))}")
        return self._add_at(
            frozenset({_api(api)}), error, FaultTarget(topic, partition, self._topic_name), handled, **which
        )

    def leader_moves(self, topic: str, partition: int | None = None, *, times: int | None = None) -> Fault:
        """Pretend that others lead a partition, or all of a topic: clients receive NOT_LEADER_OR_FOLLOWER until the
        end.

        Metadata still contain this broker, as from a broker that has not been informed yet.
        """
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "injected fault")
        return self._add_at(OF_LEADERS, error, FaultTarget(topic, partition, self._topic_name), False, times=times)

    def drip(self, api: Api, bytes_per_second: float, **which: Any) -> Fault:
        """Send the response slowly, some bytes at a time: clients receive frames that are incomplete for long."""
        if bytes_per_second <= 0:
            raise ValueError(
                f"bytes_per_second={bytes_per_second}: expected a positive number; use `silence` for no response"
            )
        return self._add(api, partial(drip, bytes_per_second), **which)

    def disconnect(self, api: Api = None, *, handled: bool = False, **which: Any) -> Fault:
        """Close the connection instead of handling the request; with `handled`, instead of the response.

        `disconnect("Produce", handled=True)`: the records are stored, and the producer has no response. Without an API
        the broker appears to be down.
        """
        return self._add(api, partial(ways.disconnect, handled), **which)

    def silence(self, api: Api, *, handled: bool = False, **which: Any) -> Fault:
        """Never respond: the client's timeout applies. With `handled` the request is executed."""
        return self._add(api, partial(ways.keep_silent, handled), **which)

    def delay(self, api: Api, seconds: float, *, handled: bool = False, **which: Any) -> Fault:
        """Handle the request after a delay; with `handled` immediately, with a delayed response."""
        if handled:
            return self._add(api, partial(ways.answer_late, seconds), **which)
        return self._add(api, partial(ways.late, seconds, Exchange.handle), **which)

    def throttle(self, api: Api, seconds: float, **which: Any) -> Fault:
        """Throttle the client: the response contains this throttle time, and the connection is muted for it."""
        return self._add(api, partial(ways.throttle, seconds), **which)

    def answer(self, api: Api, function: Callable[[Any], Any], **which: Any) -> Fault:
        """Return the function's response to the request; None lets the broker handle it.

        Requests and responses are messages of `barnabas.protocol.messages`. A KafkaError becomes an error response. The
        function runs on the broker's loop.
        """
        return self._add(api, partial(ways.answer_from, function), **which)

    def change(self, api: Api, function: Callable[[Any, Any], Any], **which: Any) -> Fault:
        """Let the function change the original response: it receives request and response, and returns the response to
        send.
        """
        return self._add(api, partial(ways.change, function), **which)

    def versions(self, **served: int | tuple[int, int]) -> Fault:
        """Limit the advertised versions of an API for later connections: `versions(Produce=7)`.

        With -1 the API is not advertised, with two numbers the range. Requests in other versions are still handled.
        """
        ranges = {_api(name): (0, one) if isinstance(one, int) else one for name, one in served.items()}
        return self._add(ApiKey.API_VERSIONS, partial(ways.narrow, ranges))

    def watch(self, api: Api = None, **which: Any) -> Fault:
        """Record requests in `requests`, without a fault."""
        return self._add(api, Exchange.handle, **which)

    # -- groups ----------------------------------------------------------------------------------------------------

    def coordinator_moves(self, times: int = 1) -> Fault:
        """Unload all groups of this broker and load them again from the log; the first request receives
        NOT_COORDINATOR.

        As do `times` requests of members, which then look up their coordinator.
        """
        error = KafkaError(ErrorCode.NOT_COORDINATOR, "injected fault")
        fault = self._add(_OF_MEMBERS, partial(ways.answer_error, error, False), times=times)
        self._on_loop(lambda: self._running_group_coordinator().reload_groups())
        return fault

    def sessions_expire(self, group: str) -> None:
        """Expire the sessions of all members of a group."""
        self._on_loop(lambda: self._running_group_coordinator().expire_sessions(group))

    def clear(self) -> None:
        """End all faults."""
        for fault in list(self._faults):
            fault.end()

    # -- internals -------------------------------------------------------------------------------------------------

    def attach(self, apis: KafkaApis, state: BrokerState) -> None:
        """Attach to a started broker, with the existing faults."""
        self._apis, self._group_coordinator, self._metadata = apis, state.group_coordinator, state.metadata
        if self._faults:
            apis.add_interceptor(self._around)

    def detach(self) -> None:
        """Detach from the stopped broker. Faults are kept."""
        self._apis = self._group_coordinator = self._metadata = None

    def remove(self, fault: Fault) -> None:
        """Remove an ended fault."""
        self._on_loop(partial(self._remove, fault))

    def _add(
        self,
        api: Api | frozenset[ApiKey],
        do: Callable[[Exchange], Any],
        *,
        times: int | None = None,
        after: int = 0,
        client_id: str | None = None,
        where: Callable[[Any], bool] | None = None,
        late: float = 0.0,
        is_about: Callable[[Exchange], bool] | None = None,
    ) -> Fault:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: expected at least one")
        if late:
            do = partial(ways.late, late, do)
        apis = api if api is None or isinstance(api, frozenset) else frozenset({_api(api)})
        fault = Fault(
            self, do, apis=apis, times=times, after=after, client_id=client_id, where=where, is_about=is_about
        )
        self._on_loop(partial(self._insert, fault))
        return fault

    def _add_at(
        self, apis: frozenset[ApiKey], error: KafkaError, target: FaultTarget, handled: bool, **which: Any
    ) -> Fault:  # fmt: skip
        return self._add(apis, partial(target.fail, error, handled), is_about=target.is_named, **which)

    def _topic_name(self, topic_id: UUID) -> str | None:
        return None if self._metadata is None else self._metadata.topic_name(topic_id)

    def _insert(self, fault: Fault) -> None:
        self._faults.append(fault)
        if self._apis is not None:
            self._look_around(had_any=len(self._faults) > 1)

    def _remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)
            if self._apis is not None:
                self._look_around(had_any=True)

    def _look_around(self, *, had_any: bool) -> None:
        """Intercept requests only while there is a fault for them."""
        assert self._apis is not None
        if had_any:
            self._apis.remove_interceptor(self._around)
        if self._faults:
            self._apis.add_interceptor(self._around)

    def _around(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        if not any(fault.takes(key) for fault in self._faults):
            return handle, respond

        def beset(context: RequestContext, request: Any) -> Any:
            exchange = Exchange(key, context, request, handle)
            for fault in list(self._faults):
                if fault.meets(exchange):
                    return fault.befall(exchange)
            return handle(context, request)

        return beset, respond

    def _running_group_coordinator(self) -> GroupCoordinator:
        if self._group_coordinator is None:
            raise RuntimeError("the broker is not running")
        return self._group_coordinator


class Faults(RequestFaults):
    """All faults of one broker. Thread-safe."""

    def __init__(self, on_loop: OnLoop, disk: FaultyDisk) -> None:
        super().__init__(on_loop)
        self.disk = disk
        self.points: set[str] = set()
        """Active fault points of the simulation (`Ports.fault`)."""

    # -- the broker ------------------------------------------------------------------------------------------------

    def disk_full(self) -> AbstractContextManager[None]:
        """Let every write to the disk fail with a full disk, until the `with` block ends."""
        return self.disk_error(errno.ENOSPC)

    def disk_error(self, number: int) -> AbstractContextManager[None]:
        """Let every write to the disk fail with this `errno`. With EIO the directory becomes offline, as in Kafka."""
        return _While(partial(self.disk.fail, number), self.disk.recover)

    def late_flushes(self) -> AbstractContextManager[None]:
        """Slow down syncs of records: for `Broker(config={"acks.all.durability": "disk"})`."""
        return self._point("flush-late")

    def fetch_sessions_lost(self) -> AbstractContextManager[None]:
        """Drop every fetch session before its next use."""
        return self._point("fetch-session-lost")

    def clear(self) -> None:
        """End all faults."""
        self.disk.recover()
        self.points.clear()
        super().clear()

    def _point(self, name: str) -> AbstractContextManager[None]:
        return _While(partial(self.points.add, name), partial(self.points.discard, name))


class _While(AbstractContextManager[None]):
    """Active from its creation until the end of its `with` block."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._end = end
        begin()

    def __exit__(self, *_: object) -> None:
        self._end()


def _api(api: ApiKey | str) -> ApiKey:
    """Return the API of that name, in any case. Raises ValueError."""
    if isinstance(api, ApiKey):
        return api
    names = {_plain(key.name): key for key in SERVED | TELEMETRY}
    if (found := names.get(_plain(api))) is not None:
        return found
    near = get_close_matches(_plain(api), names, n=1)
    shown = f"; did you mean {_camel(names[near[0]])!r}?" if near else ""
    raise ValueError(f"unknown API {api!r}{shown}")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _camel(key: ApiKey) -> str:
    return key.name.title().replace("_", "")


def _code(code: ErrorCode | int | str) -> ErrorCode:
    """Return the error of that name or number. Raises ValueError."""
    if not isinstance(code, str):
        return ErrorCode(code)
    if code in ErrorCode.__members__:
        return ErrorCode[code]
    near = get_close_matches(code.upper(), ErrorCode.__members__, n=1)
    raise ValueError(f"unknown error {code!r}" + (f"; did you mean {near[0]!r}?" if near else ""))

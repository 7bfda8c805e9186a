"""Faults on purpose: requests that are answered with an error, late, or not at all, and a broker out of luck.

    with broker.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3) as fault:
        producer.flush()
    assert len(fault.requests) == 3

A fault lasts until its `with` ends, or until `end`; it meets requests of one API or of all, of one client or of all,
the first `times` of them. Several faults are asked in the order in which they were made; the first that wants a request
has it. What meets none goes the way it always goes, and nothing is slower for it.
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

    from ..server.apis.kafka_apis import Handle, KafkaApis, Respond
    from ..server.apis.request_context import RequestContext
    from ..server.broker_state import BrokerState
    from ..server.coordinator.group.coordinator import GroupCoordinator
    from ..server.metadata.metadata_cache import MetadataCache

T = TypeVar("T")
Api: TypeAlias = ApiKey | str | None
"""As Kafka calls it, "Produce"; None for all of them."""
_OF_MEMBERS = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)
"""What members ask their coordinator."""
OnLoop: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Does something on the thread of the broker's loop and waits for it."""


@dataclass(frozen=True, slots=True)
class MetRequest:
    """A request that met a fault."""

    api: ApiKey
    version: int
    client_id: str | None
    request: Any
    """The message; of a Produce request a copy, with its batches in `records`."""
    at: float
    """When it came: seconds of a clock that begins anywhere and is not set."""


class Fault(AbstractContextManager["Fault"]):
    """One fault, which holds from when it is made. `requests` are those that met it so far."""

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
        """Requests from now on are spared. Ending it twice is fine."""
        self._faults.remove(self)

    @property
    def is_over(self) -> bool:
        """Whether it has met as many requests as it was made for."""
        return self._left == 0

    def takes(self, api: ApiKey) -> bool:
        """Whether requests of that API can meet it."""
        return self._apis is None or api in self._apis

    def meets(self, exchange: Exchange) -> bool:
        """Whether this is a request for it; then it counts as met."""
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
        """Do to the request what this is about; what a handler returns."""
        return self._do(exchange)


class RequestFaults:
    """Faults of what one broker is asked, and of its groups. Any thread may make and end them."""

    def __init__(self, on_loop: OnLoop) -> None:
        self._on_loop = on_loop
        self._faults: list[Fault] = []
        self._apis: KafkaApis | None = None
        self._groups: GroupCoordinator | None = None
        self._metadata: MetadataCache | None = None

    # -- of requests -----------------------------------------------------------------------------------------------

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
        """Answer with an error, in every place of the answer that has room for one, or for one topic or partition.

        What a request says of other partitions is then done, and one that names no such partition is spared. With
        `handled` only the answer lies: what was asked for is done. `which` is `times` (all), `after` (pass over so
        many first), `client_id`, `where`, a function of the request, and `late`, seconds that pass before it befalls
        the request; so it is for all faults of requests.
        """
        error = KafkaError(_code(code), "a fault on purpose")
        if topic is None and partition is None:
            return self._add(api, partial(ways.answer_error, error, handled), **which)
        if topic is None:
            raise ValueError(f"partition={partition}: of which topic?")
        if api is None or _api(api) not in BY_PARTITION:
            raise ValueError(f"{api}: an error of a partition is answered by {', '.join(map(_camel, BY_PARTITION))}")
        return self._add_at(
            frozenset({_api(api)}), error, FaultTarget(topic, partition, self._topic_name), handled, **which
        )

    def leader_moves(self, topic: str, partition: int | None = None, *, times: int | None = None) -> Fault:
        """Others lead a partition, or all of a topic: clients hear NOT_LEADER_OR_FOLLOWER, until the fault ends.

        Metadata still lead here, as where a client asks somebody who has not heard of it yet.
        """
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "a fault on purpose")
        return self._add_at(OF_LEADERS, error, FaultTarget(topic, partition, self._topic_name), False, times=times)

    def drip(self, api: Api, bytes_per_second: float, **which: Any) -> Fault:
        """Send the answer slowly, some bytes at a time: a client sees frames that begin and do not end for long."""
        if bytes_per_second <= 0:
            raise ValueError(f"{bytes_per_second} bytes a second: a drip that never comes is `silence`")
        return self._add(api, partial(drip, bytes_per_second), **which)

    def disconnect(self, api: Api = None, *, handled: bool = False, **which: Any) -> Fault:
        """Close the connection instead of handling the request; with `handled`, instead of answering it.

        `disconnect("Produce", handled=True)`: the records are there, and the producer cannot know. Without an API the
        broker is as good as gone.
        """
        return self._add(api, partial(ways.disconnect, handled), **which)

    def silence(self, api: Api, *, handled: bool = False, **which: Any) -> Fault:
        """Never answer: the client's patience decides. With `handled` what was asked for is done."""
        return self._add(api, partial(ways.keep_silent, handled), **which)

    def delay(self, api: Api, seconds: float, *, handled: bool = False, **which: Any) -> Fault:
        """Handle the request so much later; with `handled` at once, and answer later."""
        if handled:
            return self._add(api, partial(ways.answer_late, seconds), **which)
        return self._add(api, partial(ways.late, seconds, Exchange.handle), **which)

    def throttle(self, api: Api, seconds: float, **which: Any) -> Fault:
        """Answer as to a client over its quota: it is told to wait so long, and not listened to before."""
        return self._add(api, partial(ways.throttle, seconds), **which)

    def answer(self, api: Api, function: Callable[[Any], Any], **which: Any) -> Fault:
        """Answer what the function makes of the request; None has it handled as usual.

        Requests and answers are messages of `barnabas.protocol.messages`. KafkaError is answered as such. The function
        runs on the broker's loop.
        """
        return self._add(api, partial(ways.answer_from, function), **which)

    def change(self, api: Api, function: Callable[[Any, Any], Any], **which: Any) -> Fault:
        """Have the function change the true answer: it gets request and answer, and returns what is sent."""
        return self._add(api, partial(ways.change, function), **which)

    def versions(self, **served: int | tuple[int, int]) -> Fault:
        """Tell clients that connect from now on that an API is served up to a version only: `versions(Produce=7)`.

        With -1 it is not served at all, with two numbers from the one to the other. Nobody is kept from asking in a
        version that was not told.
        """
        ranges = {_api(name): (0, one) if isinstance(one, int) else one for name, one in served.items()}
        return self._add(ApiKey.API_VERSIONS, partial(ways.narrow, ranges))

    def watch(self, api: Api = None, **which: Any) -> Fault:
        """No fault: `requests` are those that came."""
        return self._add(api, Exchange.handle, **which)

    # -- of groups --------------------------------------------------------------------------------------------------

    def coordinator_moves(self, times: int = 1) -> Fault:
        """All groups leave this broker and come back, read from the log; who asks first for one hears NOT_COORDINATOR.

        So do as many requests of members as `times` says. Members then look for their coordinator anew.
        """
        error = KafkaError(ErrorCode.NOT_COORDINATOR, "a fault on purpose")
        fault = self._add(_OF_MEMBERS, partial(ways.answer_error, error, False), times=times)
        self._on_loop(lambda: self._running_groups().move_away_and_back())
        return fault

    def sessions_expire(self, group: str) -> None:
        """The members of a group count as dead, as if their session timeouts were over."""
        self._on_loop(lambda: self._running_groups().expire_sessions(group))

    def clear(self) -> None:
        """End all faults."""
        for fault in list(self._faults):
            fault.end()

    # -- inside ----------------------------------------------------------------------------------------------------

    def attach(self, apis: KafkaApis, state: BrokerState) -> None:
        """The broker has started. Faults that were made before hold."""
        self._apis, self._groups, self._metadata = apis, state.groups, state.metadata
        if self._faults:
            apis.surround(self._around)

    def detach(self) -> None:
        """The broker runs no more. Faults last."""
        self._apis = self._groups = self._metadata = None

    def remove(self, fault: Fault) -> None:
        """It is over."""
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
            raise ValueError(f"times={times}: a fault is met once at least")
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
        """Be asked about requests only while there is a fault for them."""
        assert self._apis is not None
        if had_any:
            self._apis.leave_alone(self._around)
        if self._faults:
            self._apis.surround(self._around)

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

    def _running_groups(self) -> GroupCoordinator:
        if self._groups is None:
            raise RuntimeError("the broker is not running")
        return self._groups


class Faults(RequestFaults):
    """All faults of one broker. Any thread may make and end them."""

    def __init__(self, on_loop: OnLoop, disk: FaultyDisk) -> None:
        super().__init__(on_loop)
        self.disk = disk
        self.points: set[str] = set()
        """Fault points of the simulation (`Ports.fault`) that are on."""

    # -- of the broker ---------------------------------------------------------------------------------------------

    def disk_full(self) -> AbstractContextManager[None]:
        """No write to the disk succeeds, for want of room, until the `with` ends."""
        return self.disk_error(errno.ENOSPC)

    def disk_error(self, number: int) -> AbstractContextManager[None]:
        """Every write to the disk ends with this `errno`. With EIO Kafka's rule holds: the directory goes offline."""
        return _While(partial(self.disk.fail, number), self.disk.recover)

    def late_flushes(self) -> AbstractContextManager[None]:
        """The disk is slow to make records durable: for `Broker(config={"acks.all.durability": "disk"})`."""
        return self._point("flush-late")

    def fetch_sessions_lost(self) -> AbstractContextManager[None]:
        """The broker forgets every fetch session before it is used again."""
        return self._point("fetch-session-lost")

    def clear(self) -> None:
        """End all faults."""
        self.disk.recover()
        self.points.clear()
        super().clear()

    def _point(self, name: str) -> AbstractContextManager[None]:
        return _While(partial(self.points.add, name), partial(self.points.discard, name))


class _While(AbstractContextManager[None]):
    """Holds from when it is made until the end of its `with`."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._end = end
        begin()

    def __exit__(self, *_: object) -> None:
        self._end()


def _api(api: ApiKey | str) -> ApiKey:
    """The API of that name, however it is written. Raises ValueError."""
    if isinstance(api, ApiKey):
        return api
    names = {_plain(key.name): key for key in SERVED | TELEMETRY}
    if (found := names.get(_plain(api))) is not None:
        return found
    near = get_close_matches(_plain(api), names, n=1)
    shown = f"; did you mean {_camel(names[near[0]])!r}?" if near else ""
    raise ValueError(f"no API is called {api!r}{shown}")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _camel(key: ApiKey) -> str:
    return key.name.title().replace("_", "")


def _code(code: ErrorCode | int | str) -> ErrorCode:
    """The error of that name or number. Raises ValueError."""
    if not isinstance(code, str):
        return ErrorCode(code)
    if code in ErrorCode.__members__:
        return ErrorCode[code]
    near = get_close_matches(code.upper(), ErrorCode.__members__, n=1)
    raise ValueError(f"no error is called {code!r}" + (f"; did you mean {near[0]!r}?" if near else ""))

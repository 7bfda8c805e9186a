"""The counts and times of requests while metrics are enabled.

All requests are counted, and the slowest of each minute are kept. One request of an API per `APART_SECONDS` is timed in
full, so that all of few requests are timed, and the cost is negligible for many. Quantiles are of the last `KEPT` timed
requests. For other requests with an immediate response, only the total time is measured.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from sys import byteorder
from types import CoroutineType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...protocol.apis import ApiKey
from ..apis.error_counts import ErrorCounts, api_name
from .call_watch import watch
from .slow_requests import SlowOfApi, SlowRequests

if TYPE_CHECKING:
    from ..apis.request_context import Handle, RequestContext, Respond

KEPT = 1028
"""The size of the samples of Kafka's histograms."""
APART_SECONDS = 0.01
"""The time between two timed requests of an API."""


class Times:
    """The last of many measurements, in seconds."""

    __slots__ = ("count", "last", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.last: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float, stands_for: int = 1) -> None:
        """Add a measurement, which counts `stands_for` times in the total: the other requests are not timed."""
        self.count += 1
        self.total += seconds * stands_for
        self.last.append(seconds)


class ApiTimes:
    """The phases of the requests of one API."""

    __slots__ = ("local", "remote", "send", "total")

    def __init__(self) -> None:
        self.total = Times()
        self.local = Times()
        self.remote = Times()
        self.send = Times()

    def add(self, local: float, remote: float, send: float, stands_for: int) -> None:
        """Count one request."""
        self.total.add(local + remote + send, stands_for)
        self.local.add(local, stands_for)
        self.remote.add(remote, stands_for)
        self.send.add(send, stands_for)


class VersionMeter:
    """The requests of one version of an API. Used on the loop's thread only."""

    __slots__ = ("_stood_for", "count", "slow", "times")

    def __init__(self, times: ApiTimes, slow: SlowOfApi) -> None:
        """`times` and `slow` belong to the API."""
        self.count = bytearray(8)
        """The number of requests, in memory that C code increments."""
        self.times = times
        self.slow = slow
        self._stood_for = 0

    @property
    def counted(self) -> int:
        """The number of requests."""
        return int.from_bytes(self.count, byteorder)

    def take_untimed(self) -> int:
        """Return the number of requests since the last call. The next timed request stands for all of them.

        A sum computed as mean times count would decrease when a busy time, with few timed requests, is followed by a
        quiet time, with all of them timed.
        """
        counted = self.counted
        stands_for, self._stood_for = counted - self._stood_for, counted
        return stands_for

    def add(
        self, count: int, began: float, handled: float, ended: tuple[float, float], contexts: Iterable[RequestContext]
    ) -> None:
        """Add requests that were handled together: `JointMeter.add`. Their times are equal."""
        answered, sent = ended
        phases = handled - began, answered - handled, sent - answered
        watched = self.slow.watched
        self.count[:] = (self.counted + count).to_bytes(8, byteorder)
        if began >= watched.due:
            watched.due = began + APART_SECONDS
            self.times.add(*phases, self.take_untimed())
        if sent - began > watched.floor:
            for context in contexts:
                self.slow.add(context, 0.0, sent, phases)


GONE = ""
"""Stands for topics that are there no more: no topic is called that."""


class RequestMeters:
    """Counts of all APIs, by name as Kafka has it. Loop-thread only."""

    def __init__(self, stopwatch: Callable[[], float], topic_name: Callable[[UUID], str | None]) -> None:
        self._stopwatch = stopwatch
        self._topic_name = topic_name
        self._meters: dict[tuple[ApiKey, int], VersionMeter] = {}
        self.times: dict[str, ApiTimes] = {}
        self.slow = SlowRequests()
        self.errors = ErrorCounts()
        self.bytes_out: Counter[str] = Counter()
        """The bytes by topic; `GONE` has the sum of deleted topics."""

    @property
    def requests(self) -> dict[tuple[str, int], int]:
        """The number of requests by API and version."""
        return {(api_name(key), version): meter.counted for (key, version), meter in self._meters.items()}

    def intercept(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        """Measure the requests of an API: the interceptor for `KafkaApis.add_interceptor`."""
        return self._measuring(key, version, handle), self._counting(respond) if key is ApiKey.FETCH else respond

    def joint_meter(self, key: ApiKey, version: int) -> VersionMeter:
        """Return the meter for requests that are handled together."""
        meter = self._meters.get((key, version))
        if meter is None:
            name = api_name(key)
            meter = VersionMeter(self.times.setdefault(name, ApiTimes()), self.slow.of(name, key))
            self._meters[key, version] = meter
        return meter

    def _measuring(self, key: ApiKey, version: int, handle: Handle) -> Handle:
        meter, clock = self.joint_meter(key, version), self._stopwatch
        times, slow, asked = meter.times, meter.slow, _fetch_wait if key is ApiKey.FETCH else _no_wait
        watched = slow.watched

        def answered(
            timing: list[float],
            respond: Respond,
            context: RequestContext,
            response: Any,
            *,
            waited: float,
            stands_for: int,
        ) -> None:
            answered = clock()
            respond(context, response)
            sent = clock()
            began, handled = timing[0], timing[-1] if len(timing) > 1 else answered
            phases = handled - began, answered - handled, sent - answered
            if stands_for:
                times.add(*phases, stands_for)
            if sent - began > watched.floor:
                slow.add(context, waited, sent, phases)

        def timed(context: RequestContext, request: Any) -> Any:
            timing = [clock()]
            stands_for = meter.take_untimed()
            watched.due = timing[0] + APART_SECONDS

            def noted(context: RequestContext, request: Any) -> Any:
                answer = handle(context, request)
                timing.append(clock())
                return answer

            change = partial(answered, timing, waited=asked(request), stands_for=stands_for)
            return context.handle_and_wrap_response(noted, request, change)

        def beyond(context: RequestContext, request: Any, answer: Any) -> None:
            began, ended = watched.last or (clock(),) * 2
            if not context.is_answered and (answer is None or isinstance(answer, CoroutineType)):
                context.wrap_response(partial(answered, [began, ended], waited=asked(request), stands_for=0))
            elif ended - began > watched.floor:
                slow.add(context, 0.0, ended, (ended - began, 0.0, 0.0))

        begin, is_slow = watch(clock, meter.count, watched)

        def measured(context: RequestContext, request: Any) -> Any:
            if begin():
                return timed(context, request)
            response = handle(context, request)
            if is_slow() or not context.is_answered:
                beyond(context, request, response)
            return response

        return measured

    def _counting(self, respond: Respond) -> Respond:
        """Return a response function of Fetch that counts errors, and the bytes of records that consumers receive."""
        bytes_out, topic_name, errors = self.bytes_out, self._topic_name, self.errors

        def count_and_respond(context: RequestContext, response: Any) -> None:
            if response.error_code:
                errors.add(ApiKey.FETCH, response.error_code)
            for topic in response.responses:
                size = 0
                for partition in topic.partitions:
                    if partition.error_code:
                        errors.add(ApiKey.FETCH, partition.error_code)
                    if partition.records is not None:
                        size += len(partition.records)
                if size and not context.is_replica_fetch:
                    bytes_out[topic.topic or topic_name(topic.topic_id) or GONE] += size
            respond(context, response)

        return count_and_respond


def _fetch_wait(request: Any) -> float:
    """Seconds that the client itself wants to wait, found before: no request is kept until it is answered."""
    seconds: float = request.max_wait_ms / 1000
    return seconds


def _no_wait(_: Any) -> float:
    return 0.0

"""The counts and times of requests while metrics are enabled.

All requests are counted, and the slowest of each minute are kept. One request of an API per `APART_SECONDS` is timed in
full, so that all of few requests are timed, and the cost is negligible for many. Quantiles are of the last `KEPT` timed
requests. For other requests with an immediate response, only the total time is measured.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from sys import byteorder
from types import CoroutineType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...protocol.apis import ApiKey
from ..apis.error_counts import ErrorCounts, api_name
from .call_watch import watch
from .slow_requests import SlowRequests

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


GONE = ""
"""Stands for topics that are there no more: no topic is called that."""


class RequestMeters:
    """Counts of all APIs, by name as Kafka has it. Loop-thread only."""

    def __init__(self, stopwatch: Callable[[], float], topic_name: Callable[[UUID], str | None]) -> None:
        self._stopwatch = stopwatch
        self._topic_name = topic_name
        self._counts: dict[tuple[str, int], bytearray] = {}
        self.times: dict[str, ApiTimes] = {}
        self.slow = SlowRequests()
        self.errors = ErrorCounts()
        self.bytes_out: Counter[str] = Counter()
        """The bytes by topic; `GONE` has the sum of deleted topics."""

    @property
    def requests(self) -> dict[tuple[str, int], int]:
        """The number of requests by API and version."""
        return {which: int.from_bytes(count, byteorder) for which, count in self._counts.items()}

    def intercept(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        """Measure the requests of an API: the interceptor for `KafkaApis.add_interceptor`."""
        return self._measuring(key, version, handle), self._counting(respond) if key is ApiKey.FETCH else respond

    def _measuring(self, key: ApiKey, version: int, handle: Handle) -> Handle:
        name = api_name(key)
        count = self._counts.setdefault((name, version), bytearray(8))
        times, clock = self.times.setdefault(name, ApiTimes()), self._stopwatch
        slow, asked = self.slow.of(name, key), _fetch_wait if key is ApiKey.FETCH else _no_wait
        watched = slow.watched
        stood_for = int.from_bytes(count, byteorder)

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
            nonlocal stood_for
            timing = [clock()]
            # It counts for the requests before it that were not timed, too. A sum computed as mean times count would
            # decrease when a busy time, with few timed requests, is followed by a quiet time, with all of them timed.
            counted = int.from_bytes(count, byteorder)
            stands_for, stood_for = counted - stood_for, counted
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

        begin, is_slow = watch(clock, count, watched)

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

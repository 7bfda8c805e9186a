"""Requests counted and, some of them, timed: what surrounds every handler while somebody measures.

All requests are counted; each eighth of an API and version is timed, the first one included, which keeps the price
below what can be noticed. Quantiles are of the last `KEPT` that were timed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...protocol.apis import ApiKey

if TYPE_CHECKING:
    from ..apis.kafka_apis import Handle, Respond
    from ..apis.request_context import RequestContext

KEPT = 1028
"""As many as Kafka's histograms keep."""
TIMED_MASK = 7


class Times:
    """The last of many measurements, in seconds."""

    __slots__ = ("count", "last", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.last: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.last.append(seconds)


class ApiTimes:
    """The phases of the requests of one API."""

    __slots__ = ("local", "remote", "send", "total")

    def __init__(self) -> None:
        self.total = Times()
        self.local = Times()
        self.remote = Times()
        self.send = Times()


GONE = ""
"""Stands for topics that are there no more: no topic is called that."""


class RequestMeters:
    """Counts of all APIs, by name as Kafka has it. Loop-thread only."""

    def __init__(self, stopwatch: Callable[[], float], topic_name: Callable[[UUID], str | None]) -> None:
        self._stopwatch = stopwatch
        self._topic_name = topic_name
        self.requests: dict[tuple[str, int], list[int]] = {}
        """How many, by API and version, in a list of one."""
        self.times: dict[str, ApiTimes] = {}
        self.bytes_out: Counter[str] = Counter()
        """By topic, and under `GONE` of all that are there no more."""

    def around(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        """`KafkaApis.surround` takes this."""
        name = key.name.title().replace("_", "")
        cell = self.requests.setdefault((name, version), [0])
        times, clock = self.times.setdefault(name, ApiTimes()), self._stopwatch
        if key is ApiKey.FETCH:
            respond = self._counting(respond)

        def answered(timing: list[float], respond: Respond, context: RequestContext, response: Any) -> None:
            answered = clock()
            respond(context, response)
            sent = clock()
            began, handled = timing[0], timing[-1] if len(timing) > 1 else answered
            times.total.add(sent - began)
            times.local.add(handled - began)
            times.remote.add(answered - handled)
            times.send.add(sent - answered)

        def handled(context: RequestContext, request: Any) -> Any:
            cell[0] = number = cell[0] + 1
            if number & TIMED_MASK != 1:
                return handle(context, request)
            timing = [clock()]

            def timed(context: RequestContext, request: Any) -> Any:
                answer = handle(context, request)
                timing.append(clock())
                return answer

            return context.handle_through(timed, request, partial(answered, timing))

        return handled, respond

    def _counting(self, respond: Respond) -> Respond:
        """Fetch's way to answer, with the bytes of records counted."""
        bytes_out, topic_name = self.bytes_out, self._topic_name

        def count_and_respond(context: RequestContext, response: Any) -> None:
            for topic in response.responses:
                size = 0
                for partition in topic.partitions:
                    if partition.records is not None:
                        size += len(partition.records)
                if size:
                    bytes_out[topic.topic or topic_name(topic.topic_id) or GONE] += size
            respond(context, response)

        return count_and_respond

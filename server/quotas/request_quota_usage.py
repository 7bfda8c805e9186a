"""The use of quotas by one request: its time on the loop's thread, its bytes, the partitions that it changed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...protocol.apis import ApiKey
from .client_quota_manager import quota_exceeded

if TYPE_CHECKING:
    from .quota_managers import QuotaManagers

T = TypeVar("T")
PRODUCE, FETCH, REQUEST = "Produce", "Fetch", "Request"
CONTROLLER_MUTATION, CONNECTION = "ControllerMutation", "Connection"
"""The quotas in metrics: Kafka's types of the MBeans with a throttle time, and the creation of connections."""
_INT_MAX = 2**31 - 1


class ThrottledRequest(Protocol):
    """A request context. A Protocol because quotas must not import the requests that use them."""

    @property
    def api_key(self) -> int:
        """The API of the request."""

    def mute(self, seconds: float) -> None:
        """Mute the connection for this time after the response (KIP-219)."""


ControllerMutationQuota = Callable[[int], None]
"""Called with a number of partitions before they are created or deleted. Raises KafkaError to reject the change."""


def unbounded_controller_mutation_quota(_: int) -> None:
    """Accept changes that are not a client's, or of a client without a quota."""


class RequestQuotaUsage:
    """The use of quotas by one request, from its arrival to its response. Used on the loop's thread only.

    The response is sent immediately with the throttle time, and the connection is muted for that time (KIP-219). The
    longest throttle time of all quotas counts.
    """

    __slots__ = (
        "_cause",
        "_client_id",
        "_is_settled",
        "_is_timed",
        "_quotas",
        "_since",
        "_size",
        "_spent",
        "_user",
        "_wait",
    )

    def __init__(self, quotas: QuotaManagers, user: str, client_id: str, size: int) -> None:
        """`size` is that of the whole request in bytes."""
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._size = size
        self._wait = 0.0
        self._cause = ""
        """The quota with the longest throttle time."""
        self._is_timed = False
        self._is_settled = False
        self._spent = 0.0
        self._since: float | None = quotas.stopwatch()

    # -- time on the loop's thread ------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop the clock: the request waits."""
        self._spent = self._spent_until_now()
        self._since = None

    def resume(self) -> None:
        """Start the clock again."""
        self._since = self._quotas.stopwatch()

    def spend(self, seconds: float) -> None:
        """Count this time in place of the time since its arrival: the request was handled together with others."""
        self._spent, self._since = seconds, None

    async def timed(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine of a handler with the time of its turns counted, but not of its waits."""
        return await self._turns(work)

    @coroutine
    def _turns(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        turn: Callable[[], Any] = partial(work.send, None)
        while True:
            self.resume()
            try:
                awaited = turn()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.pause()
            try:
                turn = partial(work.send, (yield awaited))
            except BaseException as error:  # noqa: BLE001 - handed to the work, cancellation for one
                turn = partial(work.throw, error)

    def _spent_until_now(self) -> float:
        return self._spent + (self._quotas.stopwatch() - self._since if self._since is not None else 0.0)

    # -- bytes and partitions -----------------------------------------------------------------------------------------

    def most_fetch_bytes(self) -> int:
        """Return the largest size of a fetch: a larger response would be throttled even after none, and never sent."""
        return int(min(self._quotas.fetch.max_value_in_quota_window(self._user, self._client_id), _INT_MAX))

    def record_fetch(self, size: int) -> int:
        """Record `size` bytes of records to send. A result above 0 is the throttle time in ms of an empty response."""
        quotas, now = self._quotas, self._quotas.loop.time()
        self._take_time(now)
        self._throttle(FETCH, quotas.fetch.record(self._user, self._client_id, size, now))
        if self.wait_ms:
            quotas.fetch.record(self._user, self._client_id, -size, now)
        return self.wait_ms

    def is_over_fetch_quota(self) -> bool:
        """Return whether the client used too much before this request, whose response must then have no records.

        Unlike `record_fetch` it records nothing: the time of this request is recorded when it ends.
        """
        quotas, now = self._quotas, self._quotas.loop.time()
        for cause, quota in ((FETCH, quotas.fetch), (REQUEST, quotas.request)):
            self._throttle(cause, quota.record(self._user, self._client_id, 0, now))
        return self.wait_ms > 0

    def record_sent_fetch(self, size: int) -> None:
        """Record `size` bytes of records that are sent in any case: the client is throttled after the response."""
        quotas, now = self._quotas, self._quotas.loop.time()
        self._throttle(FETCH, quotas.fetch.record(self._user, self._client_id, size, now))

    def controller_mutation_quota(self, *, strict: bool) -> ControllerMutationQuota:
        """Return a function that records partitions before they are created or deleted.

        If `strict`, it raises KafkaError THROTTLING_QUOTA_EXCEEDED for a client over its quota; otherwise the change is
        made and the client throttled.
        """

        def mutation_quota(partitions: int) -> None:
            quotas, now = self._quotas, self._quotas.loop.time()
            if strict:
                debt = quotas.mutation.debt(self._user, self._client_id, now)
                self._throttle(CONTROLLER_MUTATION, debt)
                if debt > 0:
                    raise quota_exceeded()
            wait = quotas.mutation.record(self._user, self._client_id, partitions, now)
            if not strict:
                self._throttle(CONTROLLER_MUTATION, wait)

        return mutation_quota

    def throttle(self, seconds: float) -> None:
        """Throttle the client for at least this time: the controller has found it over a quota."""
        self._throttle(CONTROLLER_MUTATION, seconds)

    def settle_response(self, context: ThrottledRequest, response: Any) -> None:
        """Settle the quotas, set the throttle time of the response and mute the connection for that time (KIP-219)."""
        self.settle(context.api_key, is_timed=response is not None)
        if self.wait_ms:
            context.mute(self._wait)
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = self.wait_ms

    def settle(self, api_key: int, *, is_timed: bool = True) -> float:
        """Record the values that are known when the request ends, and return the throttle time in seconds.

        Returns 0 for a request that was settled before: its client is throttled already. Kafka does not record the time
        of a Produce request with acks 0 that succeeds (`is_timed` is False).
        """
        if self._is_settled:
            return 0.0
        self._is_settled = True
        now = self._quotas.loop.time()
        if api_key == ApiKey.PRODUCE:
            self._throttle(PRODUCE, self._quotas.produce.record(self._user, self._client_id, self._size, now))
        if is_timed:
            self._take_time(now)
        if self._wait:
            self._quotas.throttled(self._cause, self._wait)
        return self._wait

    @property
    def wait_ms(self) -> int:
        """The throttle time in ms, as in the response."""
        return min(round(self._wait * 1000), _INT_MAX)

    def _take_time(self, now: float) -> None:
        """Record the time on the loop's thread once."""
        if not self._is_timed:
            self._is_timed = True
            percent = self._spent_until_now() * 100
            self._throttle(REQUEST, self._quotas.request.record(self._user, self._client_id, percent, now))

    def _throttle(self, cause: str, wait: float) -> None:
        if wait > self._wait:
            self._wait, self._cause = wait, cause


def new_controller_mutation_quota(
    quota_usage: RequestQuotaUsage | None, *, strict: bool = False
) -> ControllerMutationQuota:
    """Return the function that charges a client for partitions; it does nothing without quotas."""
    return (
        unbounded_controller_mutation_quota
        if quota_usage is None
        else quota_usage.controller_mutation_quota(strict=strict)
    )

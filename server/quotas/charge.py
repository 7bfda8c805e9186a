"""What one request owes to the quotas: the time it took of the loop's thread, its bytes, the partitions it changed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import CoroutineType, GeneratorType, coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...protocol.apis import ApiKey
from .managers import quota_exceeded

if TYPE_CHECKING:
    from .client_quotas import ClientQuotas

T = TypeVar("T")
_INT_MAX = 2**31 - 1


class ChargedRequest(Protocol):
    """The request, as far as its charge wants to know it."""

    @property
    def api_key(self) -> int:
        """Which API it is for."""

    def mute(self, seconds: float) -> None:
        """Let its connection wait for that long once it is answered."""


R = TypeVar("R", bound=ChargedRequest)
Handle = Callable[[R, Any], Any]
Respond = Callable[[R, Any], None]
Pay = Callable[[int], None]
"""Called with a number of partitions before they are created or deleted. Raises KafkaError if that is refused."""


def for_nothing(_: int) -> None:
    """The price of changes that no client asked for, or one without a quota."""


class Charge:
    """One request of one client, from the moment it is read until it is answered. Loop-thread only.

    The answer leaves at once and says how long the client shall wait, and its connection is muted for that time
    (KIP-219). The longest of all waits counts.
    """

    __slots__ = ("_client_id", "_is_timed", "_quotas", "_since", "_size", "_spent", "_user", "_wait")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str, size: int) -> None:
        """`size` is that of the whole request in bytes."""
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._size = size
        self._wait = 0.0
        self._is_timed = False
        self._spent = 0.0
        self._since: float | None = quotas.stopwatch()

    # -- the time it takes -----------------------------------------------------------------------------------------

    def pause(self) -> None:
        """The request waits for something."""
        self._spent = self._spent_until_now()
        self._since = None

    def resume(self) -> None:
        """Work on the request goes on."""
        self._since = self._quotas.stopwatch()

    def timing(self, handle: Handle[R]) -> Handle[R]:
        """The handler with its time counted: until it returns, or in each of its turns."""

        def timed(context: R, request: Any) -> Any:
            try:
                answer = handle(context, request)
            finally:
                self.pause()
            if isinstance(answer, GeneratorType):
                return self._timed_steps(answer)
            return self._timed(answer) if isinstance(answer, CoroutineType) else answer

        return timed

    def _timed_steps(self, work: Generator[None, None, T]) -> Generator[None, None, T]:
        while True:
            self.resume()
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.pause()
            yield

    async def _timed(self, work: Coroutine[Any, Any, T]) -> T:
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

    # -- what it does ----------------------------------------------------------------------------------------------

    def most_fetch_bytes(self) -> int:
        """A fetch of more would have to wait even if there had been none before, and so would never be answered."""
        return int(min(self._quotas.fetch.most_at_once(self._user, self._client_id), _INT_MAX))

    def fetched(self, size: int) -> int:
        """Records of `size` bytes shall be sent; returns the milliseconds to wait instead, with an empty answer."""
        quotas, now = self._quotas, self._quotas.time()
        self._take_time(now)
        self._wait = max(self._wait, quotas.fetch.record(self._user, self._client_id, size, now))
        if self.wait_ms:
            quotas.fetch.record(self._user, self._client_id, -size, now)
        return self.wait_ms

    def partitions_changed(self, *, strict: bool) -> Pay:
        """What to call with the number of partitions before they are created or deleted.

        If `strict`, who owes already is refused with KafkaError THROTTLING_QUOTA_EXCEEDED; others are let do, and wait.
        """

        def pay(partitions: int) -> None:
            quotas, now = self._quotas, self._quotas.time()
            if strict:
                debt = quotas.mutation.debt(self._user, self._client_id, now)
                self._wait = max(self._wait, debt)
                if debt > 0:
                    raise quota_exceeded()
            wait = quotas.mutation.record(self._user, self._client_id, partitions, now)
            if not strict:
                self._wait = max(self._wait, wait)

        return pay

    def settling(self, respond: Respond[R]) -> Respond[R]:
        """What answers the request, first telling the client how long to wait, and seeing that it does."""

        def settled(context: R, response: Any) -> None:
            self._settle(context.api_key, response)
            if self.wait_ms:
                context.mute(self._wait)
                if hasattr(response, "throttle_time_ms"):
                    response.throttle_time_ms = self.wait_ms
            respond(context, response)

        return settled

    def _settle(self, api_key: int, response: Any) -> None:
        """Count what is known only when the request is answered. One without an answer is not charged for its time, as
        in Kafka.
        """
        now = self._quotas.time()
        if api_key == ApiKey.PRODUCE:
            wait = self._quotas.produce.record(self._user, self._client_id, self._size, now)
            self._wait = max(self._wait, wait)
        if response is not None:
            self._take_time(now)

    @property
    def wait_ms(self) -> int:
        """How long the client has to wait, as it is told."""
        return min(round(self._wait * 1000), _INT_MAX)

    def _take_time(self, now: float) -> None:
        """Count the time spent, once."""
        if not self._is_timed:
            self._is_timed = True
            percent = self._spent_until_now() * 100
            self._wait = max(self._wait, self._quotas.request.record(self._user, self._client_id, percent, now))


def price_of_changes(charge: Charge | None, *, strict: bool = False) -> Pay:
    """What a client pays for partitions that it has created or deleted; nothing if no quotas are set."""
    return for_nothing if charge is None else charge.partitions_changed(strict=strict)

"""Large requests on their way to the lane that decodes them: how much they take in memory until they are answered."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...protocol.schema import Message, fields_of
from ..runtime.memory_budget import memory_budget

if TYPE_CHECKING:
    from ..network.connection import Connection
    from ..runtime.ports import Work

LANE = "requests"
"""The lane that reads large requests and writes the answers to long ones."""
DECODED_BYTES = 256 << 20
"""Budget of decoded requests that are not answered, unless the memory limit of the process is small."""
OBJECT_BYTES, FIELD_BYTES = 48, 56
"""The memory of a decoded item: the object with its slot in a list, and each field with its value.

An upper bound: items of decoded Metadata, Fetch and ListOffsets requests took 117, 141 and 105 bytes (tracemalloc), and
count as 160, 496 and 272 here. Small numbers and null are shared objects, which take no memory of their own.
"""
WITH_RESPONSE = 2
"""The response has about as many items as the request, and is made while the request is still there."""


class RequestAdmission:
    """The part of the budget that one decoded request uses until it is released, or deleted unreleased."""

    __slots__ = ("_address", "_release", "_size")

    def __init__(self, release: Callable[[str, int], None], address: str, size: int) -> None:
        self._release = release
        self._address = address
        self._size = size

    def release(self) -> None:
        """Give the part back; does nothing the second time."""
        size, self._size = self._size, 0
        if size:
            self._release(self._address, size)

    def __del__(self) -> None:
        # A request without a response, such as a waiting fetch of a closed connection. The thread may be a lane.
        self.release()


class LargeRequest(NamedTuple):
    """A request that waits to be decoded."""

    connection: Connection
    is_cancellable: bool
    """Whether it changes nothing, so that it is dropped when its connection is closed."""
    read: Callable[[], Any]
    """Decodes the request, on the lane."""
    size: int
    """Bytes of its frame."""
    done: Callable[[Any, BaseException | None, RequestAdmission | None], None]
    """Receives the result of `read`, or the error, on the loop."""


class LargeRequests:
    """The queue in front of the lane, owned by KafkaApis. Loop-thread only, but for `release`.

    One request is decoded at a time; addresses take turns. The next request is decoded when the decoded requests
    without a response leave room in the budget, and its own address uses less than half of it: a client whose requests
    take long, or wait, does not block others. One request of an address is always admitted.
    """

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop, memory_limit: int | None) -> None:
        self._work = work
        self._loop = loop
        self._budget = memory_budget(DECODED_BYTES, memory_limit)
        self._waiting: dict[str, deque[LargeRequest]] = {}
        """The waiting requests by client address, in the order of the addresses' turns."""
        self._used: Counter[str] = Counter()
        """Bytes of decoded requests, by address."""
        self._is_reading = False

    @property
    def used(self) -> int:
        """Bytes of all decoded requests that are not answered."""
        return self._used.total()

    def add(self, request: LargeRequest) -> None:
        """Decode a request when there is room for it."""
        self._waiting.setdefault(request.connection.session.client_host, deque()).append(request)
        self._go_on()

    def _go_on(self) -> None:
        while not self._is_reading and (address := self._next_address()) is not None:
            waiting = self._waiting.pop(address)
            request = waiting.popleft()
            if waiting:
                self._waiting[address] = waiting  # at the end: it is the others' turn
            if request.is_cancellable and request.connection.is_lost:
                continue
            self._is_reading = True
            self._work.submit(LANE, partial(_read, request), partial(self._was_read, address, request))

    def _next_address(self) -> str | None:
        used = self._used
        is_full = used.total() >= self._budget
        for address in self._waiting:
            of_address = used.get(address, 0)
            if not of_address or (not is_full and of_address < self._budget // 2):
                return address
        return None

    def _was_read(
        self, address: str, request: LargeRequest, result: tuple[Any, int] | None, error: BaseException | None
    ) -> None:
        self._is_reading = False
        try:
            if result is None:
                request.done(None, error, None)
            else:
                found, size = result
                self._used[address] += size
                request.done(found, None, RequestAdmission(self._release, address, size))
        finally:
            self._go_on()

    def _release(self, address: str, size: int) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._released, address, size)

    def _released(self, address: str, size: int) -> None:
        self._used[address] -= size
        if not self._used[address]:
            del self._used[address]
        self._go_on()


def _read(request: LargeRequest) -> tuple[Any, int]:
    found = request.read()
    return found, request.size + WITH_RESPONSE * decoded_size(found[1])


def decoded_size(message: Any) -> int:
    """Return the approximate memory of a decoded message in bytes, without the bytes of its texts and records."""
    size = 0
    pending = [message]
    while pending:
        one = pending.pop()
        item_bytes, lists, structs = _shape(type(one))
        size += item_bytes
        pending += [value for name in structs if (value := getattr(one, name)) is not None]
        for name in lists:
            items = getattr(one, name)
            if not items:
                continue
            if isinstance(items[0], Message):
                item_bytes, *inner = _shape(type(items[0]))
                if any(inner):
                    pending += items
                else:
                    size += item_bytes * len(items)
            else:
                size += FIELD_BYTES * len(items)
    return size


_shapes: dict[type, tuple[int, tuple[str, ...], tuple[str, ...]]] = {}


def _shape(cls: type) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Bytes of an item of a class without its lists, and the names of its lists and of its structs."""
    known = _shapes.get(cls)
    if known is None:
        known = _shapes[cls] = _shape_of(cls)
    return known


def _shape_of(cls: type) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    if not issubclass(cls, Message):
        return OBJECT_BYTES, (), ()
    fields = fields_of(cls)
    lists = tuple(field.name for field in fields if field.is_array)
    structs = tuple(
        field.name
        for field in fields
        if not field.is_array and isinstance(field.element, type) and issubclass(field.element, Message)
    )
    return OBJECT_BYTES + FIELD_BYTES * len(fields), lists, structs

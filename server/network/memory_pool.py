"""The memory for large frames that arrive, shared by all connections: Kafka's MemoryPool (`queued.max.request.bytes`).

A connection allocates the whole size of a frame before more than a little of it is read; a frame larger than the pool
is received alone. The memory is in use until the bytes of the request are freed. A connection that waits holds little
memory and may wait any time; a connection with memory must send (`SocketServer._close_if_overdue`). Addresses take
turns, and an address with half of the pool waits while others do not: otherwise a client with many connections would
block all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection


class MemoryPool:
    """The allocations of all connections, owned by the socket server and used on its thread only."""

    def __init__(self, size: int, on_shortage: Callable[[bool], None]) -> None:
        """`on_shortage` is called with whether connections wait for memory, after each change."""
        self.size = size
        self._on_shortage = on_shortage
        self._allocated: dict[object, int] = {}
        """Bytes by connection, or by an object of `keep`."""
        self._allocated_bytes = 0
        self._allocated_to: Counter[str] = Counter()
        """Bytes by address."""
        self._waiting: dict[str, dict[Connection, int]] = {}
        """Sizes of the frames that wait, by address; the first address's turn is next."""

    def try_allocate(self, connection: Connection) -> bool:
        """Return whether a connection may continue to read; if not, the pool calls its `resume_receiving` later."""
        size = connection.large_frame
        if not size:
            self.release(connection)
        elif connection not in self._allocated:
            self._waiting.setdefault(connection.session.client_host, {})[connection] = size
            self._allocate_waiting()
            return connection in self._allocated
        return True

    def release(self, connection: Connection) -> None:
        """Return the memory of a connection: the bytes of its frame are freed, or it is closed."""
        address = connection.session.client_host
        waiting = self._waiting.get(address)
        is_waiting = waiting is not None and waiting.pop(connection, None) is not None
        if is_waiting and not waiting:
            del self._waiting[address]
        if not self._free(connection, address) and is_waiting:
            self._allocate_waiting()

    def keep(self, connection: Connection) -> Callable[[], None]:
        """Count the memory of a connection until the returned function is called.

        The bytes of its request have been copied, and remain in use even if the connection receives further requests
        or is closed.
        """
        kept, address = object(), connection.session.client_host
        size = self._allocated.pop(connection, 0)
        if size:
            self._allocated[kept] = size

        def release() -> None:
            self._free(kept, address)

        return release

    def is_blocked_by(self, connection: Connection) -> bool:
        """Return whether others wait for memory, and this connection has some."""
        return bool(self._waiting) and connection in self._allocated

    def _free(self, owner: object, address: str) -> bool:
        """Return the memory of an owner, and give it to connections that wait. Return whether it had any."""
        size = self._allocated.pop(owner, 0)
        if size:
            self._allocated_bytes -= size
            self._allocated_to[address] -= size
            if not self._allocated_to[address]:
                del self._allocated_to[address]
            self._allocate_waiting()
        return bool(size)

    def _allocate_waiting(self) -> None:
        while (address := self._next_address()) is not None:
            waiting = self._waiting.pop(address)
            first = next(iter(waiting))
            size = waiting.pop(first)
            if waiting:
                self._waiting[address] = waiting  # at the end: the other addresses are next
            self._allocated[first] = size
            self._allocated_bytes += size
            self._allocated_to[address] += size
            first.resume_receiving()
        assert self._allocated_bytes <= self.size or len(self._allocated) == 1, "a frame larger than the pool is alone"
        self._on_shortage(bool(self._waiting))

    def _next_address(self) -> str | None:
        """Return the address whose oldest waiting connection is next; None while none has room."""
        for address, waiting in self._waiting.items():
            size = next(iter(waiting.values()))
            of_address = self._allocated_to.get(address, 0)
            if of_address and of_address + size > self.size // 2:
                continue
            # No frame passes a larger frame in the queue: otherwise the larger one would never be received.
            return address if not self._allocated or self._allocated_bytes + size <= self.size else None
        return None

"""Which connections may receive large frames at the same time: all of them together have one budget of memory.

As Kafka's MemoryPool (`queued.max.request.bytes`): a frame is granted its whole size before more than a little of it is
read, first come, first served, and one larger than the budget goes alone. A connection that waits holds next to nothing
and may take any time; one that has its grant has to send (`SocketServer`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection


class ReceiveGrants:
    """Loop-thread only."""

    def __init__(self, budget: int, on_shortage: Callable[[bool], None]) -> None:
        """`on_shortage` is told when the first begins to wait, and when nobody waits any more."""
        self._budget = budget
        self._on_shortage = on_shortage
        self._granted: dict[Connection, int] = {}
        self._granted_bytes = 0
        self._waiting: dict[Connection, int] = {}

    def may_receive(self, connection: Connection) -> bool:
        """Whether a connection may read on; if not, its `read_on` is called when it may."""
        size = connection.large_frame
        if not size:
            self.release(connection)
        elif connection not in self._granted:
            self._waiting[connection] = size
            self._grant()
            return connection in self._granted
        return True

    def release(self, connection: Connection) -> None:
        """Give the grant back: the frame has arrived, or never will."""
        if connection in self._granted or connection in self._waiting:
            self._granted_bytes -= self._granted.pop(connection, 0)
            self._waiting.pop(connection, None)
            self._grant()

    def is_wasted_on(self, connection: Connection) -> bool:
        """Whether others wait for what this connection was granted."""
        return bool(self._waiting) and connection in self._granted

    def _grant(self) -> None:
        while self._waiting:
            first, size = next(iter(self._waiting.items()))
            if self._granted and self._granted_bytes + size > self._budget:
                break
            del self._waiting[first]
            self._granted[first] = size
            self._granted_bytes += size
            first.read_on()
        self._on_shortage(bool(self._waiting))

"""The line before the lane that computes TLS handshakes: addresses take turns, and who is gone is not waited for.

Otherwise whoever sends the most greetings would have all others wait behind them, also when they have long hung up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime.ports import Work

LANE = "handshakes"
AHEAD = 2
"""Steps that the lane has: one that it computes, and one that it need not ask for."""
Step = tuple[Callable[[], None], Callable[[], None]]
"""What is to be computed, and whom to tell on the loop."""


class HandshakeLine:
    """Of all listeners. Loop-thread only."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: dict[str, dict[object, Step]] = {}
        """By address; the first one's turn is next."""
        self._ahead = 0

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def join(self, one: object, address: str, step: Step) -> None:
        """Have a step computed. It raises nothing."""
        self._waiting.setdefault(address, {})[one] = step
        self._go_on()

    def leave(self, one: object, address: str) -> bool:
        """It is not wanted any more. Whether it had not begun, and will not."""
        of_address = self._waiting.get(address)
        if of_address is None or of_address.pop(one, None) is None:
            return False
        if not of_address:
            del self._waiting[address]
        return True

    def _go_on(self) -> None:
        while self._waiting and self._ahead < AHEAD:
            address = next(iter(self._waiting))
            of_address = self._waiting.pop(address)
            compute, tell = of_address.pop(next(iter(of_address)))
            if of_address:
                self._waiting[address] = of_address
            self._ahead += 1

            def done(_: None, error: BaseException | None, tell: Callable[[], None] = tell) -> None:
                assert error is None, "a step keeps what it comes to"
                self._ahead -= 1
                self._go_on()
                tell()

            self._work.submit(LANE, compute, done)

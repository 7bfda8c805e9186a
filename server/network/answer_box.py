"""Small answers of one turn of the loop, sent together.

With many connections that ask for little each, most of the time goes into the kernel's sending, above all into waking
up a client for each answer, which has taken it and sleeps again before the next is there. Sent together, answers wake
it up once. With so many that sending takes long, another thread begins with it while the loop handles further requests,
where code is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.native import native

if TYPE_CHECKING:
    import asyncio

CROWD = 8
"""With fewer connections an answer is given to its transport at once: there are hardly several in one turn."""
WORTH_BEGINNING = 32
"""So many answers are worth waking another thread for."""


def begin_sending_here(answers: dict[int, bytes]) -> None:
    """Without compiled code there is nobody else to do it: whoever sends from Python needs the interpreter."""


def finish_sending_here(answers: dict[int, bytes]) -> list[tuple[int, int]]:
    """The descriptors whose sockets did not take their whole answer, for whatever reason, and how many bytes they took.

    Without compiled code it is left to their transports to send anything. `finish_sending` is the compiled function, if
    that is to be had.
    """
    return [(descriptor, 0) for descriptor in answers]


begin_sending = begin_sending_here if native is None else native.begin_sending
finish_sending = finish_sending_here if native is None else native.finish_sending


class AnswerBox:
    """What is to be sent in this turn, by descriptor. Loop-thread only.

    Whoever closes a connection, or sends something past the box, empties it of what is there for that one first.
    """

    __slots__ = ("_answers", "_begun", "_loop", "_transports", "is_crowded")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transports: dict[int, asyncio.Transport] = {}
        self._begun: dict[int, bytes] = {}
        """What is being sent."""
        self._answers: dict[int, bytes] = {}
        """What comes behind that."""
        self.is_crowded = False
        """Whether there are so many connections that the box is worth while; if not, there is nothing in it."""

    def open(self, descriptor: int, transport: asyncio.Transport) -> None:
        """A connection is made; its transport gets what the socket does not take."""
        self._transports[descriptor] = transport
        self._count()

    def close(self, descriptor: int) -> None:
        """It is lost, and so is what was to be sent; its socket is still there."""
        if descriptor in self._begun:
            self._finish()
        self._answers.pop(descriptor, None)
        self._transports.pop(descriptor, None)
        self._count()

    def put(self, descriptor: int, answer: bytes) -> None:
        """Send this in this turn, behind what is there for the same socket. Its transport must be empty."""
        answers = self._answers
        if not answers and not self._begun:
            self._loop.call_soon(self._end_turn)
        answers[descriptor] = answers[descriptor] + answer if descriptor in answers else answer
        if len(answers) >= WORTH_BEGINNING:
            self._begin()

    def empty(self, descriptor: int) -> None:
        """Give the transport what is there for it."""
        if descriptor in self._begun:
            self._finish()
        answer = self._answers.pop(descriptor, None)
        if answer is not None:
            self._transports[descriptor].write(answer)

    def _begin(self) -> None:
        self._finish()
        self._begun, self._answers = self._answers, {}
        begin_sending(self._begun)

    def _finish(self) -> None:
        begun, self._begun = self._begun, {}
        if not begun:
            return
        for descriptor, sent in finish_sending(begun):
            # It keeps what is left, and what comes behind that, or finds out what is wrong.
            answer = begun[descriptor][sent:] + self._answers.pop(descriptor, b"")
            self._transports[descriptor].write(answer)

    def _end_turn(self) -> None:
        self._finish()
        self._begun, self._answers = self._answers, {}
        self._finish()
        self._count()

    def _count(self) -> None:
        self.is_crowded = len(self._transports) >= CROWD or bool(self._answers or self._begun)

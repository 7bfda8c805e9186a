"""Intentional misbehaviour of connections: partial requests, other protocols, resets and early closes."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Sequence

from soak.hostile.frame_forge import FrameForge
from soak.hostile.wire import ClosedError, Endpoint, Wire, api_versions
from tests.frames import framed

from barnabas.server.security.sasl_server_authenticator import MAX_VERSIONS_REQUESTS

TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(range(32)) + bytes(122)
HTTP = b"GET /metrics HTTP/1.1\r\nHost: broker:9092\r\nAccept: */*\r\n\r\n"


class Misbehaviour:
    """A set of kinds of misbehaviour. Wrong reactions of the broker are added to `complaints`."""

    def __init__(
        self, endpoints: Sequence[Endpoint], rng: random.Random, forge: FrameForge, *, is_unauthenticated: bool = False
    ) -> None:
        self.complaints: list[str] = []
        self.random = rng
        self.forge = forge
        self._endpoints = endpoints
        self._max_requests = 10_000 if not is_unauthenticated else MAX_VERSIONS_REQUESTS
        self._kinds: tuple[Callable[[], None], ...] = (
            self._garbage,
            self._http,
            self._tls,
            self._bad_length,
            self._byte_at_a_time,
            self._cut_over_many_writes,
            self._half_close,
            self._reset_in_the_middle,
            self._reset_while_waiting,
            self._leave_in_the_middle,
            self._connect_and_leave,
            self._pipeline,
        )

    def show(self) -> str:
        """Misbehave in a random way and return the name of the kind."""
        behaviour = self.random.choice(self._kinds)
        try:
            behaviour()
        except (ClosedError, TimeoutError, OSError) as error:
            self.complaints.append(f"{behaviour.__name__}: {error!r}")
        return behaviour.__name__.strip("_")

    def _connect(self) -> Wire:
        return self.random.choice(self._endpoints).connect()

    def _expect_close(self, wire: Wire) -> None:
        """Check that the broker closes the connection without a response. Raises TimeoutError."""
        try:
            response = wire.receive()
        except ClosedError:
            return
        finally:
            wire.close()
        self.complaints.append(f"an unexpected response: {response[:60].hex()}")

    def _expect_responses(self, wire: Wire, count: int) -> None:
        """Check the responses to `count` requests of `api_versions` with correlation ids from 0."""
        for number in range(count):
            if wire.receive()[:4] != struct.pack(">i", number):
                self.complaints.append(f"response {number} of {count} has a wrong correlation id")
                return

    def _send_invalid(self, data: bytes) -> None:
        wire = self._connect()
        wire.send(data)
        self._expect_close(wire)

    def _garbage(self) -> None:
        """Send noise. Its first four bytes are an invalid length, so that the broker does not wait for more bytes."""
        self._send_invalid(
            bytes([self.random.randint(0x10, 0xFF)]) + self.random.randbytes(self.random.choice((3, 100, 2000)))
        )

    def _http(self) -> None:
        self._send_invalid(HTTP)

    def _tls(self) -> None:
        self._send_invalid(TLS_HELLO)

    def _bad_length(self) -> None:
        length = self.random.choice((-1, -(2**31), 2**31 - 1, 104_857_601, -2))
        self._send_invalid(struct.pack(">i", length) + b"\0" * self.random.choice((0, 2, 500)))

    def _byte_at_a_time(self) -> None:
        wire = self._connect()
        for byte in api_versions(0) + api_versions(1):
            wire.send(bytes((byte,)))
        self._expect_responses(wire, 2)
        wire.close()

    def _cut_over_many_writes(self) -> None:
        wire = self._connect()
        count = min(self.random.randint(2, 20), self._max_requests)
        data = b"".join(map(api_versions, range(count)))
        while data:
            cut = self.random.randint(1, 60)
            wire.send(data[:cut])
            data = data[cut:]
        self._expect_responses(wire, count)
        wire.close()

    def _half_close(self) -> None:
        """Send FIN in the middle of a frame. The broker must close its side as well."""
        wire = self._connect()
        wire.send(api_versions(0)[: self.random.randint(1, 15)])
        wire.socket.shutdown(socket.SHUT_WR)
        self._expect_close(wire)

    def _reset_in_the_middle(self) -> None:
        wire = self._connect()
        wire.send(framed(self.forge.next().body + b"more")[:-3])
        wire.reset()

    def _reset_while_waiting(self) -> None:
        """Reset the connection while the broker sends responses."""
        wire = self._connect()
        wire.send(b"".join(map(api_versions, range(self.random.choice((1, 50, 500))))))
        wire.reset()

    def _leave_in_the_middle(self) -> None:
        wire = self._connect()
        wire.send(struct.pack(">i", self.random.choice((100, 100_000, 100_000_000))) + b"\0\0\0\x09\0\0")
        wire.close()

    def _connect_and_leave(self) -> None:
        for _ in range(5):
            wire = self._connect()
            if self.random.random() < 0.5:
                wire.reset()
            else:
                wire.close()

    def _pipeline(self) -> None:
        """Send up to ten thousand requests before reading the first response."""
        count = min(self.random.choice((1000, 10_000)), self._max_requests)
        wire = self._connect()
        wire.send(b"".join(map(api_versions, range(count))))
        self._expect_responses(wire, count)
        wire.close()

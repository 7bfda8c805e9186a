"""One attacker: hostile frames and hostile behaviour on real sockets, by seed, with every answer judged.

`python -m tests.hostile.attacker HOST:PORT --seed N --frames N` prints a JSON report as its last line.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.hostile.frame_forge import Frame, FrameForge, Outcome
from tests.hostile.in_process import wrong_answer

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.headers import RequestHeader, encode_request_header
from barnabas.protocol.messages.metadata import MetadataRequest

ANSWER_SECONDS = 30.0
BURST = 100
BURST_BYTES = 200_000
BEHAVIOUR_SHARE = 0.01
"""How many of the bursts are misbehaviour of the connection instead of frames."""
TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(range(32)) + bytes(122)
HTTP = b"GET /metrics HTTP/1.1\r\nHost: broker:9092\r\nAccept: */*\r\n\r\n"


class ClosedError(Exception):
    """The broker has closed the connection."""


class Wire:
    """A blocking connection that can misbehave."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()

    def send(self, data: bytes | bytearray) -> None:
        """Raises ClosedError, TimeoutError."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise ClosedError from None

    def receive(self) -> bytes:
        """The next response without its length. Raises ClosedError, TimeoutError."""
        data = self._data
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            try:
                piece = self.socket.recv(1 << 20)
            except ConnectionResetError:
                raise ClosedError from None
            if not piece:
                raise ClosedError
            data += piece
        end = 4 + int(struct.unpack_from(">i", data)[0])
        answer = bytes(data[4:end])
        del data[:end]
        return answer

    def reset(self) -> None:
        """RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def api_versions(correlation_id: int) -> bytes:
    """The simplest request there is, with its length."""
    return framed(encode_request_header(RequestHeader(ApiKey.API_VERSIONS, 0, correlation_id, "probe")))


class Attacker:
    """Frames in bursts over few connections, since a connection ends with its first bad frame."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self.address = address
        self.seed = seed
        self.sent = 0
        self.connections = 0
        self.outcomes: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.random = random.Random(f"{seed}/attacker")
        self.forge = FrameForge(seed, self._topics())
        self._wire: Wire | None = None
        self._behaviours: tuple[Callable[[], None], ...] = (
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

    def run(self, frames: int, seconds: float) -> None:
        """Until so many frames are sent or the time is over, or too much has gone wrong."""
        deadline = time.monotonic() + seconds
        while self.sent < frames and time.monotonic() < deadline and len(self.complaints) < 20:
            if self.random.random() < BEHAVIOUR_SHARE:
                behaviour = self.random.choice(self._behaviours)
                try:
                    behaviour()
                except (ClosedError, TimeoutError, OSError) as error:
                    self.complaints.append(f"{behaviour.__name__}: {error!r}")
                self.outcomes[behaviour.__name__.strip("_")] += 1
            else:
                self._burst(self._frames())
        if self._wire is not None:
            self._wire.close()

    # -- frames ----------------------------------------------------------------------------------------------------

    def _topics(self) -> list[tuple[str, Any]]:
        """The topics to attack, as the broker names them: not the healthy client's."""
        wire = Wire(self.address)
        body = encode_request_header(RequestHeader(ApiKey.METADATA, 12, 1, "scout"))
        wire.send(framed(body + encode_request(MetadataRequest(topics=None), 12)))
        answer = wire.receive()
        wire.close()
        response = decode_response(ApiKey.METADATA, 12, answer, 5, len(answer))
        return [(topic.name, topic.topic_id) for topic in response.topics if topic.name.startswith("fuzz")]

    def _frames(self) -> list[Frame]:
        """Frames that are answered, and at the end one that is not, if one comes up soon."""
        frames: list[Frame] = []
        size = 0
        while len(frames) < BURST and size < BURST_BYTES:
            frame = self.forge.next()
            frames.append(frame)
            size += len(frame.body) + 4
            if frame.outcome is not Outcome.ANSWER:
                break
        return frames

    def _burst(self, frames: list[Frame]) -> None:
        wire = self._wire
        if wire is None:
            wire = self._wire = Wire(self.address)
            self.connections += 1
        self.sent += len(frames)
        last = frames[-1]
        frame: Frame = last
        try:
            wire.send(b"".join([framed(frame.body) for frame in frames]))
            for frame in frames:
                if frame.outcome is Outcome.ANSWER:
                    wrong = wrong_answer(frame, wire.receive())
                    if wrong is not None:
                        self._complain(frame, wrong)
            frame = last
            if last.outcome is not Outcome.ANSWER:
                self._judge_last(wire, last)
        except ClosedError:
            self._complain(frame, "was answered with a closed connection")
            self._drop()
        except TimeoutError:
            self._complain(frame, f"was not answered in {ANSWER_SECONDS} s")
            self._drop()
        for frame in frames:
            self.outcomes[frame.outcome.value] += 1

    def _judge_last(self, wire: Wire, frame: Frame) -> None:
        """A frame that has no answer: what comes after it tells."""
        if frame.outcome is Outcome.PARK:
            self._drop(reset=self.random.random() < 0.5)
            return
        try:
            if frame.outcome is Outcome.QUIET:
                wire.send(api_versions(-7))
            answer = wire.receive()
        except ClosedError:
            self._drop()
            return
        if frame.outcome is Outcome.CLOSE:
            self._complain(frame, f"was answered with {answer[:60].hex()}")
        elif answer[:4] != struct.pack(">i", -7):
            self._complain(frame, f"(acks=0) was answered with {answer[:60].hex()}")

    def _drop(self, *, reset: bool = False) -> None:
        if self._wire is not None:
            if reset:
                self._wire.reset()
            else:
                self._wire.close()
            self._wire = None

    def _complain(self, frame: Frame, what: str) -> None:
        self.complaints.append(f"key {frame.key} v{frame.version} {what}; frame {frame.body[:2000].hex()}")

    # -- behaviour -------------------------------------------------------------------------------------------------

    def _expect_close(self, wire: Wire) -> None:
        """Nothing but the end of the connection may come. Raises TimeoutError."""
        try:
            answer = wire.receive()
        except ClosedError:
            return
        finally:
            wire.close()
        self.complaints.append(f"an answer where there should be none: {answer[:60].hex()}")

    def _expect_answers(self, wire: Wire, count: int) -> None:
        """The answers to so many `api_versions`, numbered from 0, in order."""
        for number in range(count):
            if wire.receive()[:4] != struct.pack(">i", number):
                self.complaints.append(f"answer {number} of {count} is not the one to that request")
                return

    def _throw(self, data: bytes) -> None:
        wire = Wire(self.address)
        wire.send(data)
        self._expect_close(wire)

    def _garbage(self) -> None:
        """Noise; its first four bytes are a length that no broker takes, else it would just be waited for."""
        self._throw(
            bytes([self.random.randint(0x10, 0xFF)]) + self.random.randbytes(self.random.choice((3, 100, 2000)))
        )

    def _http(self) -> None:
        self._throw(HTTP)

    def _tls(self) -> None:
        self._throw(TLS_HELLO)

    def _bad_length(self) -> None:
        length = self.random.choice((-1, -(2**31), 2**31 - 1, 104_857_601, -2))
        self._throw(struct.pack(">i", length) + b"\0" * self.random.choice((0, 2, 500)))

    def _byte_at_a_time(self) -> None:
        wire = Wire(self.address)
        for byte in api_versions(0) + api_versions(1):
            wire.send(bytes((byte,)))
        self._expect_answers(wire, 2)
        wire.close()

    def _cut_over_many_writes(self) -> None:
        wire = Wire(self.address)
        count = self.random.randint(2, 20)
        data = b"".join(map(api_versions, range(count)))
        while data:
            cut = self.random.randint(1, 60)
            wire.send(data[:cut])
            data = data[cut:]
        self._expect_answers(wire, count)
        wire.close()

    def _half_close(self) -> None:
        """FIN in the middle of a frame, and after a whole one: the broker closes its side as well."""
        wire = Wire(self.address)
        wire.send(api_versions(0)[: self.random.randint(1, 15)])
        wire.socket.shutdown(socket.SHUT_WR)
        self._expect_close(wire)

    def _reset_in_the_middle(self) -> None:
        wire = Wire(self.address)
        wire.send(framed(self.forge.next().body + b"more")[:-3])
        wire.reset()

    def _reset_while_waiting(self) -> None:
        """Answers come to a connection that is no more."""
        wire = Wire(self.address)
        wire.send(b"".join(map(api_versions, range(self.random.choice((1, 50, 500))))))
        wire.reset()

    def _leave_in_the_middle(self) -> None:
        wire = Wire(self.address)
        wire.send(struct.pack(">i", self.random.choice((100, 100_000, 100_000_000))) + b"\0\0\0\x09\0\0")
        wire.close()

    def _connect_and_leave(self) -> None:
        for _ in range(5):
            wire = Wire(self.address)
            if self.random.random() < 0.5:
                wire.reset()
            else:
                wire.close()

    def _pipeline(self) -> None:
        """Ten thousand requests before the first answer is read."""
        count = self.random.choice((1000, 10_000))
        wire = Wire(self.address)
        wire.send(b"".join(map(api_versions, range(count))))
        self._expect_answers(wire, count)
        wire.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    attacker = Attacker((host, int(port)), options.seed)
    attacker.run(options.frames, options.seconds)
    report = {
        "seed": options.seed,
        "frames": attacker.sent,
        "connections": attacker.connections,
        "outcomes": attacker.outcomes,
        "complaints": attacker.complaints,
    }
    print(json.dumps(report))
    return 1 if attacker.complaints else 0


if __name__ == "__main__":
    sys.exit(main())

"""An attacker that sends hostile frames drawn from a seed over sockets, misbehaves, and checks every response."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from soak.hostile.frame_forge import Frame, FrameForge, Outcome
from soak.hostile.in_process import find_response_error
from soak.hostile.misbehaviour import Misbehaviour
from soak.hostile.wire import RESPONSE_SECONDS, ClosedError, Endpoint, Wire, api_versions
from tests.frames import framed, request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.metadata import MetadataRequest

CONNECTIONS_PER_ROUND = 8
"""The number of connections that send a burst before the attacker reads responses."""
BURST = 100
BURST_BYTES = 200_000
BEHAVIOUR_SHARE = 0.01
"""The share of misbehaviour of connections, instead of bursts of frames."""


class Attacker:
    """An attacker that sends bursts of frames over several connections. A connection ends with its first bad frame."""

    is_unauthenticated = False
    """Whether the attacker has no login."""

    def __init__(self, endpoints: Sequence[Endpoint], forge: FrameForge, seed: int) -> None:
        self.sent = 0
        self.connections = 0
        self.outcomes: Counter[str] = Counter()
        self.random = random.Random(f"{seed}/attacker")
        self.forge = forge
        self._misbehaviour = Misbehaviour(endpoints, self.random, forge, is_unauthenticated=self.is_unauthenticated)
        self.complaints = self._misbehaviour.complaints
        self._endpoints = endpoints
        self._wires: list[Wire] = []

    def run(self, frames: int, seconds: float) -> None:
        """Attack until this number of frames is sent, the time is over, or there are 20 complaints."""
        deadline = time.monotonic() + seconds
        while self.sent < frames and time.monotonic() < deadline and len(self.complaints) < 20:
            if self.random.random() < BEHAVIOUR_SHARE:
                self.outcomes[self._misbehaviour.show()] += 1
            else:
                self.attack()
        for wire in self._wires:
            wire.close()

    def attack(self) -> None:
        """Send bursts of frames and check the responses."""
        bursts = []
        for _ in range(CONNECTIONS_PER_ROUND):
            wire, frames = self._wires.pop() if self._wires else self._connect(), self._frames()
            self.sent += len(frames)
            bursts.append((wire, frames))
            with suppress(ClosedError, TimeoutError):  # the check of the responses reports the error
                wire.send(b"".join([framed(frame.body) for frame in frames]))
        for wire, frames in bursts:
            if self._check(wire, frames):
                self._wires.append(wire)
            elif self.random.random() < 0.5:
                wire.reset()
            else:
                wire.close()

    def _connect(self) -> Wire:
        self.connections += 1
        return self.random.choice(self._endpoints).connect()

    def _frames(self) -> list[Frame]:
        """Return frames that get a response. Only the last frame may have another outcome."""
        frames: list[Frame] = []
        size = 0
        while len(frames) < BURST and size < BURST_BYTES:
            frame = self.forge.next()
            frames.append(frame)
            size += len(frame.body) + 4
            if frame.outcome is not Outcome.ANSWER:
                break
        return frames

    def _check(self, wire: Wire, frames: list[Frame]) -> bool:
        """Check the responses to a burst; return whether the connection is still usable."""
        for frame in frames:
            self.outcomes[frame.outcome.value] += 1
        frame = last = frames[-1]
        try:
            for frame in frames:
                if frame.outcome is Outcome.ANSWER:
                    wrong = find_response_error(frame, wire.receive())
                    if wrong is not None:
                        self._complain(frame, wrong)
            return last.outcome is Outcome.ANSWER or self._check_last(wire, last)
        except ClosedError:
            self._complain(frame, "closed the connection instead of a response")
        except TimeoutError:
            self._complain(frame, f"got no response within {RESPONSE_SECONDS} s")
        return False

    def _check_last(self, wire: Wire, frame: Frame) -> bool:
        """Check that the last frame gets no response; return whether the connection is still usable."""
        if frame.outcome is Outcome.PARK:
            return False
        try:
            if frame.outcome is Outcome.QUIET:
                wire.send(api_versions(-7))
            response = wire.receive()
        except ClosedError:
            return False
        if frame.outcome is Outcome.CLOSE:
            self._complain(frame, f"got the response {response[:60].hex()} instead of a closed connection")
        elif response[:4] != struct.pack(">i", -7):
            self._complain(frame, f"(acks=0) got the response {response[:60].hex()}")
        return True

    def _complain(self, frame: Frame, what: str) -> None:
        self.complaints.append(f"key {frame.key} v{frame.version} {what}; frame {frame.body[:2000].hex()}")


def fuzzed_topics(admin: Endpoint) -> list[tuple[str, Any]]:
    """Return the names and ids of the topics to attack, listed with the login of the admin."""
    wire = admin.connect()
    wire.send(framed(request_body(ApiKey.METADATA, 12, MetadataRequest(topics=None), client_id="scout")))
    frame = wire.receive()
    wire.close()
    response = decode_response(ApiKey.METADATA, 12, frame, 5, len(frame))
    return [(topic.name, topic.topic_id) for topic in response.topics if topic.name.startswith("fuzz")]

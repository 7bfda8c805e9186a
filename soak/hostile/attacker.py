"""One attacker: hostile frames and hostile behaviour on real sockets, by seed, with every answer judged."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from soak.hostile.frame_forge import Frame, FrameForge, Outcome
from soak.hostile.in_process import wrong_answer
from soak.hostile.misbehaviour import Misbehaviour
from soak.hostile.wire import ANSWER_SECONDS, ClosedError, Door, Wire, api_versions
from tests.frames import framed, request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.metadata import MetadataRequest

AT_ONCE = 8
"""Connections, each with a burst of its own, before anything is read."""
BURST = 100
BURST_BYTES = 200_000
BEHAVIOUR_SHARE = 0.01
"""How many of the bursts are misbehaviour of the connection instead of frames."""


class Attacker:
    """Frames in bursts over some connections at once, since a connection ends with its first bad frame."""

    is_stranger = False
    """Whether the doors let in nobody."""

    def __init__(self, doors: Sequence[Door], forge: FrameForge, seed: int) -> None:
        self.sent = 0
        self.connections = 0
        self.outcomes: Counter[str] = Counter()
        self.random = random.Random(f"{seed}/attacker")
        self.forge = forge
        self._misbehaviour = Misbehaviour(doors, self.random, forge, is_stranger=self.is_stranger)
        self.complaints = self._misbehaviour.complaints
        self._doors = doors
        self._wires: list[Wire] = []

    def run(self, frames: int, seconds: float) -> None:
        """Until so many frames are sent or the time is over, or too much has gone wrong."""
        deadline = time.monotonic() + seconds
        while self.sent < frames and time.monotonic() < deadline and len(self.complaints) < 20:
            if self.random.random() < BEHAVIOUR_SHARE:
                self.outcomes[self._misbehaviour.show()] += 1
            else:
                self.attack()
        for wire in self._wires:
            wire.close()

    def attack(self) -> None:
        """Send some frames and judge what comes."""
        bursts = []
        for _ in range(AT_ONCE):
            wire, frames = self._wires.pop() if self._wires else self._enter(), self._frames()
            self.sent += len(frames)
            bursts.append((wire, frames))
            with suppress(ClosedError, TimeoutError):  # whoever waits for the answers sees it
                wire.send(b"".join([framed(frame.body) for frame in frames]))
        for wire, frames in bursts:
            if self._judge(wire, frames):
                self._wires.append(wire)
            elif self.random.random() < 0.5:
                wire.reset()
            else:
                wire.close()

    def _enter(self) -> Wire:
        self.connections += 1
        return self.random.choice(self._doors).enter()

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

    def _judge(self, wire: Wire, frames: list[Frame]) -> bool:
        """Whether the connection is good for more, after all answers to its burst."""
        for frame in frames:
            self.outcomes[frame.outcome.value] += 1
        frame = last = frames[-1]
        try:
            for frame in frames:
                if frame.outcome is Outcome.ANSWER:
                    wrong = wrong_answer(frame, wire.receive())
                    if wrong is not None:
                        self._complain(frame, wrong)
            return last.outcome is Outcome.ANSWER or self._judge_last(wire, last)
        except ClosedError:
            self._complain(frame, "was answered with a closed connection")
        except TimeoutError:
            self._complain(frame, f"was not answered in {ANSWER_SECONDS} s")
        return False

    def _judge_last(self, wire: Wire, frame: Frame) -> bool:
        """A frame that has no answer: what comes after it tells."""
        if frame.outcome is Outcome.PARK:
            return False
        try:
            if frame.outcome is Outcome.QUIET:
                wire.send(api_versions(-7))
            answer = wire.receive()
        except ClosedError:
            return False
        if frame.outcome is Outcome.CLOSE:
            self._complain(frame, f"was answered with {answer[:60].hex()}")
        elif answer[:4] != struct.pack(">i", -7):
            self._complain(frame, f"(acks=0) was answered with {answer[:60].hex()}")
        return True

    def _complain(self, frame: Frame, what: str) -> None:
        self.complaints.append(f"key {frame.key} v{frame.version} {what}; frame {frame.body[:2000].hex()}")


def fuzzed_topics(scout: Door) -> list[tuple[str, Any]]:
    """The topics to attack, as the broker names them to one who sees them all: not the healthy client's."""
    wire = scout.enter()
    wire.send(framed(request_body(ApiKey.METADATA, 12, MetadataRequest(topics=None), client_id="scout")))
    answer = wire.receive()
    wire.close()
    response = decode_response(ApiKey.METADATA, 12, answer, 5, len(answer))
    return [(topic.name, topic.topic_id) for topic in response.topics if topic.name.startswith("fuzz")]

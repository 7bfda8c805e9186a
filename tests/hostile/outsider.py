"""An attacker whom nobody knows: frames before authentication, behind which no request may be served."""

from __future__ import annotations

import struct

from tests.hostile.attacker import Attacker
from tests.hostile.frame_forge import Outcome, expect
from tests.hostile.guesses import FOR_STRANGERS, Visit
from tests.hostile.in_process import wrong_answer
from tests.hostile.wire import ClosedError, Wire, framed

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import encode_request
from barnabas.protocol.headers import RequestHeader, encode_request_header
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.network import strangers

MOST_FRAMES = 8
AT_ONCE_SHARE = 0.3
"""How many of the visits say everything before they hear anything."""
PATIENCE = strangers.SECONDS * 2 / 3
"""Seconds within which something must come, sooner than the broker would close the connection for its age."""
PROBE_ID = -77
PROBE = encode_request_header(RequestHeader(ApiKey.METADATA, 1, PROBE_ID, "probe")) + encode_request(
    MetadataRequest(topics=[]), 1
)
"""Comes last, and is answered to those only who are known."""


class Outsider(Attacker):
    """A connection for each attempt to get in."""

    is_stranger = True

    def attack(self) -> None:
        wire = self._enter()
        wire.socket.settimeout(PATIENCE)
        visit = Visit(self.random, self.forge)
        try:
            if self.random.random() < AT_ONCE_SHARE:
                self._say_all(wire, visit)
            else:
                self._say_in_turn(wire, visit)
        except ClosedError:
            self.outcomes[Outcome.CLOSE.value] += 1
        except TimeoutError:
            self.complaints.append(f"a stranger heard nothing for {PATIENCE} s")
        wire.reset()

    def _say_in_turn(self, wire: Wire, visit: Visit) -> None:
        answer, is_bare = None, False
        for _ in range(self.random.randint(1, MOST_FRAMES)):
            frame = visit.next(answer, is_bare=is_bare)
            self.sent += 1
            wire.send(framed(frame))
            answer = wire.receive()
            self.outcomes[Outcome.ANSWER.value] += 1
            if not is_bare:
                self._judge_answer(frame, answer)
                is_bare = frame[:4] == struct.pack(">hh", ApiKey.SASL_HANDSHAKE, 0) and answer[4:6] == b"\0\0"
        wire.send(framed(PROBE))
        answer = wire.receive()
        self.complaints.append(f"a stranger was answered: {answer[:60].hex()}")

    def _say_all(self, wire: Wire, visit: Visit) -> None:
        frames = [visit.next(None, is_bare=False) for _ in range(self.random.randint(1, MOST_FRAMES))]
        self.sent += len(frames)
        wire.send(b"".join(map(framed, [*frames, PROBE])))
        for _ in frames:
            answer = wire.receive()
            self.outcomes[Outcome.ANSWER.value] += 1
            if answer[:4] == struct.pack(">i", PROBE_ID):
                break
        else:
            answer = wire.receive()
        self.complaints.append(f"a stranger was answered: {answer[:60].hex()}; frames {[one.hex() for one in frames]}")

    def _judge_answer(self, body: bytes, answer: bytes) -> None:
        frame = expect(body)
        if frame is None or frame.outcome is not Outcome.ANSWER or frame.key not in FOR_STRANGERS:
            self.complaints.append(f"a stranger was answered with {answer[:60].hex()}; frame {body[:2000].hex()}")
        elif (wrong := wrong_answer(frame, answer)) is not None:
            self._complain(frame, wrong)

"""An unauthenticated attacker. The broker must not serve any of its requests."""

from __future__ import annotations

import struct

from soak.hostile.attacker import Attacker
from soak.hostile.frame_forge import Outcome, expect
from soak.hostile.guesses import FOR_STRANGERS, Visit
from soak.hostile.in_process import wrong_answer
from soak.hostile.wire import ClosedError, Wire
from tests.frames import framed, request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.network import admission

MAX_FRAMES = 8
AT_ONCE_SHARE = 0.3
"""The share of the connections that send all frames before reading a response."""
PATIENCE = admission.AUTHENTICATION_SECONDS * 2 / 3
"""The seconds within which the broker must respond: less than its limit for unauthenticated connections."""
PROBE_ID = -77
PROBE = request_body(ApiKey.METADATA, 1, MetadataRequest(topics=[]), correlation_id=PROBE_ID, client_id="probe")
"""The last request of a connection. Only an authenticated client gets the brokers of the cluster in the response."""
REFUSED_PROBE = struct.pack(">iiii", PROBE_ID, 0, -1, 0)
"""A response without brokers, controller and topics."""


class Outsider(Attacker):
    """An unauthenticated attacker with a new connection for each login attempt."""

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
            self.complaints.append(f"an unauthenticated client got no response within {PATIENCE} s")
        wire.reset()

    def _say_in_turn(self, wire: Wire, visit: Visit) -> None:
        answer, is_bare, has_mechanism = None, False, False
        for _ in range(self.random.randint(1, MAX_FRAMES)):
            frame = visit.next(answer, is_bare=is_bare)
            self.sent += 1
            wire.send(framed(frame))
            answer = wire.receive()
            self.outcomes[Outcome.ANSWER.value] += 1
            if not is_bare:
                self._judge_answer(wire, frame, answer, has_mechanism=has_mechanism)
                is_accepted = frame[:2] == struct.pack(">h", ApiKey.SASL_HANDSHAKE) and answer[4:6] == b"\0\0"
                has_mechanism = has_mechanism or is_accepted
                is_bare = is_accepted and frame[2:4] == b"\0\0"
        wire.send(framed(PROBE))
        self._expect_refusal(wire, wire.receive())

    def _say_all(self, wire: Wire, visit: Visit) -> None:
        frames = [visit.next(None, is_bare=False) for _ in range(self.random.randint(1, MAX_FRAMES))]
        self.sent += len(frames)
        wire.send(b"".join(map(framed, [*frames, PROBE])))
        for _ in frames:
            answer = wire.receive()
            self.outcomes[Outcome.ANSWER.value] += 1
            if answer[:4] == struct.pack(">i", PROBE_ID):
                break
        else:
            answer = wire.receive()
        self._expect_refusal(wire, answer)

    def _expect_refusal(self, wire: Wire, answer: bytes) -> None:
        """Check the reaction to the probe: an error response of the request's API, and then a closed connection.

        A Metadata response of this version has no error field, and therefore must contain neither brokers nor topics.
        Raises ClosedError.
        """
        if answer[:4] == REFUSED_PROBE[:4] and answer != REFUSED_PROBE:
            self.complaints.append(f"an unauthenticated client was served: {answer[:60].hex()}")
        answer = wire.receive()
        self.complaints.append(f"a response after the rejection of an unauthenticated client: {answer[:60].hex()}")

    def _judge_answer(self, wire: Wire, body: bytes, answer: bytes, *, has_mechanism: bool) -> None:
        """Check a response. After a successful SaslHandshake, only SaslAuthenticate is legal."""
        frame = expect(body)
        unknown_version = ErrorCode.ILLEGAL_SASL_STATE if has_mechanism else ErrorCode.UNSUPPORTED_VERSION
        if frame is None or frame.outcome is not Outcome.ANSWER or frame.key not in FOR_STRANGERS:
            answer = wire.receive()  # raises ClosedError if the request was rejected
            self.complaints.append(f"unauthenticated response {answer[:60].hex()}; frame {body[:2000].hex()}")
        elif (wrong := wrong_answer(frame, answer, unknown_version)) is not None:
            self._complain(frame, wrong)

"""An unauthenticated attacker. The broker must not serve any of its requests."""

from __future__ import annotations

import struct

from soak.hostile.attacker import Attacker
from soak.hostile.frame_forge import Outcome, expect
from soak.hostile.guesses import UNAUTHENTICATED_APIS, LoginAttempt
from soak.hostile.in_process import find_response_error
from soak.hostile.wire import ClosedError, Wire
from tests.frames import framed, request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.network import admission

MAX_FRAMES = 8
PIPELINED_SHARE = 0.3
"""The share of the connections that send all frames before reading a response."""
RESPONSE_TIMEOUT_S = admission.AUTHENTICATION_SECONDS * 2 / 3
"""The seconds within which the broker must respond: less than its limit for unauthenticated connections."""
PROBE_ID = -77
PROBE = request_body(ApiKey.METADATA, 1, MetadataRequest(topics=[]), correlation_id=PROBE_ID, client_id="probe")
"""The last request of a connection. Only an authenticated client gets the brokers of the cluster in the response."""
REFUSED_PROBE = struct.pack(">iiii", PROBE_ID, 0, -1, 0)
"""A response without brokers, controller and topics."""


class UnauthenticatedAttacker(Attacker):
    """An unauthenticated attacker with a new connection for each login attempt."""

    is_unauthenticated = True

    def attack(self) -> None:
        wire = self._connect()
        wire.socket.settimeout(RESPONSE_TIMEOUT_S)
        attempt = LoginAttempt(self.random, self.forge)
        try:
            if self.random.random() < PIPELINED_SHARE:
                self._send_pipelined(wire, attempt)
            else:
                self._send_in_turn(wire, attempt)
        except ClosedError:
            self.outcomes[Outcome.CLOSE.value] += 1
        except TimeoutError:
            self.complaints.append(f"an unauthenticated client got no response within {RESPONSE_TIMEOUT_S} s")
        wire.reset()

    def _send_in_turn(self, wire: Wire, attempt: LoginAttempt) -> None:
        response, is_bare, has_mechanism = None, False, False
        for _ in range(self.random.randint(1, MAX_FRAMES)):
            frame = attempt.next(response, is_bare=is_bare)
            self.sent += 1
            wire.send(framed(frame))
            response = wire.receive()
            self.outcomes[Outcome.ANSWER.value] += 1
            if not is_bare:
                self._check_response(wire, frame, response, has_mechanism=has_mechanism)
                is_accepted = frame[:2] == struct.pack(">h", ApiKey.SASL_HANDSHAKE) and response[4:6] == b"\0\0"
                has_mechanism = has_mechanism or is_accepted
                is_bare = is_accepted and frame[2:4] == b"\0\0"
        wire.send(framed(PROBE))
        self._expect_refusal(wire, wire.receive())

    def _send_pipelined(self, wire: Wire, attempt: LoginAttempt) -> None:
        frames = [attempt.next(None, is_bare=False) for _ in range(self.random.randint(1, MAX_FRAMES))]
        self.sent += len(frames)
        wire.send(b"".join(map(framed, [*frames, PROBE])))
        for _ in frames:
            response = wire.receive()
            self.outcomes[Outcome.ANSWER.value] += 1
            if response[:4] == struct.pack(">i", PROBE_ID):
                break
        else:
            response = wire.receive()
        self._expect_refusal(wire, response)

    def _expect_refusal(self, wire: Wire, response: bytes) -> None:
        """Check the reaction to the probe: an error response of the request's API, and then a closed connection.

        A Metadata response of this version has no error field, and therefore must contain neither brokers nor topics.
        Raises ClosedError.
        """
        if response[:4] == REFUSED_PROBE[:4] and response != REFUSED_PROBE:
            self.complaints.append(f"an unauthenticated client was served: {response[:60].hex()}")
        response = wire.receive()
        self.complaints.append(f"a response after the rejection of an unauthenticated client: {response[:60].hex()}")

    def _check_response(self, wire: Wire, body: bytes, response: bytes, *, has_mechanism: bool) -> None:
        """Check a response. After a successful SaslHandshake, only SaslAuthenticate is legal."""
        frame = expect(body)
        unknown_version = ErrorCode.ILLEGAL_SASL_STATE if has_mechanism else ErrorCode.UNSUPPORTED_VERSION
        if frame is None or frame.outcome is not Outcome.ANSWER or frame.key not in UNAUTHENTICATED_APIS:
            response = wire.receive()  # raises ClosedError if the request was rejected
            self.complaints.append(f"unauthenticated response {response[:60].hex()}; frame {body[:2000].hex()}")
        elif (wrong := find_response_error(frame, response, unknown_version)) is not None:
            self._complain(frame, wrong)

"""Frames of an unauthenticated client that follows the SASL protocol and guesses a password, drawn from a seed."""

from __future__ import annotations

import base64
import random
from typing import Any
from uuid import UUID

from soak.hostile.frame_forge import FrameForge

from barnabas.clients.bearer_tokens import unsecured_token
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import encode_request
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.headers import RequestHeader, encode_request_header
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl import bearer_exchange, sasl_exchange

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
UNAUTHENTICATED_APIS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
SPECIAL = [b"", b"\0", b"\x01", b"n,,", b"y,,", b",", b"=", b"p=", b"i=1000000000", b"r=", b",tokenauth=true", b"\xff"]
CORRELATION_ID = 7


class LoginAttempt:
    """One connection of an unauthenticated client: a login attempt with one mechanism and random damage."""

    def __init__(self, rng: random.Random, forge: FrameForge) -> None:
        self._random = rng
        self._forge = forge
        self._mechanism = rng.choice(MECHANISMS)
        self._exchange = self._guess()
        self._frames_built = 0
        self._has_begun = False

    def next(self, response: bytes | None, *, is_bare: bool) -> bytes:
        """Return the next frame without its length; `response` is the response to the previous frame, if any."""
        kind, number = self._random.random(), self._frames_built
        self._frames_built += 1
        if kind < 0.1:
            return self._forge.next().body
        if kind < 0.13:
            return self._random.randbytes(self._random.choice([0, 1, 2, 7, 100]))
        if number == 0 and kind < 0.4:
            return self._request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
        if number <= 1:
            name = self._mechanism if kind < 0.95 else self._random.choice([*MECHANISMS, "GSSAPI", "", "x" * 99])
            return self._request(
                ApiKey.SASL_HANDSHAKE, self._random.choice([0, 1]), SaslHandshakeRequest(mechanism=name)
            )
        message = self._damaged(self._message(response))
        if is_bare:
            return message
        version = self._random.choice([0, 1, 2])
        return self._request(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=message))

    def _guess(self) -> Any:
        """Return the messages of a login with a wrong password."""
        user = self._random.choice(["anna", "nobody", "", "x" * 2000])
        if self._mechanism == "OAUTHBEARER":
            return bearer_exchange(unsecured_token(user, -100_000)).messages
        return sasl_exchange(self._mechanism, user, "wrong", self._random.randbytes(9).hex()).messages

    def _message(self, response: bytes | None) -> bytes:
        """Return the next message of the exchange, or random bytes if the exchange has ended."""
        try:
            if self._has_begun:
                challenge = (response or b"").partition(b"r=")
                return bytes(self._exchange.send(b"".join(challenge[1:])))
            self._has_begun = True
            return bytes(next(self._exchange))
        except (StopIteration, ValueError, KafkaError):
            return base64.b64encode(self._random.randbytes(12))

    def _damaged(self, message: bytes) -> bytes:
        data = bytearray(message)
        for _ in range(self._random.choice([0, 0, 1, 1, 2, 5])):
            place = self._random.randrange(len(data) + 1)
            change = self._random.randrange(4)
            if change == 0 and place < len(data):
                data[place] ^= 1 << self._random.randrange(8)
            elif change == 1:
                del data[place:]
            elif change == 2:
                data[place:place] = self._random.choice(SPECIAL)
            else:
                data += data[:place] * self._random.choice([1, 1, 50])
        return bytes(data)

    @staticmethod
    def _request(key: ApiKey, version: int, request: Any) -> bytes:
        header = RequestHeader(key, version, CORRELATION_ID, "s")
        return bytes(encode_request_header(header)) + encode_request(request, version)


def unauthenticated_forge(seed: int) -> FrameForge:
    """Return a generator of requests of all kinds, which the broker must not serve before authentication."""
    return FrameForge(seed, [("t", UUID(int=1))], variants=1, with_bombs=False)

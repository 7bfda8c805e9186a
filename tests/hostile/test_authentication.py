"""Frames before and after an authentication: nobody gets in by chance, and no handler fails of what they say."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.hostile.frame_forge import FrameForge, Outcome
from tests.hostile.in_process import HostileConnection, InProcessFuzz

from barnabas.clients.bearer_tokens import unsecured_token
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import encode_request
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.headers import RequestHeader, encode_request_header
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl import bearer_exchange, sasl_exchange
from barnabas.protocol.server_connection import AuthenticationState
from barnabas.server.network.sasl_gate import SaslGate
from barnabas.server.security.authentication import SaslAuthentication
from barnabas.server.security.session import ANONYMOUS
from barnabas.testing import Broker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
SPECIAL = [b"", b"\0", b"\x01", b"n,,", b"y,,", b",", b"=", b"p=", b"i=1000000000", b"r=", b",tokenauth=true", b"\xff"]
FOR_STRANGERS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
HANDLER = "x.OAuthBearerUnsecuredValidatorCallbackHandler"
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "connection.failed.authentication.delay.ms": "0",
    "delegation.token.secret.key": "k",
    "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": HANDLER,
}
DECIDED_SECONDS = 30.0


class Stranger:
    """A client of one broker that knows the protocol, and no password."""

    def __init__(self, seed: int, broker: Broker) -> None:
        self.chance = random.Random(seed)
        self.handled: Counter[int] = Counter()
        self.refused = 0
        self._forge = FrameForge(seed, [("t", UUID(int=1))], variants=1, with_bombs=False)
        self._server = broker.server
        self._loop = asyncio.get_running_loop()
        self._gate = SaslGate(self._handle, self._loop)

    def _handle(self, connection: Any, buffer: memoryview, start: int, end: int) -> None:
        self.handled[int.from_bytes(buffer[start : start + 2], "big")] += 1
        self._server.apis.handle(connection, buffer, start, end)

    async def connect(self, most_frames: int) -> int:
        """One connection; returns how many frames it had said when it was closed, or given up."""
        connection = HostileConnection(self._server.listeners[0])
        (door,) = self._server.state.security.doors.values()
        assert door.sasl is not None
        authentication = SaslAuthentication(connection.session, door.sasl, self._loop.time)
        connection.session.authentication = authentication
        mechanism = self.chance.choice(MECHANISMS)
        exchange = self._exchange(mechanism)
        for number in range(most_frames):
            frame = self._frame(number, mechanism, exchange, connection, is_bare=authentication.is_bare)
            connection.answer, connection.is_skipped = None, False
            try:
                self._gate.handle(connection, memoryview(bytearray(frame)), 0, len(frame))  # type: ignore[arg-type]
            except ProtocolError:
                self.refused += 1
                return number + 1
            async with asyncio.timeout(DECIDED_SECONDS):
                while not connection.is_decided:
                    await asyncio.sleep(0)
            assert connection.session.principal == ANONYMOUS
            assert authentication.state is not AuthenticationState.ADMITTED
            if connection.is_closed:
                return number + 1
        return most_frames

    def _exchange(self, mechanism: str) -> Any:
        """What somebody would say who takes a guess."""
        user = self.chance.choice(["anna", "nobody", "", "x" * 2000])
        if mechanism == "OAUTHBEARER":
            return bearer_exchange(unsecured_token(user, -100_000)).messages
        return sasl_exchange(mechanism, user, "wrong", self.chance.randbytes(9).hex()).messages

    def _frame(self, number: int, mechanism: str, exchange: Any, connection: Any, *, is_bare: bool) -> bytes:
        kind = self.chance.random()
        if kind < 0.1:
            return self._forge.next().body
        if kind < 0.13:
            return self.chance.randbytes(self.chance.choice([0, 1, 2, 7, 100]))
        if number == 0 and kind < 0.4:
            return self._request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
        if number <= 1:
            name = mechanism if kind < 0.95 else self.chance.choice([*MECHANISMS, "GSSAPI", "", "x" * 99])
            request = SaslHandshakeRequest(mechanism=name)
            return self._request(ApiKey.SASL_HANDSHAKE, self.chance.choice([0, 1]), request)
        message = self._spoilt(self._message(exchange, connection.answer))
        return (
            message
            if is_bare
            else self._request(
                ApiKey.SASL_AUTHENTICATE, self.chance.choice([0, 1, 2]), SaslAuthenticateRequest(auth_bytes=message)
            )
        )

    def _message(self, exchange: Any, answer: bytes | None) -> bytes:
        """The next that is due, if the broker's answer lets there be one."""
        try:
            challenge = answer[answer.index(b"r=") :] if answer and b"r=" in answer else None
            return bytes(next(exchange) if challenge is None else exchange.send(challenge))
        except (StopIteration, ValueError, KafkaError):
            return base64.b64encode(self.chance.randbytes(12))

    def _spoilt(self, message: bytes) -> bytes:
        data = bytearray(message)
        for _ in range(self.chance.choice([0, 0, 1, 1, 2, 5])):
            place = self.chance.randrange(len(data) + 1)
            change = self.chance.randrange(4)
            if change == 0 and place < len(data):
                data[place] ^= 1 << self.chance.randrange(8)
            elif change == 1:
                del data[place:]
            elif change == 2:
                data[place:place] = self.chance.choice(SPECIAL)
            else:
                data += data[:place] * self.chance.choice([1, 1, 50])
        return bytes(data)

    @staticmethod
    def _request(key: ApiKey, version: int, request: Any) -> bytes:
        return bytes(encode_request_header(RequestHeader(key, version, 7, "s"))) + encode_request(request, version)


async def guess(seed: int, frames: int) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with Broker(config=CONFIG | {PASSWORDS: JAAS}) as broker:
        await broker.server.state.security.set_passwords({"anna": "right"})
        stranger = Stranger(seed, broker)
        said = connections = 0
        while said < frames:
            said += await stranger.connect(8)
            connections += 1
        assert not complaints
        assert broker.server.apis.failures == 0
        assert not stranger.handled.keys() - FOR_STRANGERS
        assert min(stranger.handled[key] for key in FOR_STRANGERS) > frames / 50
        assert stranger.refused > connections / 20


PASSWORDS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_anna="right";'


async def test_who_has_no_password_says_what_they_like_and_stays_outside() -> None:
    await guess(1, 1_500)


@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3])
async def test_many_who_have_no_password_stay_outside(seed: int) -> None:
    await guess(seed, 100_000)


@pytest.mark.verify
@pytest.mark.timeout(900)
async def test_who_is_let_in_makes_no_handler_fail_by_what_they_may_not_do(tmp_path: Path) -> None:
    run = InProcessFuzz(tmp_path, 1, is_guarded=True)
    await run.run(150_000)
    assert not run.complaints, f"{len(run.complaints)} complaints, first {run.complaints[0]}"
    assert run.outcomes[Outcome.ANSWER] > 30_000

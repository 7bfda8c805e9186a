"""Frames before and after an authentication: nobody gets in by chance, and no handler fails of what they say."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from soak.hostile.frame_forge import Outcome
from soak.hostile.guesses import MECHANISMS, UNAUTHENTICATED_APIS, LoginAttempt, unauthenticated_forge
from soak.hostile.in_process import HostileConnection, InProcessFuzz

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.server_connection import SaslState
from barnabas.server.network.sasl import SaslRequestFilter
from barnabas.server.security.sasl_server_authenticator import SaslServerAuthenticator
from barnabas.server.security.session import ANONYMOUS
from barnabas.testing import Broker

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
        self._forge = unauthenticated_forge(seed)
        self._server = broker.server
        self._loop = asyncio.get_running_loop()
        self._filter = SaslRequestFilter(self._handle, self._server.apis.refuse, self._loop)

    def _handle(self, connection: Any, buffer: memoryview, start: int, end: int) -> None:
        self.handled[int.from_bytes(buffer[start : start + 2], "big")] += 1
        self._server.apis.handle(connection, buffer, start, end)

    async def connect(self, most_frames: int) -> int:
        """One connection; returns how many frames it had said when it was closed, or given up."""
        connection = HostileConnection(self._server.listeners[0])
        (door,) = self._server.state.security.listener_security.values()
        assert door.sasl is not None
        authentication = SaslServerAuthenticator(door.sasl, self._loop.time)
        connection.session.authentication = authentication
        visit = LoginAttempt(self.chance, self._forge)
        for number in range(most_frames):
            frame = visit.next(connection.answer, is_bare=authentication.is_raw)
            connection.answer, connection.is_skipped = None, False
            try:
                self._filter.handle(connection, memoryview(bytearray(frame)), 0, len(frame))  # type: ignore[arg-type]
            except ProtocolError:
                self.refused += 1
                return number + 1
            async with asyncio.timeout(DECIDED_SECONDS):
                while not connection.is_decided:
                    await asyncio.sleep(0)
            assert connection.session.principal == ANONYMOUS
            assert authentication.state is not SaslState.COMPLETE
            if connection.is_closed:
                return number + 1
        return most_frames


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
        assert not stranger.handled.keys() - UNAUTHENTICATED_APIS
        assert min(stranger.handled[key] for key in UNAUTHENTICATED_APIS) > frames / 50
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
    run = InProcessFuzz(tmp_path, 1, has_authorizer=True)
    await run.run(150_000)
    assert not run.complaints, f"{len(run.complaints)} complaints, first {run.complaints[0]}"
    assert run.outcomes[Outcome.ANSWER] > 30_000

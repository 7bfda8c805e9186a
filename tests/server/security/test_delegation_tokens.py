"""Delegation tokens: who gets one and for how long, who is let in by it, and what it may not do."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

import pytest
from tests.manual_clock import ManualClock

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.security import Security
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.sasl import SaslExchange, sasl_exchange
from barnabas.server.apis.handlers import describe_delegation_token
from barnabas.server.apis.table import SERVED
from barnabas.server.metadata import token_store
from barnabas.server.metadata.change_notifications import LIFE_MS, PURGE_INTERVAL_MS
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.token_store import CHANGES, DelegationToken, TokenStore, decode_token, encode_token
from barnabas.server.security import delegation_token_manager
from barnabas.server.security.delegation_token_manager import DelegationTokenManager
from barnabas.testing import Broker, Clock

PATIENCE = 60
PASSWORDS = {"root": "r", "anna": "a", "ben": "b", "carl": "c"}
DAY_MS = 86_400_000
CONFIG = {
    "delegation.token.secret.key": "the key of all brokers",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root",
    "connection.failed.authentication.delay.ms": "0",
}
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@asynccontextmanager
async def serving(clock: Clock | None = None, **more: Any) -> AsyncIterator[Broker]:
    async with asyncio.timeout(PATIENCE), Broker(sasl=PASSWORDS, config=CONFIG | more, clock=clock) as broker:
        yield broker


class ByToken(Security):
    """Shows a token's id and secret in the way of Java's clients."""

    def exchange(self, host: str) -> SaslExchange:
        inner = sasl_exchange(self.mechanism or "", self.username, self.password, random.randbytes(12).hex())
        return SaslExchange(inner.mechanism, self._extended(inner.messages))

    def _extended(self, messages: Any) -> Any:
        """Said and signed with an extension: a SCRAM client of its own, as ours knows none."""
        algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[self.mechanism or ""]
        first = next(messages).removeprefix(b"n,,") + b",tokenauth=true"
        challenge = yield b"n,," + first
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, count = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(algorithm, self.password.encode(), salt, count)
        key = hmac.digest(salted, b"Client Key", algorithm)
        final = f"c=biws,r={fields['r']}".encode()
        signed = b",".join((first, challenge, final))
        signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        yield final + b",p=" + base64.b64encode(proof)


async def connect(broker: Broker, user: str) -> BrokerConnection:
    options = ConnectionOptions(security=Security(None, "PLAIN", user, PASSWORDS[user]))
    return await BrokerConnection.open("127.0.0.1", broker.port, options)


async def by_token(broker: Broker, token: Any, mechanism: str = MECHANISMS[0]) -> BrokerConnection:
    security = ByToken(None, mechanism, token.token_id, base64.b64encode(token.hmac).decode())
    return await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions(security=security))


async def made(connection: BrokerConnection, owner: str = "", renewers: tuple[str, ...] = (), life: int = -1) -> Any:
    return await connection.send(
        CreateDelegationTokenRequest(
            owner_principal_type="User" if owner else None,
            owner_principal_name=owner or None,
            renewers=[CreatableRenewers(principal_type="User", principal_name=name) for name in renewers],
            max_lifetime_ms=life,
        )
    )


async def seen(connection: BrokerConnection, owners: list[str] | None = None) -> set[str]:
    named = None
    if owners is not None:
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    answer = await connection.send(DescribeDelegationTokenRequest(owners=named))
    assert answer.error_code == 0
    return {one.token_id for one in answer.tokens}


@pytest.mark.parametrize("version", range(SERVED[ApiKey.DESCRIBE_DELEGATION_TOKEN].highest + 1))
async def test_tokens_are_told_in_every_version(version: int) -> None:
    async with serving() as broker:
        anna = await connect(broker, "anna")
        token = await anna.send(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
        answer = await anna.send(DescribeDelegationTokenRequest(owners=None), version)
        (described,) = answer.tokens
        told = (described.token_id, bytes(described.hmac), described.principal_name, described.expiry_timestamp)
        assert told == (token.token_id, bytes(token.hmac), "anna", token.expiry_timestamp_ms)
        assert described.token_requester_principal_name == ("anna" if version >= 3 else "")
        by_then = min(version, 2)
        renewed = await anna.send(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=DAY_MS), by_then)
        assert renewed.error_code == 0
        ended = await anna.send(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), by_then)
        assert ended.error_code == 0
        assert await seen(anna) == set()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_whoever_has_the_token_is_its_owner_and_asks_for_no_other(mechanism: str) -> None:
    async with serving() as broker:
        anna = await connect(broker, "anna")
        token = await made(anna, renewers=("ben",))
        assert token.error_code == 0 and len(token.hmac) == 64
        key = CONFIG["delegation.token.secret.key"].encode()
        assert token.hmac == hmac.digest(key, token.token_id.encode(), "sha512")
        job = await by_token(broker, token, mechanism)
        assert (await job.send(MetadataRequest(topics=[]), 12)).brokers
        names = [str(one.session.principal) for one in broker.server.sockets._connections]
        assert names == ["User:anna"] * 2
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (await made(job)).error_code == refused
        assert (await job.send(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1))).error_code == refused
        assert (
            await job.send(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=1))
        ).error_code == refused
        assert (await job.send(DescribeDelegationTokenRequest(owners=None))).error_code == refused
        for bad in ({"hmac": b"x" * 64}, {"token_id": "nobody"}, {"token_id": "anna"}, {"token_id": "../config"}):
            with pytest.raises(KafkaError, match="invalid credentials"):
                await by_token(broker, changed(token, **bad), mechanism)


def changed(token: Any, **fields: Any) -> Any:
    """The same with something else in it."""
    other = copy(token)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


async def test_a_token_lasts_as_long_as_it_may_and_is_renewed_by_those_who_may() -> None:
    clock = Clock()
    async with serving(clock) as broker:
        anna, ben, carl = [await connect(broker, name) for name in ("anna", "ben", "carl")]
        token = await made(anna, renewers=("ben",), life=3 * DAY_MS)
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 3 * DAY_MS
        assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS
        renew = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=10 * DAY_MS)
        assert (await carl.send(renew)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        unknown = RenewDelegationTokenRequest(hmac=b"x" * 64, renew_period_ms=1)
        assert (await ben.send(unknown)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert (await ben.send(renew)).expiry_timestamp_ms == token.max_timestamp_ms
        shorter = await ben.send(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=DAY_MS))
        assert 0 < shorter.expiry_timestamp_ms - token.issue_timestamp_ms < 1.5 * DAY_MS
        job = await by_token(broker, token)
        clock.advance(days=2)
        assert (await ben.send(renew)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        with pytest.raises(KafkaError, match="invalid credentials"):
            await by_token(broker, token)
        job.close()
        await broker.server.state.security.delegation_tokens.sweep()
        assert (await ben.send(renew)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_a_session_ends_with_its_token() -> None:
    clock = ManualClock()
    async with serving(clock) as broker:
        anna = await connect(broker, "anna")
        token = await made(anna)
        await anna.send(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=2000))
        job = await by_token(broker, token)
        clock.at_ms += 2001
        # It is cut off, or is refused when it shows the token again.
        with pytest.raises(KafkaError):
            while True:
                await job.send(MetadataRequest(topics=[]), 12)
                await asyncio.sleep(0.05)


async def test_a_token_in_its_last_millisecond_is_for_no_more_than_that() -> None:
    clock = ManualClock()
    async with serving(clock) as broker:
        anna = await connect(broker, "anna")
        token = await made(anna)
        await anna.send(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=2000))
        clock.at_ms += 2000
        await by_token(broker, token)
        (by,) = [one.session for one in broker.server.sockets._connections if one.session.is_by_token]
        assert by.authentication is not None and by.authentication.ends_at is not None


async def test_who_sees_which_tokens_and_makes_them_for_others() -> None:
    async with serving() as broker:
        root, anna, ben, carl = [await connect(broker, name) for name in PASSWORDS]
        own = await made(anna, renewers=("ben",))
        refused = await made(anna, owner="carl")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED and not refused.hmac
        for_carl = await made(root, owner="carl")
        assert (for_carl.principal_name, for_carl.token_requester_principal_name) == ("carl", "root")
        both = {own.token_id, for_carl.token_id}
        assert await seen(root) == both
        assert await seen(anna) == {own.token_id} == await seen(ben)
        assert await seen(carl) == {for_carl.token_id}
        assert await seen(root, []) == set()
        assert await seen(root, ["ben"]) == {own.token_id}
        assert await seen(carl, ["anna"]) == set()
        # Tokens of anna (a USER resource), and one by its id.
        rules = [(7, "User:anna", 14), (6, for_carl.token_id, 8), (7, "User:anna", 13)]
        answer = await root.send(
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=kind,
                        resource_name=name,
                        resource_pattern_type=3,
                        principal="User:ben",
                        host="*",
                        operation=operation,
                        permission_type=3,
                    )
                    for kind, name, operation in rules
                ]
            )
        )
        assert [one.error_code for one in answer.results] == [0, 0, 0]
        more = await made(ben, owner="anna")
        assert more.error_code == 0
        assert await seen(ben) == both | {more.token_id}
        job = await by_token(broker, more)
        assert {str(one.session.principal) for one in broker.server.sockets._connections} >= {"User:anna"}
        job.close()
        gone = await ben.send(ExpireDelegationTokenRequest(hmac=more.hmac, expiry_time_period_ms=-1))
        assert gone.error_code == 0
        assert await seen(root, ["anna"]) == {own.token_id}
        with pytest.raises(KafkaError, match="invalid credentials"):
            await by_token(broker, more)


async def test_who_has_not_proved_who_they_are_gets_none_and_without_a_key_nobody_does() -> None:
    async with serving(**{"delegation.token.secret.key": None}) as broker:
        anna = await connect(broker, "anna")
        off = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert (await made(anna)).error_code == off
        for request in (
            RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
            ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
            DescribeDelegationTokenRequest(owners=None),
        ):
            assert (await anna.send(request)).error_code == off
        stranger = changed(await made(anna), token_id="x")
        with pytest.raises(KafkaError, match="invalid credentials"):
            await by_token(broker, stranger)
        await broker.server.state.security.delegation_tokens.sweep()
    async with asyncio.timeout(PATIENCE), Broker(config={"delegation.token.secret.key": "x"}) as broker:
        client = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        assert (await made(client)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_one_user_does_not_fill_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_token_manager, "MAX_TOKENS_PER_OWNER", 5)
    async with serving() as broker:
        anna, ben = [await connect(broker, name) for name in ("anna", "ben")]
        for _ in range(5):
            assert (await made(anna)).error_code == 0
        assert (await made(anna)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (await made(ben)).error_code == 0
        many = await made(ben, renewers=tuple(map(str, range(101))))
        assert many.error_code == ErrorCode.INVALID_REQUEST
        long = await made(ben, renewers=tuple(f"{number}-{'x' * 1000}" for number in range(10)))
        assert long.error_code == ErrorCode.INVALID_REQUEST
        wide = await made(ben, renewers=tuple(f"{number}-{chr(0x1F600) * 1000}" for number in range(3)))
        assert wide.error_code == ErrorCode.INVALID_REQUEST, "bytes are counted"
        for sign, most in (("\1", 8192 // 6), ('"', 8192 // 2)):
            names = [f"{number}{sign * 600}" for number in range(most // 600 + 1)]
            assert (await made(ben, renewers=tuple(names))).error_code == ErrorCode.INVALID_REQUEST, "as they are kept"
            assert (await made(ben, renewers=tuple(names[:-1]))).error_code == 0
        robot = CreatableRenewers(principal_type="Robot", principal_name="x")
        bad = await ben.send(CreateDelegationTokenRequest(renewers=[robot], max_lifetime_ms=1))
        assert bad.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


class SlowStore(TokenStore):
    """One that keeps a token for those alone who may go on."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(EmbeddedStore(DataTree(clock.now_ms)), now_ms=clock.now_ms)
        self.may_go_on = asyncio.Event()

    async def add(self, token: DelegationToken) -> None:
        if token.owner == "User:anna":
            await self.may_go_on.wait()
        await super().add(token)


async def test_of_those_that_are_made_at_the_same_moment_each_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_token_manager, "MAX_TOKENS_PER_OWNER", 5)
    async with serving() as broker:
        parts, store = broker.server.state.security.delegation_tokens, SlowStore(Clock())
        tokens = DelegationTokenManager(parts._config, store, parts._ports)
        await tokens.start()

        async def make(owner: str) -> int:
            try:
                await tokens.create(owner, owner, (), -1)
            except KafkaError as error:
                return error.code
            return 0

        of_anna = asyncio.gather(*(make("User:anna") for _ in range(20)))
        of_ben = await asyncio.gather(*(make("User:ben") for _ in range(6)))
        assert not of_anna.done(), "ben does not wait for anna's"
        store.may_go_on.set()
        refused = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        assert of_ben == [0] * 5 + [refused]
        assert await of_anna == [0] * 5 + [refused] * 15
        assert Counter([token.owner async for token in tokens.all()]) == {"User:anna": 5, "User:ben": 5}
        assert not tokens._owner_locks, "nothing is kept of who made some"


async def test_more_than_fit_into_an_answer_are_not_told_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_delegation_token, "MAX_BYTES", 2000)
    async with serving() as broker:
        root, anna, ben = [await connect(broker, name) for name in ("root", "anna", "ben")]
        for owner in (anna, ben):
            for _ in range(9):
                assert (await made(owner)).error_code == 0
        answer = await root.send(DescribeDelegationTokenRequest(owners=None))
        assert (answer.error_code, answer.tokens) == (ErrorCode.POLICY_VIOLATION, [])
        assert len(await seen(root, ["anna"])) == 9 == len(await seen(ben))


async def one_token(clock: Clock) -> tuple[EmbeddedStore, TokenStore, DelegationToken]:
    """A store with a token in it that lives long."""
    store = EmbeddedStore(DataTree(clock.now_ms))
    tokens = TokenStore(store, now_ms=clock.now_ms)
    await tokens.prepare()
    token = DelegationToken("id", "User:anna", "User:anna", (), 1, 1 << 50, 1 << 50)
    await tokens.add(token)
    return store, tokens, token


async def test_who_renews_a_token_again_and_again_does_not_fill_the_store() -> None:
    clock = Clock()
    store, tokens, token = await one_token(clock)
    for expiry_ms in range(250):
        assert await tokens.change(token._replace(expiry_ms=expiry_ms))
    assert len(await store.children(CHANGES)) == 251
    clock.advance(milliseconds=LIFE_MS + 1)
    await tokens.change(token)
    assert await store.children(CHANGES) == ["token_change_0000000251"]


async def test_nor_does_who_does_so_in_less_time_than_notices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_store, "MAX_NOTICES", 20)
    clock = Clock()
    store, tokens, token = await one_token(clock)
    for _ in range(250):
        assert await tokens.change(token)
    clock.advance(milliseconds=PURGE_INTERVAL_MS + 1)
    await tokens.change(token)
    assert await store.children(CHANGES) == [f"token_change_{number:010}" for number in range(232, 252)]


def test_the_nodes_are_kafkas() -> None:
    token = DelegationToken("id", "User:anna", "User:root", ("User:ben",), 1, 3, 2)
    assert json.loads(encode_token(token)) == {
        "version": 3,
        "owner": "User:anna",
        "tokenRequester": "User:root",
        "renewers": ["User:ben"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "id",
    }
    assert decode_token(encode_token(token)) == token
    older = json.loads(encode_token(token))
    del older["tokenRequester"]
    assert decode_token(json.dumps(older).encode()).requester == "User:anna"
    for bad in (b"", b"[]", b"{}", b'{"owner":1}'):
        with pytest.raises(ValueError):
            decode_token(bad)


@pytest.mark.verify
async def test_ten_thousand_tokens_keep_nobody_waiting() -> None:
    async with serving() as broker:
        store = broker.server.state.security.delegation_tokens._store
        for number in range(10_000):
            token = DelegationToken(f"t{number}", f"User:u{number}", "User:root", (), 1, 1 << 50, 1 << 50)
            await store._store.create(f"/delegation_token/tokens/t{number}", encode_token(token))
        root, anna, ben = [await connect(broker, name) for name in ("root", "anna", "ben")]
        work = [
            root.send(DescribeDelegationTokenRequest(owners=None)),
            anna.send(DescribeDelegationTokenRequest(owners=None)),
            anna.send(RenewDelegationTokenRequest(hmac=b"x" * 64, renew_period_ms=1)),
            made(anna),
        ]
        answers = asyncio.gather(*work)
        slowest, loop = 0.0, asyncio.get_running_loop()
        while not answers.done():
            began = loop.time()
            await ben.send(MetadataRequest(topics=[]), 12)
            slowest = max(slowest, loop.time() - began)
        everything, own, renewed, new = await answers
        assert len(everything.tokens) in (10_000, 10_001) and len(own.tokens) <= 1
        assert renewed.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND and new.error_code == 0
        assert slowest < 5

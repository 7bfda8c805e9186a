"""OAUTHBEARER: whose tokens are believed, which never are, where keys come from, and how clients get tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.identity_provider import AUDIENCE, ISSUER, IdentityProvider, ec_key
from tests.manual_clock import ManualClock

from barnabas.clients.bearer_tokens import unsecured_token
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.http import check_url, fetch
from barnabas.clients.security import Security, security_of
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.sasl_server import read_bearer
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.security import access_token_validator, json_web_key_set
from barnabas.server.security.access_token_validator import (
    MAX_TOKEN_BYTES,
    AccessTokenRejectedError,
    AccessTokenValidator,
)
from barnabas.testing import Broker, Clock, Cluster

PATIENCE = 60
LISTENER = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
UNSECURED = {
    "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security."
    "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FAST = {"connection.failed.authentication.delay.ms": "0"}
STRICT = {"sasl.oauthbearer.expected.issuer": ISSUER, "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}"}


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


class Here:
    """Lanes that do their work at once."""

    async def run(self, lane: str, job: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(job)


class World:
    """A validator whose clocks stand where they are put."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.now = 1000.0
        self.late_s = 0
        self.validator = AccessTokenValidator(
            BrokerConfig.from_properties(LISTENER | settings),
            "SASL_PLAINTEXT",
            Here(),  # type: ignore[arg-type]
            lambda: self.now,
            lambda: int((time.time() + self.late_s) * 1000),
        )

    async def name(self, token: str) -> str:
        return (await self.validator.validate(token)).principal_name

    async def refuses(self, token: str, reason: str = "") -> None:
        with pytest.raises(AccessTokenRejectedError, match=reason or None):
            await self.validator.validate(token)


@pytest.fixture
def world(provider: IdentityProvider, tmp_path: Path) -> World:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(provider.key_set()))
    return World(STRICT | {"sasl.oauthbearer.jwks.endpoint.url": file.as_uri()})


@asynccontextmanager
async def serving(config: dict[str, str], clock: Clock | None = None) -> AsyncIterator[Broker]:
    async with asyncio.timeout(PATIENCE), Broker(config=LISTENER | FAST | config, clock=clock) as broker:
        yield broker


async def connect(broker: Broker, security: Security) -> BrokerConnection:
    return await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions(security=security))


def showing(token: str) -> Security:
    return Security(mechanism="OAUTHBEARER", token=lambda: token)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def principals(broker: Broker) -> set[str]:
    return {str(one.session.principal) for one in broker.server.sockets._connections}


async def test_a_client_gets_a_token_and_is_let_in_by_its_name(provider: IdentityProvider) -> None:
    async with serving(STRICT | {"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url}) as broker:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": provider.token_url,
            "sasl.oauthbearer.client.credentials.client.id": "anna",
            "sasl.oauthbearer.client.credentials.client.secret": "se:cret",
            "sasl.oauthbearer.scope": "kafka-all",
        }
        provider.requests.clear()
        security = security_of(settings)
        for _ in range(2):
            connection = await connect(broker, security)
            assert (await connection.send(MetadataRequest(topics=None), 12)).brokers
            assert principals(broker) == {"User:anna"}
            connection.close()
            while broker.server.sockets._connections:
                await asyncio.sleep(0.01)
        assert sorted(provider.requests) == ["keys", "token"]
        assert provider.forms[-1] == {"grant_type": ["client_credentials"], "scope": ["kafka-all"]}
        wrong = security_of(settings | {"sasl.oauthbearer.client.credentials.client.secret": "x"})
        with pytest.raises(KafkaError, match="responded with 401") as caught:
            await connect(broker, wrong)
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_signatures_are_checked_beside_the_loop(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    verify = access_token_validator._JWS.decode

    def noted(*args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return verify(*args, **options)

    monkeypatch.setattr(access_token_validator._JWS, "decode", noted)
    async with serving({"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url}) as broker:
        connection = await connect(broker, showing(provider.token()))
        connection.close()
        with pytest.raises(KafkaError, match="invalid_token"):
            await connect(broker, showing(provider.token()[:-8] + "AAAAAAAA"))
    assert len(threads) == 2
    assert all(name.startswith(access_token_validator.LANE) for name in threads)


async def test_who_shows_a_bad_token_hears_it_and_is_cut_off(provider: IdentityProvider) -> None:
    async with serving({"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url}) as broker:
        for token in (provider.token(exp=1), unsecured_token("anna", int(time.time())), "x", "a.b.c"):
            with pytest.raises(KafkaError, match="invalid_token") as caught:
                await connect(broker, showing(token))
            assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(KafkaError, match="first message"):
            await connect(broker, showing("a token with blanks"))


async def test_a_session_ends_with_its_token(provider: IdentityProvider) -> None:
    settings = {"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url, "sasl.oauthbearer.clock.skew.seconds": "0"}
    clock = ManualClock()
    async with serving(settings, clock) as broker:
        began = clock.at_ms // 1000
        connection = await connect(broker, showing(provider.token(iat=began, exp=began + 2)))
        clock.at_ms += 2001
        # It is cut off, or is refused when it shows the token again.
        with pytest.raises(KafkaError):
            while True:
                await connection.send(MetadataRequest(topics=[]), 12)
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("key", ["rsa", "ec"])
async def test_what_is_signed_by_a_known_key_is_believed(world: World, provider: IdentityProvider, key: str) -> None:
    assert await world.name(provider.token(key)) == "anna"
    assert await world.name(provider.token(key, aud=["x", AUDIENCE], sub=" ben ")) == "ben"
    if key == "rsa":
        assert await world.name(provider.token(key, "PS512")) == "anna"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "tomorrow"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": float("inf")}, "exp is not a time"),
        ({"exp": float("nan")}, "exp is not a time"),
        ({"exp": 1 << 70}, "exp is not a time"),
        ({"iat": None}, "no issue time"),
        ({"iat": 1 << 35}, "not valid yet"),
        ({"nbf": 1 << 35}, "not valid yet"),
        ({"aud": "elsewhere"}, "audience"),
        ({"aud": None}, "audience"),
        ({"iss": "https://id.example.evil"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"sub": None}, "sub is not a name"),
        ({"sub": " "}, "sub is not a name"),
        ({"sub": "x" * 1025}, "sub is not a name"),
    ],
)
async def test_claims_that_do_not_hold(
    world: World, provider: IdentityProvider, claims: dict[str, Any], reason: str
) -> None:
    await world.refuses(provider.token(**claims), reason)


async def test_a_little_late_is_not_too_late(world: World, provider: IdentityProvider) -> None:
    token = provider.token()
    world.late_s = 329
    assert await world.name(token) == "anna"
    world.late_s = 331
    await world.refuses(token, "expired")
    world.late_s = -31
    await world.refuses(token, "not valid yet")


async def test_forged_signatures(world: World, provider: IdentityProvider) -> None:
    good = provider.token()
    header, claims, signature = good.split(".")
    body = json.loads(base64.urlsafe_b64decode(claims + "=="))
    public = provider.keys["rsa"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    # What everybody knows, as the secret of an HMAC: the oldest trick.
    for secret in (public, public.strip(), json.dumps(provider.key_set()["keys"][0]).encode()):
        signed = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{claims}"
        mac = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), hashlib.sha256)).rstrip(b"=").decode()
        await world.refuses(f"{signed}.{mac}", "alg")
    for name in ("none", "None", "NONE", "", None, 7, ["RS256"], "HS256", "ES256", "RS1", "x" * 1000):
        await world.refuses(f"{part({'alg': name, 'kid': 'rsa'})}.{claims}.")
        await world.refuses(f"{part({'alg': name, 'kid': 'rsa'})}.{claims}.{signature}")
    await world.refuses(f"{header}.{part(body | {'sub': 'root'})}.{signature}", "Signature")
    await world.refuses(f"{header}.{claims}.", "Signature")
    # A key of the token's own is none of the provider's.
    other = IdentityProvider()
    own = other.key_set()["keys"][0]
    await world.refuses(other.token(headers={"jwk": own}), "Signature")
    await world.refuses(other.token(headers={"jku": "https://evil.example/keys", "kid": "evil"}), "no key has the id")
    await world.refuses(provider.token(headers={"crit": ["x"], "x": 1}), "crit")
    await world.refuses(provider.token("ec", headers={"kid": "rsa"}), "alg")
    for kid in (None, 7, ["rsa"], {"a": 1}, "x" * 10_000, "../../etc/passwd"):
        await world.refuses(f"{part({'alg': 'RS256', 'kid': kid})}.{claims}.{signature}")


async def test_garbage_is_refused_and_nothing_else(world: World, provider: IdentityProvider) -> None:
    chance = random.Random(1)
    good = provider.token()
    await world.refuses("x" * (MAX_TOKEN_BYTES + 1), "bytes")
    deep = base64.urlsafe_b64encode(b"[" * 20_000).rstrip(b"=").decode()
    for token in ("", ".", "..", "...", f"{deep}..", f"{part({'alg': 'RS256'})}.{deep}.", f"{part([])}.{part([])}."):
        await world.refuses(token)
    for _ in range(300):
        broken = list(good)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken) - 4)] = chance.choice("abcXYZ019-_.")
        token = "".join(broken)
        if token != good:
            await world.refuses(token)
    for _ in range(500):
        message = bytes(chance.choice(b"n,a=\x01uthBearer xyz") for _ in range(chance.randint(0, 40)))
        try:
            assert read_bearer(message).token
        except KafkaError as error:
            assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert read_bearer(b"n,a=x=2Cy,\x01auth=Bearer abc\x01traceid=1 2\x01\x01") == ("abc", "x,y")


async def test_keys_change_while_tokens_come(provider: IdentityProvider, caplog: pytest.LogCaptureFixture) -> None:
    with IdentityProvider() as provider:
        world = World({"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url})
        old = provider.token()
        assert await world.name(old) == "anna"
        # Strangers make up as many keys as they like.
        for number in range(50):
            await world.refuses(provider.token(headers={"kid": f"made-up-{number}"}), "no key has the id")
        assert len(provider.requests) == 1
        world.now += json_web_key_set.EXPEDITED_SECONDS
        provider.keys["new"] = ec_key()
        assert await asyncio.gather(*(world.name(provider.token("new")) for _ in range(20))) == ["anna"] * 20
        assert len(provider.requests) == 2
        # While the provider is away the known keys count, and it is asked again after a growing pause.
        provider.is_broken = True
        world.now += 3601
        for _ in range(10):
            assert await world.name(old) == "anna"
            await asyncio.sleep(0.01)
        while "responded with 500" not in caplog.text:
            await asyncio.sleep(0.01)
        provider.is_broken = False
        # What is withdrawn is not believed any more.
        token = provider.token()
        del provider.keys["rsa"]
        async with asyncio.timeout(60):
            while True:
                world.now += 60
                try:
                    await world.name(token)
                except AccessTokenRejectedError:
                    break
                await asyncio.sleep(0.01)
        await world.validator.close()


async def test_without_a_name_the_only_key_is_meant(provider: IdentityProvider, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    (first, second) = provider.key_set()["keys"]
    useless = [{"kty": "oct", "k": "c2VjcmV0", "kid": "oct"}, {"kty": "RSA"}, {**first, "kid": "enc", "use": "enc"}]
    file.write_text(json.dumps({"keys": [*useless, first]}))
    url = {"sasl.oauthbearer.jwks.endpoint.url": file.as_uri()}
    assert await World(url).name(provider.token(headers={"kid": None})) == "anna"
    file.write_text(json.dumps({"keys": [first, second]}))
    await World(url).refuses(provider.token(headers={"kid": None}), "no key has the id")
    only = {**first, "alg": "RS512"}
    file.write_text(json.dumps({"keys": [only]}))
    await World(url).refuses(provider.token(), "alg")
    assert await World(url).name(provider.token(algorithm="RS512")) == "anna"


async def test_tokens_that_nobody_has_signed_are_believed_only_where_that_is_asked_for(
    provider: IdentityProvider,
) -> None:
    world = World(UNSECURED)
    now = int(time.time())
    assert await world.name(unsecured_token("anna", now)) == "anna"
    await world.refuses(unsecured_token("anna", now - 4000), "expired")
    await world.refuses(provider.token(), "must be none")
    await world.refuses(unsecured_token("anna", now) + "c2ln", "must be none")
    jaas = f'{MODULE} required unsecuredLoginStringClaim_sub="eve";'
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas}
    async with serving(UNSECURED) as broker:
        connection = await connect(broker, security_of(settings))
        assert principals(broker) == {"User:eve"}
        connection.close()


async def test_brokers_show_each_other_tokens(provider: IdentityProvider) -> None:
    config = LISTENER | {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": "anna",
        "sasl.oauthbearer.client.credentials.client.secret": "se:cret",
    }
    async with asyncio.timeout(PATIENCE), Cluster(brokers=2, topics={"t": 1}, config=config) as cluster:
        await cluster.await_isr("t", brokers=2, timeout=40)
        sockets = cluster.server(cluster.leader("t")).sockets
        while not any(one.session.principal.name == "anna" for one in sockets._connections):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "has no keys of tokens"),
        (UNSECURED | {"sasl.oauthbearer.jwks.endpoint.url": "https://id.example/keys"}, "accepts all tokens"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://id.example/keys"}, "must be https"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://id.example/keys"}, "must be https"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere/keys.json"}, "nowhere"),
        ({"sasl.server.callback.handler.class": "org.example.Own"}, "expected OAuthBearer"),
    ],
)
def test_a_broker_does_not_start_that_could_not_tell_good_tokens(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        World(settings)


def test_secrets_are_told_to_nobody_in_the_clear() -> None:
    for url in ("http://id.example/token", "http://10.0.0.1/token", "file:///etc/passwd", "https://", "x"):
        with pytest.raises(ValueError, match="must be https"):
            check_url(url)
    for url in ("https://id.example/token", "http://127.0.0.1:1/t", "http://localhost/t", "http://[::1]/t"):
        check_url(url)
    with pytest.raises(OSError, match="Connection refused"):
        fetch("http://127.0.0.1:1/t")
    missing = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ValueError, match="this client has no source of tokens"):
        security_of(missing)
    with pytest.raises(ValueError, match=r"client\.id and"):
        security_of(missing | {"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"})

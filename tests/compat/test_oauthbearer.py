"""Clients of every make that show tokens: a good one writes, a bad or an expired one does not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens
from tests.compat import one_record
from tests.compat.one_record import WRITTEN
from tests.identity_provider import IdentityProvider
from tests.kafka import KafkaTools

from barnabas.clients.bearer_tokens import unsecured_token
from barnabas.clients.security import Security
from barnabas.testing import Broker

KNOWN = {WRITTEN, "nothing", "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError"}
"""What nobody hears whose token is refused."""
LISTENER = "listener.name.sasl_plaintext.oauthbearer"
HANDLER = f"{LISTENER}.sasl.server.callback.handler.class"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
UNSECURED = f"{OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SHORT_MS, LONG_MS = 4000, 60_000
"""Who is refused may go on trying, and who is not has time."""
RULES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:anna",
    "connection.failed.authentication.delay.ms": "0",
}


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture(scope="module")
def secured(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that lets anna do everything and nobody else anything."""
    keys: Path = tmp_path_factory.mktemp("provider") / "keys.json"
    keys.write_text(json.dumps(provider.key_set()))
    url = {f"{LISTENER}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}
    with Broker({"t": 1}, config=RULES | url) as broker:
        yield broker


def by_confluent(broker: Broker, token: str, patience_ms: int) -> str:
    return one_record.by_confluent(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 300),
        }
    )


def of_python(broker: Broker, provider: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def by_kafka_python(broker: Broker, token: str, patience_ms: int) -> str:
    class Tokens(KafkaPythonTokens):
        def token(self) -> str:
            return token

    limits = dict.fromkeys(("max_block_ms", "bootstrap_timeout_ms"), patience_ms)
    return one_record.by_kafka_python(of_python(broker, Tokens()) | limits)


def by_aiokafka(broker: Broker, token: str, patience_ms: int) -> str:
    class Tokens(AiokafkaTokens):
        async def token(self) -> str:
            return token

    return one_record.by_aiokafka(of_python(broker, Tokens()), seconds=patience_ms / 1000)


def by_ours(broker: Broker, token: str, patience_ms: int) -> str:
    return one_record.by_ours(broker.bootstrap, Security(mechanism="OAUTHBEARER", token=lambda: token))


CLIENTS: dict[str, Callable[[Broker, str, int], str]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "ours": by_ours,
}


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=[] if name == "ours" else pytest.mark.verify) for name in CLIENTS]
)
def test_who_shows_a_good_token_writes(secured: Broker, provider: IdentityProvider, client: str) -> None:
    write = CLIENTS[client]
    before = len(secured.records("t"))
    assert write(secured, provider.token(), LONG_MS) == WRITTEN
    assert write(secured, provider.token("ec"), LONG_MS) == WRITTEN
    assert write(secured, provider.token(exp=int(time.time()) - 60), SHORT_MS) not in KNOWN
    assert write(secured, IdentityProvider().token(), SHORT_MS) not in KNOWN
    assert write(secured, unsecured_token("anna", int(time.time())), SHORT_MS) not in KNOWN
    # Known, and without a right.
    assert write(secured, provider.token(sub="eve"), LONG_MS) not in (WRITTEN, "TimeoutError")
    assert len(secured.records("t")) == before + 2


def client_file(folder: Path, options: str, **more: str) -> str:
    path = folder / "client.properties"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required {options};",
    } | {name.replace("_", "."): value for name, value in more.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def listed(version: str, broker: Broker, file: str, flags: list[str] | None = None) -> tuple[int, str]:
    tools = KafkaTools(version)
    tools.flags += flags or []
    where = ("--bootstrap-server", broker.bootstrap, "--command-config", file)
    result = tools.run("kafka-topics", *where, "--list")
    return result.returncode, result.stdout + result.stderr


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("version", "package"), [("4.4.0", OAUTH), ("3.9.1", f"{OAUTH}.secured")])
def test_java_shows_a_token_out_of_a_file(
    version: str, package: str, secured: Broker, provider: IdentityProvider, tmp_path: Path
) -> None:
    token = tmp_path / "token.jwt"
    token.write_text(provider.token(exp=int(time.time()) + 36_000))
    handler = f"{package}.OAuthBearerLoginCallbackHandler"
    file = client_file(
        tmp_path, "", sasl_login_callback_handler_class=handler, sasl_oauthbearer_token_endpoint_url=token.as_uri()
    )
    allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}"]
    assert listed(version, secured, file, allowed) == (0, "t\n")
    forged = IdentityProvider().token(exp=int(time.time()) + 36_000)
    for bad in (forged, provider.token(exp=int(time.time()) - 60)):
        token.write_text(bad)
        status, said = listed(version, secured, file, allowed)
        assert status and "invalid_token" in said


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["4.4.0", "3.9.1"])
def test_java_makes_its_own_tokens_where_they_are_believed(version: str, tmp_path: Path) -> None:
    with Broker({"t": 1}, config=RULES | {HANDLER: UNSECURED}) as broker:
        assert listed(version, broker, client_file(tmp_path, 'unsecuredLoginStringClaim_sub="anna"')) == (0, "t\n")
        assert listed(version, broker, client_file(tmp_path, 'unsecuredLoginStringClaim_sub="eve"')) == (0, "\n")

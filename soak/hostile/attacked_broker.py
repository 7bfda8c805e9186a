"""The attacked broker, and the listeners and logins of the attackers and of the healthy client."""

from __future__ import annotations

import hashlib
from enum import Enum
from functools import cached_property
from pathlib import Path

from soak.hostile.guesses import MECHANISMS
from soak.hostile.healthy_client import HealthyClient
from soak.hostile.in_process import ACLS, AUTHORIZER_SETTINGS, EVE, SETTINGS
from soak.hostile.wire import Endpoint, Login
from tests.barnabas_server import BarnabasServer
from tests.server_process import free_port

from barnabas.clients.admin.acls import creation_of
from barnabas.clients.certificates import Authority
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

PASSWORD = "s3cret"
SUPER = "admin"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required {};"
UNSECURED = "x.OAuthBearerUnsecuredValidatorCallbackHandler"
SALT, ITERATIONS = b"salt", 4096
SHA_256 = 1


class AttackerKind(Enum):
    """The kinds of attackers."""

    ANONYMOUS = "anonymous"
    """A client of a listener without authentication."""
    UNAUTHENTICATED = "unauthenticated"
    """A client without a password, on a listener that requires one."""
    USER = "user"
    """An authenticated client with few ACLs."""
    SUPER = "super"
    """An authenticated client with all permissions."""


class AttackedBroker:
    """A broker with a PLAINTEXT listener and, unless the attackers are anonymous, SASL_PLAINTEXT and SASL_SSL."""

    def __init__(self, folder: Path, kind: AttackerKind) -> None:
        self.kind = kind
        self._folder = folder
        settings = {name: value for name, value in SETTINGS.items() if name != "listeners"}
        self.broker = BarnabasServer(folder, properties=settings | {"acks.all.durability": "disk"})
        if kind is not AttackerKind.ANONYMOUS:
            self._sasl, self._tls = free_port(), free_port()
            self.broker.add_properties(self._security_settings())

    @cached_property
    def admin_endpoint(self) -> Endpoint:
        """Return the listener and login of the healthy client, which has all permissions."""
        if self.kind is AttackerKind.ANONYMOUS:
            return Endpoint(("127.0.0.1", self.broker.port))
        return Endpoint(("127.0.0.1", self._sasl), Login(SUPER, PASSWORD))

    @cached_property
    def attacker_endpoints(self) -> list[Endpoint]:
        """Return the listeners and logins of attackers, from which each connection draws one."""
        if self.kind is AttackerKind.ANONYMOUS:
            return [self.admin_endpoint]
        sasl, tls, ca = ("127.0.0.1", self._sasl), ("127.0.0.1", self._tls), str(self._folder / "ca.pem")
        if self.kind is AttackerKind.UNAUTHENTICATED:
            return [Endpoint(sasl)] * 9 + [Endpoint(tls, ca=ca)]
        if self.kind is AttackerKind.SUPER:
            login = Login(SUPER, PASSWORD)
            return [Endpoint(sasl, login)] * 9 + [Endpoint(tls, login, ca)]
        login = Login(EVE.name, PASSWORD)
        by_hash = Login(EVE.name, PASSWORD, "SCRAM-SHA-256")
        return [Endpoint(sasl, login)] * 8 + [Endpoint(sasl, by_hash), Endpoint(tls, login, ca)]

    def prepare(self, client: HealthyClient) -> None:
        """Create users and ACLs."""
        if self.kind is AttackerKind.ANONYMOUS:
            return
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)
        users = [
            ScramCredentialUpsertion(
                name=name, mechanism=SHA_256, iterations=ITERATIONS, salt=SALT, salted_password=salted
            )
            for name in ("anna", EVE.name)
        ]
        response = client.call(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest(deletions=[], upsertions=users)
        )
        created = client.call(ApiKey.CREATE_ACLS, creation_of(ACLS))
        assert not {one.error_code for one in response.results + created.results} - {0}, (response, created)

    def _security_settings(self) -> dict[str, str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        authority = Authority.new("hostile tests")
        authority.write(self._folder / "ca.pem")
        authority.issue("broker", ["127.0.0.1"]).write(self._folder / "broker.pem")
        listeners = f"PLAINTEXT://127.0.0.1:{self.broker.port},SASL_PLAINTEXT://127.0.0.1:{self._sasl}"
        listeners += f",SASL_SSL://127.0.0.1:{self._tls}"
        users = f'user_{SUPER}="{PASSWORD}" user_anna="{PASSWORD}" user_{EVE.name}="{PASSWORD}"'
        settings = {
            **AUTHORIZER_SETTINGS,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "super.users": f"User:{SUPER}",
            "delegation.token.secret.key": "k",
            "connection.failed.authentication.delay.ms": "1",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._folder / "broker.pem"),
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = JAAS.format(users)
            settings[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = UNSECURED
        return settings

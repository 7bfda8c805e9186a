"""A broker with every way to prove who one is, for clients that are programs of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.identity_provider import IdentityProvider

from barnabas.clients.certificates import Authority
from barnabas.testing import Broker

PATIENCE = 60
JWKS = "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
PLAIN = "listener.name.sasl.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.{} required"
ADMIN, PASSWORD, OTHER = "admin", "s3cret", "0ther"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


class SecuredWorld:
    """`anna` may do everything, by whichever way; certificates of everybody lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.authority = Authority.new("test CA")
        self.provider = IdentityProvider()
        self.authority.write(self.ca)
        self.authority.issue("broker", ["127.0.0.1"]).write(folder / "broker.pem")
        for name, identity in {
            "anna": self.authority.issue("anna"),
            "forged": Authority.new("another CA").issue("anna"),
            "expired": self.authority.issue("anna", days=0),
            "eve": self.authority.issue("eve"),
        }.items():
            identity.write(folder / f"{name}.pem")
            identity.write_pkcs12(folder / f"{name}.p12", PASSWORD)
        keys = folder / "keys.json"
        keys.write_text(json.dumps(self.provider.key_set()))
        self._config = {
            "listeners": "MUTUAL://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener.security.protocol.map": "MUTUAL:SSL,SASL:SASL_SSL",
            "inter.broker.listener.name": "SASL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "listener.name.mutual.ssl.client.auth": "required",
            PLAIN: self._users(PASSWORD),
            JWKS: keys.as_uri(),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:anna;User:CN=anna",
            "connection.failed.authentication.delay.ms": "0",
        }

    @staticmethod
    def _users(of_anna: str) -> str:
        module = MODULE.format("plain.PlainLoginModule")
        own = f'username="{ADMIN}" password="{PASSWORD}"'
        return f'{module} {own} user_{ADMIN}="{PASSWORD}" user_anna="{of_anna}" user_eve="{PASSWORD}";'

    @contextmanager
    def serving(self) -> Iterator[Broker]:
        """Until this ends; users have their passwords."""
        with Broker({"t": 1}, config=self._config) as self.broker:
            infos = [ScramCredentialInfo(mechanism, 4096) for mechanism in SCRAM.values()]
            users = [
                UserScramCredentialUpsertion(user, info, PASSWORD.encode())
                for user in ("anna", "eve")
                for info in infos
            ]
            self._alter(users)
            yield self.broker

    def revoke(self) -> None:
        """Anna's passwords are good for nothing any more."""
        self._alter([UserScramCredentialDeletion("anna", mechanism) for mechanism in SCRAM.values()])
        change = {PLAIN: self._users(OTHER)}
        self.broker.server.state.dynamic_config.broker_config_changed(change, per_broker=True)

    def _alter(self, changes: list[UserScramCredentialUpsertion] | list[UserScramCredentialDeletion]) -> None:
        admin = AdminClient(
            {
                "bootstrap.servers": self.address("SASL"),
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(self.ca),
                "sasl.mechanism": "PLAIN",
                "sasl.username": ADMIN,
                "sasl.password": PASSWORD,
            }
        )
        # One change of a user in a request.
        for change in changes:
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(PATIENCE)

    def address(self, listener: str) -> str:
        """Where clients go."""
        (port,) = (one.port for one in self.broker.server.listeners if one.name == listener)
        return f"127.0.0.1:{port}"

    def tokens(self) -> dict[str, str]:
        """By what they are."""
        return {
            "right": self.provider.token(),
            "expired": self.provider.token(exp=int(time.time()) - 60),
            "forged": IdentityProvider().token(),
            "eve": self.provider.token(sub="eve"),
        }

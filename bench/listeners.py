"""Listeners in addition to the plain one, the same for every broker in a comparison: TLS, and SCRAM over TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.server_process import free_port

from barnabas.clients.certificates import Authority

USER, PASSWORD, MECHANISM = "ann", "s3cret", "SCRAM-SHA-512"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredListeners(NamedTuple):
    """The listeners of a broker, the CA certificate that its clients trust, and its key."""

    plain: int
    tls: str
    scram: str
    ca: Path
    key: Path

    @classmethod
    def new(cls, folder: Path) -> SecuredListeners:
        """Choose free ports, and write the certificates to the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority.new("bench")
        ca, key = folder / "ca.pem", folder / "broker.pem"
        authority.write(ca)
        authority.issue("localhost", ["127.0.0.1"]).write(key)
        return cls(free_port(), f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", ca, key)

    def broker_settings(self, *, kraft: bool) -> dict[str, str]:
        """Return the settings of a broker; a KRaft broker also has the listener of its controllers."""
        listeners = f"PLAINTEXT://127.0.0.1:{self.plain},TLS://{self.tls},SCRAM://{self.scram}"
        found = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SCRAM:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key),
            "listener.name.scram.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.scram.{MECHANISM.lower()}.sasl.jaas.config": JAAS,
        }
        if kraft:
            controller = f"127.0.0.1:{free_port()}"
            found["listeners"] += f",CONTROLLER://{controller}"
            found["controller.quorum.voters"] = f"1@{controller}"
        return found

    def librdkafka_settings(self) -> dict[str, Any]:
        """Return the TLS settings of librdkafka's clients."""
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.ca)}

    def client_settings(self, *, scram: bool) -> dict[str, str]:
        """Return the settings of Barnabas's clients, which have the names of the Java client's settings."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if not scram:
            return {"security.protocol": "SSL", **trust}
        jaas = f'{JAAS.removesuffix(";")} username="{USER}" password="{PASSWORD}";'
        return {"security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM, "sasl.jaas.config": jaas, **trust}

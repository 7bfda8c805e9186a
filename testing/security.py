"""Security of a test's broker: passwords and generated certificates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..server.runtime.host import token_bytes
from .folders import TemporaryFolder

_OPTION_NAME = re.compile(r"[\w.$-]+")
_MODULE = "org.apache.kafka.common.security.{}LoginModule required"
_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"

BROKER = "broker"
"""The user name of the brokers of a cluster."""


class BrokerAccess:
    """The security settings of one broker. Without passwords and TLS there is no authentication."""

    def __init__(
        self, passwords: Mapping[str, str], *, tls: bool, host: str = "127.0.0.1", is_cluster: bool = False
    ) -> None:
        """Brokers of a cluster (`is_cluster`) authenticate as user `BROKER` if clients have passwords."""
        self.passwords = dict(passwords)
        self._own = ""
        if is_cluster and passwords:
            self._own = self.passwords.setdefault(BROKER, token_bytes(16).hex())
        self.protocol = f"{'SASL_' if passwords else ''}{'SSL' if tls else 'PLAINTEXT'}"
        self._tls = tls
        self._host = host
        self._folder: TemporaryFolder | None = None

    def settings(self) -> dict[str, str]:
        """Return the broker's settings; missing certificates are generated."""
        settings: dict[str, str] = {}
        if self.passwords:
            settings["sasl.enabled.mechanisms"] = _MECHANISMS
            key = f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"
            settings[key] = f"{_MODULE.format('plain.Plain')} {self._users()};"
            if self._own:
                own = f"username={BROKER} password={_quoted(self._own)}"
                settings[key] = f"{_MODULE.format('plain.Plain')} {own} {self._users()};"
                settings["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        if self._tls:
            folder = self._certificates()
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": f"{folder}/broker.pem"}
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{folder}/ca.pem"}
        return settings

    def ca_file(self) -> str:
        """Return the certificate for the trust store of clients, as PEM."""
        if self._folder is None:
            raise RuntimeError("the broker has no TLS, or is not running")
        return f"{self._folder.path}/ca.pem"

    def client_settings(self, user: str | None, mechanism: str) -> dict[str, str]:
        """Return the client settings for that user or the first, with the names of Java's clients. Raises KeyError."""
        settings = {"security.protocol": self.protocol}
        if self._tls:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file()}
        if self.passwords:
            name = next(iter(self.passwords)) if user is None else user
            if name not in self.passwords:
                raise KeyError(f"unknown user {name!r}. Expected one of {', '.join(self.passwords)}")
            module = _MODULE.format("plain.Plain" if mechanism == "PLAIN" else "scram.Scram")
            jaas = f"{module} username={_quoted(name)} password={_quoted(self.passwords[name])};"
            settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        return settings

    def close(self) -> None:
        """Remove the certificates."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _users(self) -> str:
        """Return the options for PLAIN; a name that is not a valid option, for example with spaces, works with SCRAM
        only.
        """
        named = {name: password for name, password in self.passwords.items() if _OPTION_NAME.fullmatch(name)}
        return " ".join(f"user_{name}={_quoted(password)}" for name, password in named.items())

    def _certificates(self) -> str:
        if self._folder is None:
            from ..clients.certificates import Authority

            self._folder = TemporaryFolder()
            folder = Path(self._folder.path)
            authority = Authority.new("Barnabas test CA")
            authority.write(folder / "ca.pem")
            hosts = [self._host, "localhost", "127.0.0.1", "::1"]
            authority.issue("broker", hosts).write(folder / "broker.pem")
        return self._folder.path


def _quoted(value: str) -> str:
    """Quote a value for a JAAS string."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

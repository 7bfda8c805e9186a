"""Keys, trust and logins that AlterConfigs changes are tried first: what a start would refuse is never stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.config.config_client import ConfigClient

from barnabas.clients.certificates import Authority
from barnabas.clients.key_stores import MAX_STORE_BYTES
from barnabas.common.jaas import check_jaas
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker import Broker

SET, DELETE, *_ = ConfigOperation
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required user_anna="secret";'
TLS, SASL = "listener.name.ssl.", "listener.name.sasl_plaintext."


class Files:
    """Certificates of an authority, and files that are none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.foreign = Authority.new("test CA"), Authority.new("foreign CA")
        self.ca, self.foreign_ca = folder / "ca.pem", folder / "foreign-ca.pem"
        self.authority.write(self.ca)
        self.foreign.write(self.foreign_ca)
        for name, authority in (("broker", self.authority), ("renewed", self.authority), ("alien", self.foreign)):
            authority.issue(name, ["127.0.0.1"]).write(folder / f"{name}.pem")
        self.authority.issue("store", ["127.0.0.1"]).write_pkcs12(folder / "store.p12", "sesame")
        (folder / "garbage.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        (folder / "empty.pem").write_bytes(b"")
        os.mkfifo(folder / "pipe")
        with (folder / "large.pem").open("wb") as large:
            large.truncate(MAX_STORE_BYTES + 1)
        key, _, chain = (folder / "broker.pem").read_text().partition("-----BEGIN CERTIFICATE")
        other = (folder / "renewed.pem").read_text()
        (folder / "mismatch.pem").write_text(key + other[other.index("-----BEGIN CERTIFICATE") :])
        assert chain

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


def settings(files: Files) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "password.encoder.secret": "s",
        f"{TLS}ssl.keystore.type": "PEM",
        f"{TLS}ssl.keystore.location": files.path("broker.pem"),
        f"{TLS}ssl.truststore.type": "PEM",
        f"{TLS}ssl.truststore.location": str(files.ca),
        f"{SASL}sasl.enabled.mechanisms": "PLAIN",
        f"{SASL}plain.sasl.jaas.config": JAAS,
    }


@pytest.fixture(scope="module")
def broker(files: Files) -> Iterator[Broker]:
    with Broker(config=settings(files)) as broker:
        yield broker


def edit(broker: Broker, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    with closing(ConfigClient(broker.bootstrap)) as client:
        return client.edit(ConfigResourceType.BROKER, "1", *changes)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (f"{TLS}ssl.keystore.location", "{missing.pem}", "No such file"),
        (f"{TLS}ssl.keystore.location", "{garbage.pem}", "listener SSL"),
        (f"{TLS}ssl.keystore.location", "{empty.pem}", "listener SSL"),
        (f"{TLS}ssl.keystore.location", "{ca.pem}", "listener SSL"),
        (f"{TLS}ssl.keystore.location", "{mismatch.pem}", "listener SSL"),
        (f"{TLS}ssl.keystore.location", "{store.p12}", "listener SSL"),
        (f"{TLS}ssl.keystore.location", "/dev/zero", "is not a file"),
        (f"{TLS}ssl.truststore.location", "{pipe}", "is not a file"),
        (f"{TLS}ssl.truststore.location", "{large.pem}", "more than"),
        (f"{TLS}ssl.keystore.certificate.chain", "-----BEGIN CERTIFICATE----- AAAA -----END CERTIFICATE-----", "SSL"),
        (f"{TLS}ssl.truststore.location", "{missing.pem}", "No such file"),
        (f"{TLS}ssl.truststore.location", "{garbage.pem}", "listener SSL"),
        (f"{TLS}ssl.truststore.certificates", "nothing", "listener SSL"),
        (f"{TLS}ssl.cipher.suites", "TLS_NO_WITH_SUCH", "not supported"),
        (f"{TLS}ssl.enabled.protocols", "TLSv1.1", "expected at least one of"),
        ("ssl.enabled.protocols", "SSLv3", "expected at least one of TLSv1.2, TLSv1.3"),
        (f"{SASL}plain.sasl.jaas.config", f"{MODULE} required;", "no user_NAME"),
        (f"{SASL}plain.sasl.jaas.config", f'{MODULE} required user_anna="secret"', "semicolon"),
        (f"{SASL}plain.sasl.jaas.config", f'{MODULE} user_anna="secret";', "login module"),
        (f"{SASL}plain.sasl.jaas.config", "", "login module"),
        (f"{SASL}sasl.enabled.mechanisms", "PLAIN,NONSENSE", "NONSENSE"),
        (f"{SASL}sasl.enabled.mechanisms", "PLAIN,OAUTHBEARER", "sasl.oauthbearer"),
        (f"{SASL}sasl.enabled.mechanisms", "", "no mechanism"),
    ],
)
def test_what_a_start_would_refuse_is_not_stored(
    files: Files, broker: Broker, name: str, value: str, reason: str
) -> None:
    given = files.path(value[1:-1]) if value.startswith("{") else value
    code, message = edit(broker, (name, SET, given))
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert reason in message
    assert "secret" not in message.replace("password.encoder.secret", "")
    assert broker.server.config.broker_overrides == {}


def test_good_files_are_taken_and_other_settings_do_not_read_them(files: Files, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes((files.folder / "renewed.pem").read_bytes())
    with Broker(config=settings(files), data_dir=tmp_path / "data") as broker:
        assert edit(broker, (f"{TLS}ssl.keystore.location", SET, str(key))) == (0, None)
        store = [
            (f"{TLS}ssl.keystore.location", SET, files.path("store.p12")),
            (f"{TLS}ssl.keystore.type", SET, "PKCS12"),
        ]
        assert edit(broker, *store, (f"{TLS}ssl.keystore.password", SET, "wrong"))[0] == ErrorCode.INVALID_REQUEST
        assert edit(broker, *store, (f"{TLS}ssl.keystore.password", SET, "sesame")) == (0, None)
        pem = (f"{TLS}ssl.keystore.type", SET, "PEM")
        assert edit(broker, pem, (f"{TLS}ssl.keystore.location", SET, str(key))) == (0, None)
        key.unlink()
        assert edit(broker, ("message.max.bytes", SET, "5000")) == (0, None)
        assert edit(broker, (f"{TLS}ssl.keystore.location", SET, str(key)))[0] == ErrorCode.INVALID_REQUEST
        assert edit(broker, (f"{TLS}ssl.keystore.location", DELETE, None)) == (0, None)
        assert edit(broker, (f"{SASL}sasl.enabled.mechanisms", SET, "SCRAM-SHA-256")) == (0, None)
    with Broker(config=settings(files), data_dir=tmp_path / "data") as broker:
        assert broker.server.config.message_max_bytes == 5000


def test_a_certificate_of_a_foreign_authority_is_refused_between_brokers(files: Files) -> None:
    location, trust = f"{TLS}ssl.keystore.location", f"{TLS}ssl.truststore.location"
    alien, foreign_ca = files.path("alien.pem"), str(files.foreign_ca)
    with Broker(config=settings(files) | {"inter.broker.listener.name": "SSL"}) as broker:
        code, message = edit(broker, (location, SET, alien))
        assert (code, message) == (ErrorCode.INVALID_REQUEST, message)
        assert message is not None
        assert "the new key store and the new trust store" in message
        assert edit(broker, (location, SET, files.path("renewed.pem"))) == (0, None)
        # With connections to other brokers, an authority is replaced in steps: trust both, renew, trust the new one.
        server = broker.server
        listener = next(one for one in server.config.listeners if one.name == "SSL")
        server.state.security.outgoing(listener)
        code, message = edit(broker, (location, SET, alien), (trust, SET, foreign_ca))
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert "the trust store in use" in message or "the key store in use" in message
        both = files.folder / "both.pem"
        both.write_text(files.ca.read_text() + files.foreign_ca.read_text())
        assert edit(broker, (trust, SET, str(both))) == (0, None)


def test_other_listeners_take_a_certificate_of_any_authority(files: Files, broker: Broker) -> None:
    assert edit(broker, (f"{TLS}ssl.keystore.location", SET, files.path("alien.pem"))) == (0, None)
    assert edit(broker, (f"{TLS}ssl.keystore.location", DELETE, None)) == (0, None)


@pytest.mark.parametrize(
    "text",
    [JAAS, f"{MODULE} required;", f"{MODULE}\n\tRequired a='b' c=d\n;", f'  {MODULE} optional a="b;c\\"d" ; '],
)
def test_jaas_strings(text: str) -> None:
    check_jaas(text)


@pytest.mark.parametrize(
    "text", ["", ";", MODULE, f"{MODULE} maybe;", f"{MODULE} required a;", f"{JAAS}{JAAS}", "a b c"]
)
def test_strings_that_are_no_jaas(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_jaas(text)

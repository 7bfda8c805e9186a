"""Security settings of the Java client, read for Python."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from barnabas.clients import security
from barnabas.clients.java_key_store import read_jks
from barnabas.clients.key_stores import load_key


def test_passwords_as_java_and_librdkafka_have_them() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\"c;";'
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    found = security.security_of(settings)
    assert (found.tls, found.mechanism, found.username, found.password) == (None, "PLAIN", "a", 'b"c;')
    plain = {"sasl.username": "x", "sasl.password": "y"}
    found = security.security_of({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **plain})
    assert found.tls is not None and found.username == "x"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, "Expected one of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "CRAM-MD5"}, "Expected one of PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, r"barnabas\[gssapi\]|service.name"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "no username and password"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        security.security_of(settings)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(security.Security(None, "PLAIN", "u", "secret"))


def test_every_exchange_has_a_nonce_of_its_own() -> None:
    one = security.Security(None, "SCRAM-SHA-256", "u", "p")
    exchanges = [one.exchange("b") for _ in range(2)]
    assert len({next(exchange.messages) for exchange in exchanges if exchange is not None}) == 2
    assert security.PLAINTEXT.exchange("b") is None


VECTORS = Path(__file__).parent.parent / "vectors" / "jks"


def of_store(role: str, name: str, password: str | None, key_password: str | None = None) -> dict[str, str]:
    found = {f"ssl.{role}.location": str(VECTORS / name), f"ssl.{role}.password": password}
    found["ssl.key.password"] = key_password
    return {"security.protocol": "SSL", **{key: value for key, value in found.items() if value is not None}}


@pytest.mark.parametrize("password", ["sesame", None])
def test_certificates_of_a_jks_store_are_trusted(password: str | None) -> None:
    tls = security.security_of(of_store("truststore", "trust.jks", password)).tls
    assert tls is not None
    assert tls.cert_store_stats()["x509"] == 2


@pytest.mark.parametrize("password", ["sesame", None])
def test_who_has_a_key_in_a_trust_store_is_trusted_whatever_its_password_is(password: str | None) -> None:
    tls = security.security_of(of_store("truststore", "key.jks", password)).tls
    assert tls is not None
    assert tls.cert_store_stats()["x509"] == 1


@pytest.mark.parametrize(
    ("name", "key_password"), [("key.jks", "p\u00e4ssword"), ("rsa.jks", None), ("legacy.p12", None)]
)
def test_keys_of_javas_old_stores_are_shown(name: str, key_password: str | None) -> None:
    """By JKS's own cipher, and a PKCS12 store of RC2 and triple DES."""
    settings = of_store("keystore", name, "sesame", key_password)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert load_key(context, settings)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = security.security_of(of_store("truststore", "trust.jks", "sesame")).tls
    assert trust is not None
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    client = trust.wrap_bio(outgoing, incoming, server_hostname="127.0.0.1")
    for one in (client, server):
        with pytest.raises(ssl.SSLWantReadError):
            one.do_handshake()
    if name.endswith("jks"):  # only those are in the other store
        client.do_handshake()
        server.do_handshake()


@pytest.mark.parametrize(
    ("name", "password", "key_password", "message"),
    [
        ("key.jks", "wrong", None, "key.jks: the password is wrong, or the store is damaged"),
        ("key.jks", "sesame", "wrong", "key.jks: the password of the key me is wrong"),
        ("trust.jks", "sesame", None, "has no private key"),
    ],
)
def test_what_a_jks_store_does_not_tell(name: str, password: str, key_password: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        security.security_of(of_store("keystore", name, password, key_password))


def test_a_damaged_jks_store_is_refused_wherever_it_is_cut() -> None:
    whole = (VECTORS / "key.jks").read_bytes()
    for size in range(len(whole)):
        with pytest.raises(ValueError, match=r"damaged|no JKS store|wrong|protected"):
            for key in read_jks(whole[:size], None).keys:
                key.reveal("p\u00e4ssword")


def test_a_store_of_another_old_kind_is_refused_with_what_to_do(tmp_path: Path) -> None:
    store = tmp_path / "x.jks"
    store.write_bytes(b"\xce\xce\xce\xce" + bytes(20))
    with pytest.raises(ValueError, match="keytool -importkeystore"):
        security.security_of({"security.protocol": "SSL", "ssl.truststore.location": str(store)})

"""Security settings of the Java client, read for Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.clients import security


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
        ({"security.protocol": "TLS"}, "is none of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "CRAM-MD5"}, "none of PLAIN"),
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


def test_a_store_in_javas_old_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    store = tmp_path / "x.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    with pytest.raises(ValueError, match="keytool -importkeystore"):
        security.security_of({"security.protocol": "SSL", "ssl.truststore.location": str(store)})

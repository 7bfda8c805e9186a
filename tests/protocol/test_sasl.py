"""The client's part of SASL: PLAIN, and SCRAM against a server by the book."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, cast

import pytest

from barnabas.common.jaas import kerberos_service
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.sasl import sasl_exchange
from barnabas.protocol.sasl_server import new_credentials, read_scram_first, scram


def test_plain() -> None:
    assert list(sasl_exchange("PLAIN", "u", "p", "").messages) == [b"\0u\0p"]
    with pytest.raises(
        ValueError, match=r"'GSSAPI' for a password\. Expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512$"
    ):
        sasl_exchange("GSSAPI", "u", "p", "")


@pytest.mark.parametrize(("mechanism", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_scram_against_a_server_by_the_book(mechanism: str, algorithm: str) -> None:
    salt, rounds = b"salt of the user", 4096
    messages = sasl_exchange(mechanism, "us=er,1", "secret", "n0nce").messages
    first = next(messages).decode()
    assert first.startswith("n,,n=us=3Der=2C1,r=")
    nonce = first.rpartition("r=")[2] + "server"
    challenge = f"r={nonce},s={base64.b64encode(salt).decode()},i={rounds}"
    final = messages.send(challenge.encode()).decode()
    without_proof, _, proof = final.rpartition(",p=")
    assert without_proof == f"c=biws,r={nonce}"
    salted = hashlib.pbkdf2_hmac(algorithm, b"secret", salt, rounds)
    signed = f"{first[3:]},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored = hashlib.new(algorithm, client_key).digest()
    signature = hmac.digest(stored, signed, algorithm)
    assert bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) == client_key
    verifier = base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm))
    with pytest.raises(StopIteration):
        messages.send(b"v=" + verifier)


def test_scram_does_not_trust_any_server() -> None:
    messages = sasl_exchange("SCRAM-SHA-256", "u", "p", "n0nce").messages
    next(messages)
    with pytest.raises(KafkaError, match="not acceptable"):
        messages.send(b"r=other,s=c2FsdA==,i=4096")
    messages = sasl_exchange("SCRAM-SHA-256", "u", "p", "n0nce").messages
    nonce = next(messages).decode().rpartition("r=")[2]
    messages.send(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    with pytest.raises(KafkaError, match="has not proved that it has the password"):
        messages.send(b"v=AAAA")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=n0nceX,s=c2FsdA==,i=4095",
        b"r=n0nceX,s=c2FsdA==,i=2000000000",
        b"r=n0nceX,s=c2FsdA==,i=many",
        b"r=n0nceX,s=c,i=4096",
        b"\xff\xfe",
    ],
)
def test_no_challenge_does_harm(challenge: bytes) -> None:
    """A broker that nobody has authenticated yet can neither break the client nor keep it busy."""
    messages = sasl_exchange("SCRAM-SHA-256", "u", "p", "n0nce").messages
    next(messages)
    with pytest.raises(KafkaError) as failed:
        messages.send(challenge)
    assert failed.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_kerberos_service_is_named_in_one_way() -> None:
    assert kerberos_service({}, None) is None
    assert kerberos_service({"serviceName": "kafka"}, None) == "kafka"
    assert kerberos_service({"serviceName": "kafka"}, "kafka") == kerberos_service({}, "kafka") == "kafka"
    with pytest.raises(ValueError, match="kafka: serviceName of the JAAS string is other"):
        kerberos_service({"serviceName": "other"}, "kafka")


@pytest.mark.parametrize(
    ("said", "is_let_in"),
    [
        ("minetheirs", True),
        ("mineminetheirs", True),
        ("mineminemineminetheirs", False),
        ("xminetheirs", False),
        ("minetheirsx", False),
        ("theirs", False),
        ("mine", False),
        ("", False),
    ],
)
def test_a_proof_is_of_the_nonce_that_was_given(said: str, *, is_let_in: bool) -> None:
    """librdkafka before 2.6.1 says its own once more."""
    first = read_scram_first(b"n,,n=anna,r=mine")
    credential = new_credentials("s3cret", b"salt" * 5)["SCRAM-SHA-256"]
    exchange = scram("SCRAM-SHA-256", first, credential, "theirs")
    challenge = next(exchange)
    salted = hashlib.pbkdf2_hmac("sha256", b"s3cret", credential.salt, credential.iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    final = f"c=biws,r={said}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), b",".join((first.bare.encode(), challenge, final)), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    with pytest.raises(StopIteration if is_let_in else KafkaError) as end:
        exchange.send(final + b",p=" + proof)
    assert not is_let_in or cast(Any, end.value).value.startswith(b"v=")

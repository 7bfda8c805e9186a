"""What `openssl s_client` gets a TLS listener to agree to, and what it does not."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.foreign_tools import require_tool

from barnabas.testing import Broker

pytestmark = pytest.mark.verify

ALLOW_ALL = ["-cipher", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]
"""Without this OpenSSL's client itself would not ask for what is old and weak."""
WEAK = ("aNULL", "eNULL", "EXPORT", "RC4", "DES", "3DES", "MD5", "PSK", "SRP")


@pytest.fixture(scope="module")
def listening() -> Iterator[Broker]:
    require_tool("openssl", "it asks for protocols and ciphers")
    with Broker(sasl={"anna": "secret"}, tls=True) as broker:
        yield broker


def talk(broker: Broker, *options: str, said: str = "Q\n") -> tuple[bool, str]:
    """Whether a handshake came about, and what openssl printed."""
    assert broker.ca_file is not None
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-CAfile", str(Path(broker.ca_file))]
    result = subprocess.run([*command, *options], input=said, capture_output=True, text=True, timeout=60, check=False)
    text = result.stdout + result.stderr
    return "Cipher is (NONE)" not in text and "Cipher is" in text, text


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_protocols_of_today_are_spoken(listening: Broker, version: str) -> None:
    agreed, text = talk(listening, f"-{version}", "-verify_return_error")
    assert agreed, text
    assert "Verify return code: 0 (ok)" in text
    assert "Compression: NONE" in text


@pytest.mark.parametrize("version", ["tls1", "tls1_1"])
def test_older_protocols_are_refused(listening: Broker, version: str) -> None:
    agreed, text = talk(listening, f"-{version}", *ALLOW_ALL)
    assert not agreed, text
    assert re.search(r"read 0 bytes and written [1-9]|protocol version", text), text  # it was asked for


def test_weak_ciphers_are_refused_and_secrets_of_sessions_are_forgotten(listening: Broker) -> None:
    """Each suite of 1.2 has a key exchange of its own for each connection, and authenticated encryption or SHA."""
    for family in WEAK:
        agreed, text = talk(listening, "-tls1_2", "-cipher", f"{family}:@SECLEVEL=0")
        assert not agreed, (family, text)
    agreed, text = talk(listening, "-tls1_2", "-cipher", "kRSA:@SECLEVEL=0")
    assert not agreed, text


def test_nothing_is_renegotiated(listening: Broker) -> None:
    """`R` asks for it; a broker that agreed would go on and have the client ask for versions."""
    agreed, text = talk(listening, "-tls1_2", said="R\nQ\n")
    assert agreed
    assert "RENEGOTIATING" in text
    assert "no renegotiation" in text or "unexpected eof" in text or ":error:" in text, text


def test_a_question_in_plain_words_ends_the_connection(listening: Broker) -> None:
    with socket.create_connection(("127.0.0.1", listening.port), timeout=30) as client:
        client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
        while client.recv(1000):
            continue

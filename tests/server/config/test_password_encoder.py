"""Passwords among dynamic settings: encrypted in the tree, in Kafka's format, through a change of the secret."""

from __future__ import annotations

import base64
import json
import logging
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.java import compile_java, jars, run_java
from tests.server.config.config_client import ConfigClient

from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import DynamicConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.config.password_encoder import (
    PasswordDecodeError,
    PasswordEncoder,
    StoredPasswords,
    is_encoded,
    is_password_config,
)
from barnabas.testing.broker import Broker

CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
JAAS = "listener.name.plaintext.scram-sha-256.sasl.jaas.config"
CLEAR = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="hunter2";'
PASSWORDS = ("hunter2", "x", "0123456789abcdef", "naïve 🔑 пароль", CLEAR, "k:v,a:b", "é" * 5000)
SET, DELETE, *_ = ConfigOperation


class InlineWork:
    """A lane that runs jobs where it is asked to."""

    async def run(self, lane: str, job: Callable[[], Any]) -> Any:
        return job()


PORTS: Any = SimpleNamespace(work=InlineWork(), token_bytes=os.urandom)


def encoder(secret: str = "secret", **how: Any) -> PasswordEncoder:
    return PasswordEncoder(secret, token_bytes=os.urandom, **how)


def passwords(**config: str) -> StoredPasswords:
    named = {f"password.encoder.{name.replace('_', '.')}": value for name, value in config.items()}
    return StoredPasswords(BrokerConfig(named), PORTS)


# -- the encoder -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cipher", [CBC, GCM])
@pytest.mark.parametrize("key_bits", [128, 192, 256])
def test_passwords_come_back_and_do_not_show(cipher: str, key_bits: int) -> None:
    coder = encoder(cipher=cipher, key_bits=key_bits, iterations=1024)
    for password in PASSWORDS:
        text = coder.encode(password)
        assert is_encoded(text)
        assert text != coder.encode(password), "the salt and the initialization vector are fresh"
        assert password not in text or password == "x"
        assert encoder().decode(text) == password, "the text names its algorithms"


def test_wrong_secrets_and_damaged_texts_are_refused_without_the_password() -> None:
    text = encoder().encode(CLEAR)
    damaged = [
        text.replace("iterations:4096", "iterations:2147483647"),
        text.replace("iterations:4096", "iterations:-1"),
        text.replace("keyLength:128", "keyLength:99999999"),
        text.replace(CBC, "DES/CBC/PKCS5Padding"),
        text.replace("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"),
        text.replace("salt:", "pepper:"),
        text.replace(f"passwordLength:{len(CLEAR)}", "passwordLength:7"),
        text.replace("encryptedPassword:", "encryptedPassword:!"),
        "keyLength:1",
        "",
    ]
    for bad in damaged:
        with pytest.raises(PasswordDecodeError) as error:
            encoder().decode(bad)
        assert "hunter2" not in str(error.value)
    for wrong in range(64):
        with pytest.raises(PasswordDecodeError):
            encoder(f"other {wrong}").decode(text)


@pytest.mark.parametrize("how", [{"cipher": "AES/ECB/PKCS5Padding"}, {"key_bits": 64}, {"key_factory": "PBKDF1"}])
def test_unsupported_encoders_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        encoder(**how)


@pytest.mark.parametrize(
    ("name", "is_password"),
    [
        (JAAS, True),
        ("listener.name.x.ssl.keystore.password", True),
        ("listener.name.x.ssl.keystore.key", True),
        ("listener.name.x.ssl.truststore.certificates", True),
        ("sasl.jaas.config", True),
        ("listener.name.x.ssl.keystore.location", False),
        ("log.retention.ms", False),
    ],
)
def test_settings_that_are_passwords(name: str, is_password: bool) -> None:
    assert is_password_config(name) == is_password


@pytest.mark.java
def test_kafka_reads_what_barnabas_encodes_and_barnabas_what_kafka_encodes() -> None:
    classpath = jars("org.apache.kafka:kafka_2.13:3.9.1")
    classes = compile_java(Path(__file__).parent / "password_oracle", classpath)
    cases = [(cipher, bits, password) for cipher in (CBC, GCM) for bits in (128, 256) for password in PASSWORDS]

    def line(verb: str, secret: str, cipher: str, bits: int, text: str) -> str:
        secret_64, text_64 = (base64.b64encode(one.encode()).decode() for one in (secret, text))
        return f"{verb} {secret_64} {cipher} {bits} 2048 {text_64}"

    ours = [encoder("geheim é", cipher=cipher, key_bits=bits, iterations=2048).encode(p) for cipher, bits, p in cases]
    lines = [
        line("decode", "geheim é", cipher, bits, text) for (cipher, bits, _), text in zip(cases, ours, strict=True)
    ]
    lines += [line("encode", "geheim é", *case) for case in cases]
    lines.append(line("decode", "wrong", CBC, 128, ours[-1]))
    result = run_java("CodePasswords", [classes, *classpath], [], stdin="\n".join(lines) + "\n", timeout=60)
    assert result.returncode == 0, result.stderr
    *answers, refused = result.stdout.splitlines()
    texts = [base64.b64decode(answer).decode() for answer in answers]
    assert texts[: len(cases)] == [password for _, _, password in cases]
    assert [encoder("geheim é").decode(text) for text in texts[len(cases) :]] == [password for _, _, password in cases]
    assert refused == "refused"


# -- stored settings ---------------------------------------------------------------------------------------------------


async def test_a_password_is_stored_encoded_and_unchanged_ones_keep_their_text() -> None:
    stored = await passwords(secret="s").to_persistent({JAAS: CLEAR, "log.retention.ms": "5"}, {})
    assert stored["log.retention.ms"] == "5"
    assert "hunter2" not in stored[JAAS]
    assert await passwords(secret="s").from_persistent(stored) == {JAAS: CLEAR, "log.retention.ms": "5"}
    again = await passwords(secret="s").to_persistent({JAAS: CLEAR, "log.retention.ms": "6"}, stored)
    assert again == {JAAS: stored[JAAS], "log.retention.ms": "6"}


async def test_a_password_is_refused_without_the_secret() -> None:
    for keeper in (passwords(), StoredPasswords(BrokerConfig({"password.encoder.secret": "s"}), None)):
        with pytest.raises(KafkaError, match="Password encoder secret not configured") as error:
            await keeper.to_persistent({JAAS: CLEAR}, {})
        assert error.value.code == ErrorCode.INVALID_REQUEST
    # What earlier versions stored in clear text does not stand in the way of other settings.
    stored = {JAAS: CLEAR}
    assert await passwords().to_persistent({JAAS: CLEAR, "a": "b"}, stored) == {JAAS: CLEAR, "a": "b"}


async def test_a_new_secret_replaces_the_old_one(caplog: pytest.LogCaptureFixture) -> None:
    old = await passwords(secret="old").to_persistent({JAAS: CLEAR}, {})
    renewed = await passwords(secret="new", old_secret="old").reencoded(old)
    assert renewed[JAAS] != old[JAAS]
    assert await passwords(secret="new").from_persistent(renewed) == {JAAS: CLEAR}
    assert await passwords(secret="new", old_secret="old").reencoded(renewed) == renewed, "nothing is left to do"
    assert await passwords(secret="new").from_persistent(old) == {}
    assert JAAS in caplog.text
    assert "hunter2" not in caplog.text
    with pytest.raises(ConfigError, match=r"requires password\.encoder\.secret"):
        passwords(old_secret="old")


async def test_clear_text_is_encoded_with_the_secret_and_reported_without(caplog: pytest.LogCaptureFixture) -> None:
    renewed = await passwords(secret="s").reencoded({JAAS: CLEAR, "a": "b"})
    assert renewed["a"] == "b"
    assert await passwords(secret="s").from_persistent(renewed) == {JAAS: CLEAR, "a": "b"}
    with caplog.at_level(logging.WARNING):
        assert await passwords().reencoded({JAAS: CLEAR}) == {JAAS: CLEAR}
    assert "clear text" in caplog.text
    assert "hunter2" not in caplog.text


async def test_without_cryptography_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = passwords(secret="s")
    stored = await keeper.to_persistent({JAAS: CLEAR}, {})
    for name in [name for name in sys.modules if name.startswith("cryptography.hazmat.primitives")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(KafkaError, match=r"barnabas\[tls\]"):
        await passwords(secret="s").to_persistent({JAAS: CLEAR}, {})
    assert await passwords(secret="s").from_persistent(stored) == {}


# -- a broker ----------------------------------------------------------------------------------------------------------


def tree_of(folder: Path) -> bytes:
    """Everything that the files of the metadata store hold."""
    return b"".join(path.read_bytes() for path in folder.glob("metadata.sqlite*"))


def stored_settings(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as connection:
        for row in connection.execute("SELECT * FROM nodes WHERE path = '/config/brokers/1'"):
            data = next(column for column in row if isinstance(column, bytes))
            return dict(json.loads(data)["config"])
    return {}


def test_a_password_is_nowhere_in_the_files_of_the_tree(tmp_path: Path) -> None:
    config = {"password.encoder.secret": "s", "acks.all.durability": "disk"}
    with (
        Broker(data_dir=tmp_path, config=config) as broker,
        closing(ConfigClient(broker.bootstrap)) as client,
    ):
        assert client.edit(ConfigResourceType.BROKER, "1", (JAAS, SET, CLEAR)) == (0, None)
        assert client.edit(ConfigResourceType.BROKER, "1", ("message.max.bytes", SET, "5000")) == (0, None)
        assert broker.server.config.free_value(JAAS) == CLEAR
    assert b"hunter2" not in tree_of(tmp_path)
    with Broker(data_dir=tmp_path, config=config) as broker:
        assert broker.server.config.free_value(JAAS) == CLEAR
    with (
        Broker(data_dir=tmp_path, config={**config, "password.encoder.secret": "wrong"}) as broker,
        closing(ConfigClient(broker.bootstrap)) as client,
    ):
        assert broker.server.config.free_value(JAAS) is None
        assert broker.server.config.message_max_bytes == 5000
        # A password that cannot be read outlives other changes.
        assert client.edit(ConfigResourceType.BROKER, "1", ("message.max.bytes", SET, "6000")) == (0, None)
    with (
        Broker(
            data_dir=tmp_path, config={**config, "password.encoder.secret": "t", "password.encoder.old.secret": "s"}
        ),
    ):
        pass
    with Broker(data_dir=tmp_path, config={**config, "password.encoder.secret": "t"}) as broker:
        assert broker.server.config.free_value(JAAS) == CLEAR
        assert broker.server.config.message_max_bytes == 6000


def test_a_broker_without_the_secret_refuses_passwords_and_clears_none(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path, config={"acks.all.durability": "disk"}) as broker,
        closing(ConfigClient(broker.bootstrap)) as client,
    ):
        code, message = client.edit(ConfigResourceType.BROKER, "1", (JAAS, SET, CLEAR))
        assert (code, message) == (ErrorCode.INVALID_REQUEST, message)
        assert message is not None
        assert message.startswith("Password encoder secret not configured")
        assert broker.server.config.free_value(JAAS) is None
    assert b"hunter2" not in tree_of(tmp_path)


def test_clear_text_of_an_earlier_version_is_encoded_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def as_given(self: StoredPasswords, settings: dict[str, str], stored: dict[str, str]) -> dict[str, str]:
        return dict(settings)

    config = {"acks.all.durability": "disk"}
    with (
        monkeypatch.context() as earlier,
        Broker(data_dir=tmp_path, config=config) as broker,
        closing(ConfigClient(broker.bootstrap)) as client,
    ):
        earlier.setattr(StoredPasswords, "to_persistent", as_given)
        assert client.edit(ConfigResourceType.BROKER, "1", (JAAS, SET, CLEAR)) == (0, None)
    assert stored_settings(tmp_path)[JAAS] == CLEAR
    with Broker(data_dir=tmp_path, config=config) as broker:
        assert broker.server.config.free_value(JAAS) == CLEAR, "an upgrade locks nobody out"
    with Broker(data_dir=tmp_path, config={**config, "password.encoder.secret": "s"}) as broker:
        assert broker.server.config.free_value(JAAS) == CLEAR
    assert encoder("s").decode(stored_settings(tmp_path)[JAAS]) == CLEAR


def test_an_unsupported_encoder_keeps_the_broker_from_starting() -> None:
    config = BrokerConfig(
        {"password.encoder.secret": "s3cret", "password.encoder.cipher.algorithm": "DES/CBC/PKCS5Padding"}
    )
    with pytest.raises(ConfigError, match="DES/CBC/PKCS5Padding is not supported") as error:
        DynamicConfig(config, PORTS)
    assert "s3cret" not in str(error.value)

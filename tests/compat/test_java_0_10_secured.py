"""Java's clients of 0.10.2, whose SASL messages have no headers: by certificates and the passwords of their time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.secured_world import MODULE, PASSWORD, SCRAM, SecuredWorld
from tests.compat.test_java import PROGRAMS
from tests.foreign_tools import run_checked
from tests.java import compile_java, jars, run_java

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(240)]

JARS = ("org.apache.kafka:kafka-clients:0.10.2.2", "javax.xml.bind:jaxb-api:2.3.1")
"""Its SCRAM reads base64 by what was part of Java until 11."""
MODULES = {"PLAIN": "plain.PlainLoginModule", **dict.fromkeys(SCRAM, "scram.ScramLoginModule")}


class Client:
    """Its program, and a trust store of the only kind that it reads."""

    def __init__(self, world: SecuredWorld, folder: Path) -> None:
        self._world = world
        self._folder = folder
        classpath = jars(*JARS)
        self._classpath = [compile_java(PROGRAMS / "secured_0_10", classpath), *classpath]
        self._trust = folder / "trust.jks"
        command = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(world.ca)]
        run_checked([*command, "-keystore", str(self._trust), "-storetype", "JKS", "-storepass", PASSWORD])

    def outcomes(self, attempts: dict[str, dict[str, str]]) -> dict[str, str]:
        """By the name of the attempt."""
        files = []
        for number, (name, settings) in enumerate(attempts.items()):
            is_right = name.endswith("right")
            common = {
                "topic": "t",
                "ssl.truststore.location": str(self._trust),
                "ssl.truststore.password": PASSWORD,
                # It does not hear that it is refused, and goes on trying.
                "max.block.ms": "60000" if is_right else "5000",
            }
            files.append(self._folder / f"{number}.properties")
            files[-1].write_text("".join(f"{key}={value}\n" for key, value in {**common, **settings}.items()))
        result = run_java("Secured010", self._classpath, [str(file) for file in files], timeout=180)
        assert result.returncode == 0, result.stdout + result.stderr
        return dict(zip(attempts, result.stdout.split(), strict=True))

    def by_password(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        """Settings of an attempt."""
        login = f'{MODULE.format(MODULES[mechanism])} username="{user}" password="{password}";'
        return {
            "bootstrap.servers": self._world.address("SASL"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": login,
        }

    def by_certificate(self, name: str) -> dict[str, str]:
        """The same."""
        return {
            "bootstrap.servers": self._world.address("MUTUAL"),
            "security.protocol": "SSL",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self._world.folder / f"{name}.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        }


def test_0_10_is_let_in_by_what_is_right_and_by_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "client").mkdir()
    world = SecuredWorld(tmp_path / "world")
    with world.serving() as broker:
        client = Client(world, tmp_path / "client")
        attempts = {}
        for mechanism in MODULES:
            attempts[f"{mechanism} right"] = client.by_password(mechanism, "anna", PASSWORD)
            attempts[f"{mechanism} wrong"] = client.by_password(mechanism, "anna", "wrong")
            attempts[f"{mechanism} unknown"] = client.by_password(mechanism, "nobody", PASSWORD)
            attempts[f"{mechanism} eve"] = client.by_password(mechanism, "eve", PASSWORD)
        attempts["certificate right"] = client.by_certificate("anna")
        for name in ("forged", "expired", "eve"):
            attempts[f"certificate {name}"] = client.by_certificate(name)
        found = client.outcomes(attempts)
        for name, outcome in found.items():
            if name.endswith("right"):
                assert outcome == "written", name
            elif name.endswith("eve"):
                assert outcome in ("TopicAuthorizationException", "TimeoutException"), name
            else:
                assert outcome == "TimeoutException", name
        assert len(broker.records("t")) == len(MODULES) + 1
        world.revoke()
        taken_back = {f"{one} revoked": client.by_password(one, "anna", PASSWORD) for one in MODULES}
        assert set(client.outcomes(taken_back).values()) == {"TimeoutException"}
        assert len(broker.records("t")) == len(MODULES) + 1

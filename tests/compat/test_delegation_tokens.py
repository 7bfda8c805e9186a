"""Kafka's script makes, shows, renews and ends delegation tokens, and Java's clients come in by one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.kafka import KafkaTools

from barnabas.testing import Broker

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]
PASSWORDS = {"anna": "a", "ben": "b"}
CONFIG = {
    "delegation.token.secret.key": "the key of all brokers",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:anna",
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def properties(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_from_its_making_to_its_end(tmp_path: Path, mechanism: str) -> None:
    tools = KafkaTools()
    with Broker({"t": 1}, sasl=PASSWORDS, config=CONFIG) as broker:
        by_password = properties(tmp_path / "anna.properties", broker.client_settings("anna"))

        def script(*arguments: str) -> str:
            where = ("--bootstrap-server", broker.bootstrap, "--command-config", by_password)
            return tools.output("kafka-delegation-tokens", *where, *arguments)

        made = script("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:ben")
        row = next(line for line in made.splitlines() if "User:anna" in line)
        token_id, secret, owner, *_ = row.split()
        assert owner == "User:anna" and "User:ben" in row
        assert token_id in script("--describe", "--owner-principal", "User:anna")
        jaas = f'{SCRAM} username="{token_id}" password="{secret}" tokenauth="true";'
        shown = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        by_token = properties(tmp_path / "token.properties", shown)
        where = ("--bootstrap-server", broker.bootstrap, "--command-config", by_token)
        assert tools.output("kafka-topics", *where, "--list") == "t\n"
        refused = tools.run("kafka-delegation-tokens", *where, "--describe")
        assert "not allowed" in refused.stdout + refused.stderr
        assert re.search(r"expiry date", script("--renew", "--renew-time-period", "-1", "--hmac", secret))
        script("--expire", "--expiry-time-period", "-1", "--hmac", secret)
        assert token_id not in script("--describe")
        gone = tools.run("kafka-topics", *where, "--list")
        assert gone.returncode and "invalid credentials" in gone.stdout + gone.stderr

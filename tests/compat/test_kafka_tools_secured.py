"""Kafka's own tools where passwords, certificates and rights are asked for: kafka-acls, kafka-configs, producers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.tool_session import ToolSession, scratch_file
from tests.java import require_java

from barnabas.testing import Broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.mark.parametrize("version", ["4.4.0", pytest.param("3.9.1", marks=pytest.mark.verify)])
@pytest.mark.parametrize(
    "mechanism",
    ["SCRAM-SHA-512", *(pytest.param(name, marks=pytest.mark.verify) for name in ("SCRAM-SHA-256", "PLAIN"))],
)
def test_an_operator_with_kafkas_tools(version: str, mechanism: str, tmp_path: Path) -> None:
    require_java()
    with Broker({"t": 1}, sasl={"admin": "adm1n"}, tls=True, config=CONFIG) as broker, ToolSession(version) as tools:

        def settings(user: str, password: str) -> str:
            found = broker.client_settings("admin", "SCRAM-SHA-512" if user != "admin" else mechanism)
            text = "".join(f"{key}={value}\n" for key, value in found.items())
            return scratch_file(tmp_path, text.replace('"admin"', f'"{user}"').replace('"adm1n"', f'"{password}"'))

        at = ("--bootstrap-server", broker.bootstrap, "--command-config")
        admin = settings("admin", "adm1n")
        entity = ("--entity-type", "users", "--entity-name", "carl")
        password = "SCRAM-SHA-512=[iterations=8192,password=c4rl]"
        tools.output("kafka-configs", *at, admin, "--alter", *entity, "--add-config", password)
        described = tools.output("kafka-configs", *at, admin, "--describe", *entity)
        assert "SCRAM-SHA-512=iterations=8192" in described
        carl = settings("carl", "c4rl")
        assert "t" not in tools.output("kafka-topics", *at, carl, "--list").split()
        rule = ("--allow-principal", "User:carl", "--operation", "All", "--topic", "t")
        tools.output("kafka-acls", *at, admin, "--add", *rule)
        listed = tools.output("kafka-acls", *at, admin, "--list", "--topic", "t")
        assert "principal=User:carl, host=*, operation=ALL, permissionType=ALLOW" in listed
        assert "t" in tools.output("kafka-topics", *at, carl, "--list").split()
        deny = ("--deny-principal", "User:carl", "--operation", "Describe", "--topic", "t")
        tools.output("kafka-acls", *at, admin, "--add", *deny, "--resource-pattern-type", "prefixed")
        assert "t" not in tools.output("kafka-topics", *at, carl, "--list").split()
        tools.output("kafka-acls", *at, admin, "--remove", "--force", *deny, "--resource-pattern-type", "prefixed")
        assert "t" in tools.output("kafka-topics", *at, carl, "--list").split()
        status, text = tools.run("kafka-acls", *at, carl, "--list")
        assert "ClusterAuthorizationException" in text or status != 0, text
        status, text = tools.run("kafka-topics", *at, settings("carl", "wrong"), "--list")
        assert status != 0 and "SaslAuthenticationException" in text, text
        tools.output("kafka-configs", *at, admin, "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
        status, text = tools.run("kafka-topics", *at, carl, "--list")
        assert status != 0 and "SaslAuthenticationException" in text, text

"""What aiokafka's tests start Kafka's image with, the package `docker`: here it starts Barnabas. A plugin of pytest.

The image has a KDC, Kafka's scripts, and a listener for each of four security protocols. BARNABAS_SUITE_BROKERS says
how many brokers there are: with three, the one that the tests ask for is the first of a cluster.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.barnabas_server import cli_command
from tests.compat.suites.brokers import SuiteBrokers
from tests.foreign_tools import run_checked
from tests.kdc import Kdc, require_kerberos
from tests.server_process import free_port, wait_until

PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin" user_admin="admin" user_test="test" user_test2="test2";'
)
KERBEROS_LOGIN = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="{keytab}" principal="kafka/localhost@AIOLIBS";'
)
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "ssl.client.auth": "required",
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.password": "abcdefgh",
    "ssl.truststore.type": "PKCS12",
    "ssl.truststore.password": "abcdefgh",
}
KAFKA_ACLS = {"--allow-principal": ["--principal"], "--deny-principal": ["--deny", "--principal"]}
"""Options of the script that have another name in `barnabas acl`."""
EVERY_RULE = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


class ContainerOfScripts:
    """The tests make their certificates in it, by their own script."""

    def exec_run(self, _command: Sequence[str], user: str) -> tuple[int, bytes]:
        """Status and output, as docker gives them."""
        script = Path("gen-ssl-certs.sh").resolve()
        done = subprocess.run(["bash", str(script)], cwd="tests/ssl_cert", capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def stop(self) -> None:
        """Nothing of it is left running."""


class ContainerOfBrokers:
    """Brokers and a KDC from when it is made until it is stopped."""

    def __init__(self, environment: Mapping[str, Any], certificates: Path) -> None:
        require_kerberos()
        ports = {
            "PLAINTEXT": environment["ADVERTISED_PORT"],
            "SSL": environment["ADVERTISED_SSL_PORT"],
            "SASL_PLAINTEXT": environment["ADVERTISED_SASL_PLAINTEXT_PORT"],
            "SASL_SSL": environment["ADVERTISED_SASL_SSL_PORT"],
        }
        more = int(os.environ["BARNABAS_SUITE_BROKERS"]) - 1
        listeners = [ports, *({name: free_port() for name in ports} for _ in range(more))]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            kdc = stack.enter_context(Kdc(folder, "AIOLIBS"))
            kdc.administer("addprinc -pw aiokafka client/localhost")
            Path("docker/scripts/krb5.conf").write_text(kdc.config.read_text())
            properties = {
                **SETTINGS,
                "num.partitions": str(environment["NUM_PARTITIONS"]),
                "ssl.keystore.location": str(certificates / "br_server.keystore.jks"),
                "ssl.truststore.location": str(certificates / "br_server.truststore.jks"),
            }
            logins = {"plain": PLAIN_LOGIN, "gssapi": KERBEROS_LOGIN.format(keytab=kdc.keytab("kafka/localhost"))}
            for listener in ("sasl_plaintext", "sasl_ssl"):
                for mechanism, login in logins.items():
                    properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = login
            self._brokers = stack.enter_context(SuiteBrokers(folder, listeners, properties))
            self._admins = [AdminClient({"bootstrap.servers": one.bootstrap}) for one in self._brokers.brokers]
            self._stack = stack.pop_all()

    def exec_run(self, command: str) -> tuple[int, bytes]:
        """What `kafka-acls.sh` and `kafka-configs.sh` are asked for: status 0, and no output that anybody reads."""
        program, *words = shlex.split(command)
        if program.endswith("kafka-acls.sh"):
            self._change_rules(words)
        else:
            name = words[words.index("--entity-name") + 1]
            passwords = dict(re.findall(r"(SCRAM-SHA-\d+)=\[password=(.*?)\]", words[words.index("--add-config") + 1]))
            self._brokers.add_scram_user(name, passwords)
        return 0, b""

    def _change_rules(self, words: Sequence[str]) -> None:
        """The options begin with --force and the authorizer's; what changes is known to every broker afterwards."""
        _, _, _, action, *options = words
        translated = [word for option in options for word in KAFKA_ACLS.get(option, [option])]
        if action == "--remove":
            translated = [word for word in translated if word != "--deny"]
        barnabas = cli_command("acl", action.removeprefix("--"), *translated)
        run_checked([*barnabas, "--bootstrap-server", self._brokers.bootstrap])
        wait_until(lambda: len(set(map(_rules, self._admins))) == 1, timeout_s=60, what="the rules are everywhere")

    def stop(self) -> None:
        """Ends all of it."""
        self._stack.close()


def _rules(admin: AdminClient) -> frozenset[str]:
    return frozenset(map(str, admin.describe_acls(EVERY_RULE).result(60)))


def _run(
    *, volumes: Mapping[str, Mapping[str, str]], environment: Mapping[str, Any] | None = None, **_others: Any
) -> ContainerOfScripts | ContainerOfBrokers:
    return ContainerOfBrokers(environment, Path(next(iter(volumes)))) if environment else ContainerOfScripts()


def from_env() -> SimpleNamespace:
    """As docker's: a client that can run a container."""
    return SimpleNamespace(containers=SimpleNamespace(run=_run), close=lambda: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only what needs a broker is of interest."""
    wanted = [item for item in items if {"kafka_image", "setup_test_class"} & {*getattr(item, "fixturenames", ())}]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


models = SimpleNamespace(containers=SimpleNamespace(Container=ContainerOfBrokers))
sys.modules["docker"] = sys.modules[__name__]

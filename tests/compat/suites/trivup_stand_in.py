"""What confluent-kafka's tests start Kafka with, the package `trivup`: here it starts Barnabas. A plugin of pytest.

BARNABAS_SUITE_BROKERS says how many brokers there are.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.compat.suites.brokers import SuiteBrokers
from tests.server_process import free_port

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
LEFT_OUT = ("share.", "group.share.", "offsets.topic.", "transaction.state.log.")
"""Settings of share groups, and how many replicas internal topics have: that goes by the number of brokers."""


class KafkaCluster:
    """Brokers from when it is made until it is stopped, with SASL/PLAIN where the tests name users."""

    def __init__(self, *, broker_conf: list[str], sasl_mechanism: str = "", sasl_users: str = "", **_others: Any):
        protocol = "SASL_PLAINTEXT" if sasl_mechanism else "PLAINTEXT"
        wanted = dict(line.split("=", 1) for line in broker_conf if not line.startswith(LEFT_OUT))
        properties = {**SETTINGS, **wanted}
        listeners = [{protocol: free_port()} for _ in range(int(os.environ["BARNABAS_SUITE_BROKERS"]))]
        addresses = ",".join(f"127.0.0.1:{ports[protocol]}" for ports in listeners)
        self._client = {"bootstrap.servers": addresses, "broker.address.family": "v4", "security.protocol": protocol}
        if sasl_mechanism:
            users = dict(user.split("=") for user in sasl_users.split(","))
            options = " ".join(f'user_{name}="{password}"' for name, password in users.items())
            login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"
            properties["sasl.enabled.mechanisms"] = sasl_mechanism
            properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = login
            name, password = next(iter(users.items()))
            self._client |= {"sasl.mechanisms": sasl_mechanism, "sasl.username": name, "sasl.password": password}
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            stack.enter_context(SuiteBrokers(folder, listeners, properties, first_id=1))
            self._stack = stack.pop_all()

    def wait_operational(self) -> None:
        """The brokers have served since this was made."""

    def client_conf(self) -> dict[str, str]:
        """What a client needs to reach it."""
        return dict(self._client)

    def stop(self, **_others: Any) -> None:
        """The brokers are killed."""
        self._stack.close()


sys.modules["trivup.clusters.KafkaCluster"] = sys.modules[__name__]

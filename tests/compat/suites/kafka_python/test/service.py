"""What kafka-python's fixtures start brokers with, which their sdist leaves out: here it starts Barnabas.

BARNABAS_SUITE_BROKERS says how many: with three, the one the fixture asked for is the first of a cluster.
"""

import os
import re
from pathlib import Path

from tests.compat.suites.brokers import SuiteBrokers
from tests.server_process import free_port

JAAS_FILE = re.compile(r"-Djava.security.auth.login.config=(\S+)")
LOGIN = re.compile(r'username="([^"]*)" password="([^"]*)"')


class ExternalService:
    """A broker that runs already: no test is given one here."""


class SpawnedService:
    """The program of `args`, Kafka with a file of properties at the end."""

    def __init__(self, args, env):
        path = Path(args[-1])
        lines = [line.partition("=") for line in path.read_text().splitlines() if line]
        properties = {name: value for name, _, value in lines}
        protocol, port = re.fullmatch(r"(\w+)://localhost:(\d+)", properties.pop("listeners")).groups()
        properties.pop("sasl.mechanism.inter.broker.protocol", None)
        self._mechanism = properties.get("sasl.enabled.mechanisms", "")
        self._login = None
        jaas = JAAS_FILE.search(env.get("KAFKA_OPTS", ""))
        if jaas is not None:
            text = Path(jaas[1]).read_text().strip()
            properties[f"listener.name.{protocol.lower()}.{self._mechanism.lower()}.sasl.jaas.config"] = text
            self._login = LOGIN.search(text).groups()
        count = int(os.environ["BARNABAS_SUITE_BROKERS"])
        listeners = [{protocol: int(port) if index == 0 else free_port()} for index in range(count)]
        first_id = int(properties.pop("broker.id"))
        self._brokers = SuiteBrokers(path.parent, listeners, properties, first_id=first_id)

    def start(self):
        """Returns once the brokers serve and know the user."""
        self._brokers.__enter__()
        if self._login is not None and self._mechanism != "PLAIN":
            name, password = self._login
            self._brokers.add_scram_user(name, {self._mechanism: password})

    def wait_for(self, _pattern, timeout):
        """`start` has waited; nothing is looked for in the log."""
        return True

    def stop(self):
        """All brokers are killed."""
        self._brokers.__exit__(None, None, None)

    def dump_logs(self):
        """Pytest shows them where a test fails."""
        for broker in self._brokers.brokers:
            print(broker.log_tail())

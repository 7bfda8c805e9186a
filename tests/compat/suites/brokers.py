"""Brokers for other projects' own tests: one, or three around a coordinator, with the listeners that they want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.barnabas_server import BarnabasServer, cli_command
from tests.server_process import ServerProcess, free_port

OWN = "OWN"
"""The plain listener that every broker has besides, for the others and for whoever prepares the tests."""
ROUNDS = 4096


class SuiteBrokers:
    """Processes while it is entered. `listeners` has the port of each listener by its name, for each broker.

    With more than one, internal topics and those made on demand have three replicas.
    """

    def __init__(
        self,
        folder: Path,
        listeners: Sequence[Mapping[str, int]],
        properties: Mapping[str, str],
        *,
        first_id: int = 0,
    ) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._coordinator = free_port()
        replicas = str(min(3, len(listeners)))
        names = {"default.replication.factor", "offsets.topic.replication.factor"}
        names.add("transaction.state.log.replication.factor")
        shared = {**dict.fromkeys(names, replicas), **properties, "inter.broker.listener.name": OWN}
        if len(listeners) > 1:
            shared["zookeeper.connect"] = f"127.0.0.1:{self._coordinator}"
        self.brokers = [self._broker(first_id + index, ports, shared) for index, ports in enumerate(listeners)]

    def _broker(self, broker_id: int, ports: Mapping[str, int], shared: Mapping[str, str]) -> BarnabasServer:
        own = free_port()
        addresses = ",".join(f"{name}://localhost:{port}" for name, port in {**ports, OWN: own}.items())
        protocols = ",".join(f"{name}:{name}" for name in ports)
        properties = {
            **shared,
            "broker.id": str(broker_id),
            "listeners": addresses,
            "advertised.listeners": addresses,
            "listener.security.protocol.map": f"{protocols},{OWN}:PLAINTEXT",
        }
        return BarnabasServer(self._folder / f"broker-{broker_id}", properties=properties, port=own)

    @property
    def bootstrap(self) -> str:
        """The plain listeners for whoever prepares the tests."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if len(self.brokers) > 1:
                stack.callback(self._start_coordinator().end)
            for broker in self.brokers:
                stack.callback(broker.kill)
                broker.launch()
            for broker in self.brokers:
                broker.wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_coordinator(self) -> ServerProcess:
        self._folder.mkdir(parents=True, exist_ok=True)
        address = ["--data", str(self._folder / "tree"), "--listen", f"127.0.0.1:{self._coordinator}"]
        process = ServerProcess(cli_command("coordinator", *address), self._folder / "coordinator.log")
        process.wait_ready(lambda: "ready" in process.log_tail(), timeout_s=60, what="the coordinator serves")
        return process

    def add_scram_user(self, name: str, passwords: Mapping[str, str]) -> None:
        """A user's password for each of the mechanisms."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for mechanism, password in passwords.items():
            info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], ROUNDS)
            changes = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, password.encode())])
            changes[name].result(60)

"""The companions of a container's broker: Kafka's log lines, the console and the schema registry."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from datetime import datetime
from typing import Any

STOP_S = 10.0
KAFKA_LINES = (
    "[BrokerLifecycleManager id={id}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING. "
    "(kafka.server.BrokerLifecycleManager)",
    "[KafkaRaftServer nodeId={id}] Kafka Server started (kafka.server.KafkaRaftServer)",
    "[KafkaServer id={id}] started (kafka.server.KafkaServer)",
)
"""Lines of Kafka's log that test libraries and scripts wait for."""


class ContainerServices:
    """The broker's companion in a container. It owns the processes of the console and of the registry."""

    def __init__(self, console: str | None, schema_registry: str | None, *, prints_kafka_lines: bool) -> None:
        self._prints_kafka_lines = prints_kafka_lines
        self._commands = {
            "console": None if console is None else ["console", "--listen", console],
            "schema-registry": None if schema_registry is None else ["schema-registry", "--listen", schema_registry],
        }
        self._processes: list[asyncio.subprocess.Process] = []

    @property
    def has_work(self) -> bool:
        """Whether there are processes to run or lines to print."""
        return self._prints_kafka_lines or any(self._commands.values())

    async def start(self, server: Any) -> str:
        """Start the processes once the broker serves clients; return Kafka's lines. Raises OSError."""
        commands = [words for words in self._commands.values() if words is not None]
        if commands:
            await self._run(commands, own_address(server.listeners))
        if not self._prints_kafka_lines:
            return "\n".join(f"{name} {words[2]}" for name, words in self._commands.items() if words is not None)
        time = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        return "\n".join(f"[{time}] INFO {line.format(id=server.state.broker_id)}" for line in KAFKA_LINES)

    async def _run(self, commands: list[list[str]], address: str) -> None:
        from ..session import BOOTSTRAP_VARIABLE  # loads typer, which a broker alone does not need

        for command in commands:
            if not command[-1].startswith(("127.", "localhost:", "[::1]")):
                command.append("--allow-remote")
            words = [sys.executable, "-m", "barnabas.tools.cli", *command]
            environment = {**os.environ, BOOTSTRAP_VARIABLE: address}
            # A process, because both run their own loop and the broker's should not wait for them.
            self._processes.append(await asyncio.create_subprocess_exec(*words, env=environment))

    async def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), STOP_S)
            except TimeoutError:
                process.kill()
                await process.wait()


def own_address(listeners: Any) -> str:
    """Return the address at which a client in this container reaches the broker.

    A listener for clients on the host may advertise a port that exists only there.
    """
    names = {"localhost", "127.0.0.1", socket.gethostname()}
    for one in listeners:
        if one.advertised_host in names and one.advertised_port == one.port:
            return f"{one.advertised_host}:{one.port}"
    return f"{listeners[-1].advertised_host}:{listeners[-1].advertised_port}"

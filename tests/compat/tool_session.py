"""Kafka's command-line tools run one after the other in one JVM: a second for the first, little for the next."""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.compat.test_java import PROGRAMS
from tests.java import JVM_FLAGS, compile_for_kafka, java_command
from tests.kafka import NEWEST, kafka_jars, logging_flags, tool_class


class ToolSession:
    """Runs tools by the names of their scripts, like `tests.kafka.KafkaTools`, which starts a JVM for each."""

    def __init__(self, version: str = NEWEST) -> None:
        self.version = version
        classpath = kafka_jars(version)
        flags = [*JVM_FLAGS, *logging_flags(version, "error")]
        classes = compile_for_kafka(PROGRAMS / "tools", classpath, version)
        command = java_command("Tools", [classes, *classpath], [], flags)
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, tool: str, *args: str) -> tuple[int, str]:
        """Exit status and everything that `tool` printed."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\t".join([tool_class(tool, self.version), *args]) + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith("\x01"):
                return int(line[1:]), "".join(lines).strip()
            lines.append(line)
        raise AssertionError(f"the tools ended: {''.join(lines)}")

    def output(self, tool: str, *args: str) -> str:
        """What `tool` printed; a failure raises with it."""
        status, text = self.run(tool, *args)
        if status != 0:
            raise AssertionError(f"{' '.join([tool, *args])} exited {status}:\n{text}")
        return text


def scratch_file(folder: Path, text: str) -> str:
    """The path of a new file with this text."""
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(text)
    return file.name

"""Apache Kafka's cleaner, run from its jars on partition folders, with a clock that the test sets.

with KafkaCleaner("4.1.1") as kafka:
    kafka.clean(folder, high_watermark=100, now_ms=..., topic={"delete.retention.ms": "1000"})["next_dirty_offset"]
"""

import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.java import JVM_FLAGS, compile_java, java_command, require_java
from tests.kafka import CLEANER_REFERENCE, kafka_jars, logging_flags

PROGRAMS = Path(__file__).parent / "java"
ANSWER_WITHIN_S = 60.0


class KafkaCleaner:
    """A Java process that cleans folders on request, with `Cleaner` of Kafka 4.1.1 or 3.9.1."""

    def __init__(self, version: str = CLEANER_REFERENCE) -> None:
        require_java()
        major, minor = version.split(".")[:2]
        classpath = kafka_jars(version)
        with tempfile.TemporaryDirectory() as scratch:
            sources = Path(scratch) / f"oracle-{version}"
            for part in ("shared", f"kafka_{major}_{minor}"):
                shutil.copytree(PROGRAMS / part, sources, dirs_exist_ok=True)
            classes = compile_java(sources, classpath)
        flags = [*JVM_FLAGS, *logging_flags(version, "off")]
        self._command = java_command(f"Oracle{major}{minor}", [classes, *classpath], [], flags)
        self._segment_bytes = "internal.segment.bytes" if version.startswith("4.") else "segment.bytes"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def clean(
        self,
        folder: Path | str,
        *,
        high_watermark: int,
        now_ms: int,
        topic: Mapping[str, str],
        first_dirty_offset: int = -1,
        memory: int = 1 << 20,
        io_buffer: int = 1 << 16,
        io_buffer_max: int = 1 << 21,
    ) -> dict[str, int]:
        """Open the partition in `folder`, let Kafka choose the cleanable range, and clean the range once.

        `first_dirty_offset` is the cleaner's checkpoint, -1 for none. Returns the range and the figures of the pass.
        """
        settings = {"cleanup.policy": "compact", **topic}
        if "segment.bytes" in settings:
            settings[self._segment_bytes] = settings.pop("segment.bytes")
        asked: dict[str, Any] = {
            "folder": folder,
            "high_watermark": high_watermark,
            "now_ms": now_ms,
            "first_dirty_offset": first_dirty_offset,
            "memory": memory,
            "io_buffer": io_buffer,
            "io_buffer_max": io_buffer_max,
            **{f"topic:{name}": value for name, value in settings.items()},
        }
        status, *fields = self._ask("\t".join(f"{name}={value}" for name, value in asked.items())).split("\t")
        if status != "ok":
            raise AssertionError(f"Apache Kafka's cleaner: {fields}")
        return {name: int(value) for name, value in (field.split("=") for field in fields)}

    def _ask(self, line: str) -> str:
        """Send a line to the process and return its response line. Other output of the JVM is part of the error."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        other: list[str] = []
        for answer in self._lines():
            if answer.startswith("ok\t"):
                return answer
            other.append(answer)
            if answer.startswith("error\t"):
                return "\n".join([answer, *other[:-1]])
        raise AssertionError("Apache Kafka's cleaner did not respond:\n" + "\n".join(other))

    def _lines(self) -> Iterator[str]:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_WITHIN_S
        pending = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not ready.select(1.0):
                    continue
                got = self._process.stdout.read(1 << 16)
                if not got:
                    break
                *whole, pending = (pending + got).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)

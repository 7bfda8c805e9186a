"""An Apache Kafka release on this machine: its jars, and the Java that runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .local_process import LocalClusterError

OLDEST, NEWEST = (4, 0), (4, 4)
"""The oldest release whose controllers a Barnabas broker can follow, and the newest release whose features it has."""
OLDEST_JAVA = 17
JAVA_SECONDS = 60
SERVER, STORAGE_TOOL = "kafka.Kafka", "kafka.tools.StorageTool"
JVM_FLAGS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""A controller of a few brokers is small, and starts in half the time without the optimizing compiler."""
_KAFKA_JAR = re.compile(r"kafka_2\.\d+-(\d+)\.(\d+)\.(\S+)\.jar")


class KafkaHome:
    """The directory of a release, as in `KAFKA_HOME`: its jars are in `libs`."""

    def __init__(self, folder: Path, java: str, version: tuple[int, int]) -> None:
        """Use `find` instead, which checks them."""
        self.folder = folder
        self.java = java
        self.version = version

    @classmethod
    def find(cls, folder: Path | None, environment: Mapping[str, str] = os.environ) -> KafkaHome:
        """Return the release in a directory, by default in `KAFKA_HOME`. Raises LocalClusterError."""
        if folder is None:
            if not environment.get("KAFKA_HOME"):
                raise LocalClusterError(
                    "controllers of Apache Kafka require its jars: set --kafka-home or KAFKA_HOME to the directory "
                    "of an Apache Kafka release"
                )
            folder = Path(environment["KAFKA_HOME"])
        names = [path.name for path in (folder / "libs").glob("kafka_2.*.jar")]
        matches = [found for name in names if (found := _KAFKA_JAR.fullmatch(name)) is not None]
        # A release also has jars such as kafka_2.13-4.4.0-sources.jar.
        versions = {(int(found[1]), int(found[2])) for found in matches}
        if not versions:
            raise LocalClusterError(
                f"{folder}: no Apache Kafka release (no libs/kafka_2.13-VERSION.jar). "
                "Set --kafka-home to the directory of a release"
            )
        version = max(versions)
        if version < OLDEST:
            raise LocalClusterError(
                f"{folder}: Apache Kafka {version[0]}.{version[1]} is too old. "
                f"Controllers require release {OLDEST[0]}.{OLDEST[1]} or later"
            )
        return cls(folder.resolve(), _find_java(environment), version)

    def command(self, main: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """Return the command line that runs a class of Kafka."""
        return [self.java, *JVM_FLAGS, *flags, "-cp", str(self.folder / "libs" / "*"), main, *arguments]


def _find_java(environment: Mapping[str, str]) -> str:
    """Return the Java of JAVA_HOME, or of PATH. Raises LocalClusterError."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    what = f"Install Java {OLDEST_JAVA} or later, or use --controllers builtin"
    if java is None:
        raise LocalClusterError(f"java: not found in PATH, and JAVA_HOME is not set. {what}")
    try:
        printed = subprocess.run(  # noqa: S603 - the user's Java
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=JAVA_SECONDS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalClusterError(f"{java}: cannot be run ({error}). {what}") from None
    # Before Java 9 the version began with "1.".
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    if found is None:
        raise LocalClusterError(f"{java}: `java -version` printed no version. {what}")
    if int(found[1]) < OLDEST_JAVA:
        raise LocalClusterError(f"{java}: Java {found[1]} is too old. {what}")
    return java

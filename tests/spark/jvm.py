"""PySpark 4.0 beside the one that is installed, and the jars of Spark's own Kafka connector for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.foreign_tools import CHECKOUT, cache_dir, cache_entry, digest, run_checked
from tests.java import jars

PYSPARK = "pyspark==4.0.0"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
_NEEDED = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
"""The rest of what Maven resolves is part of Spark or not needed at run time."""


def pyspark_4_0() -> Path:
    """A folder to put on the Python path, fetched once."""
    with cache_entry(cache_dir("python"), f"pyspark-4.0.0-{digest(PYSPARK, sys.version)}") as (entry, scratch):
        if scratch is not None:
            install = ["install", "--quiet", "--disable-pip-version-check", "--target", str(scratch)]
            run_checked([sys.executable, "-m", "pip", *install, PYSPARK])
    return entry


def connector_jars() -> list[Path]:
    """The connector and the three jars that it needs beside Spark."""
    found = [path for path in jars(CONNECTOR) if path.name.startswith(_NEEDED)]
    assert len(found) == len(_NEEDED), [path.name for path in found]
    return found


def with_pyspark_4_0(module: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command `python -m module` and the environment in which it uses that PySpark."""
    paths = [str(pyspark_4_0()), str(CHECKOUT / ".src"), str(CHECKOUT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    env.pop("SPARK_HOME", None)
    return [sys.executable, "-m", module, *arguments], env


def run_with_pyspark_4_0(module: str, arguments: Sequence[str], *, timeout_s: float) -> str:
    """What `python -m module` prints on stdout under that PySpark; a failure shows the end of its stderr."""
    command, env = with_pyspark_4_0(module, arguments)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout

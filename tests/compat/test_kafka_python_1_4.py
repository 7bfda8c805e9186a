"""kafka-python 1.4.7, a release that speaks the old record formats, in an environment of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.report import ClientReport
from tests.foreign_tools import cache_dir, cache_entry, digest, run_checked

SCRIPT = Path(__file__).parent / "legacy_kafka_python.py"
REQUIREMENTS = ("kafka-python==1.4.7", "six==1.17.0", "python-snappy==0.7.3", "lz4==4.4.4", "xxhash==3.6.0")
FEATURES = ["create", "none", "gzip", "snappy", "lz4", "acks", "headers", "nulls", "large", "partitions"]
FEATURES += ["offsets", "timestamps", "configs", "topics"]


def packages_of_old_release() -> Path:
    """A folder with the old release and what it needs, made once."""
    name = f"kafka-python-1.4-{digest(*REQUIREMENTS, sys.version)}"
    with cache_entry(cache_dir("python"), name) as (entry, scratch):
        if scratch is not None:
            # Packages in a plain folder beside the interpreter of this run: unlike an environment it can be moved.
            run_checked([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(scratch), *REQUIREMENTS])
    return entry


@pytest.mark.timeout(240)
def test_kafka_python_1_4(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    packages = packages_of_old_release()
    with compat("kafka-python", "1.4.7") as client:
        command = [sys.executable, "-S", str(SCRIPT), broker]
        result = subprocess.run(
            command, env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, timeout=200, check=False
        )
        client.take_lines(result.stdout + result.stderr, FEATURES)

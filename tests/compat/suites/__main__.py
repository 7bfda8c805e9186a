"""Other projects' own tests, against Barnabas: `python -m tests.compat.suites kafka-python --brokers 3 [ARGUMENT...]`.

The tests come from where the project's packages come from, and are run as they are. Arguments go to what runs them:
pytest, or the test program of Go. What is left out of them, and why, is in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.barnabas_server import start_command
from tests.compat.suites.brokers import SuiteBrokers
from tests.golang import require_go
from tests.server_process import free_port
from tests.tools import CHECKOUT, cache_dir, cache_entry, require_tool, run_checked

HERE = Path(__file__).parent
KAFKA_PYTHON = "3.0.12"
AS_KAFKA = "4.3.0"
"""The version that tests are told they run against."""
GO_SETTINGS = {
    "acks.all.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "3",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def sdist(name: str, version: str) -> Path:
    """The unpacked source distribution of a Python package."""
    with cache_entry(cache_dir("python"), f"{name}-{version}-sdist") as (entry, scratch):
        if scratch is not None:
            options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(scratch)]
            run_checked([sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"])
            with tarfile.open(next(scratch.glob("*.tar.gz"))) as archive:
                archive.extractall(scratch, filter="data")
    return next(path for path in entry.iterdir() if path.is_dir())


def kafka_python(folder: Path, brokers: int, arguments: Sequence[str]) -> int:
    """Its fixtures start a broker for each file, with TLS and SASL too; the Kafka that they start is this one."""
    require_tool("keytool", "the tests make keystores with it")
    shutil.copytree(sdist("kafka-python", KAFKA_PYTHON), folder / "source")
    shutil.copytree(HERE / "kafka_python", folder / "source", dirs_exist_ok=True)
    environment = {
        "KAFKA_ROOT": str(HERE / "kafka_python"),
        "PROJECT_ROOT": str(HERE / "kafka_python"),
        "KAFKA_VERSION": AS_KAFKA,
        "BARNABAS_PROGRAM": start_command()[0],
        "BARNABAS_SUITE_BROKERS": str(brokers),
        "PYTHONPATH": f"{folder / 'source'}:{CHECKOUT}",
    }
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", *options, "test/integration", *arguments]
    return subprocess.run(command, cwd=folder / "source", env={**os.environ, **environment}, check=False).returncode


def franz_go(folder: Path, brokers: int, arguments: Sequence[str]) -> int:
    """Tests of the client go to running brokers: groups and transactions with hundreds of thousands of records."""
    require_go()
    wanted = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go"]
    package = Path(run_checked(wanted, cwd=HERE.parent / "franzgo").strip()) / "pkg" / "kgo"
    program = folder / "kgo.test"
    run_checked(["go", "test", "-C", str(package), "-c", "-o", str(program), "."])
    listeners = [{"PLAINTEXT": free_port(), "SASL_PLAINTEXT": free_port()} for _ in range(brokers)]
    with SuiteBrokers(folder, listeners, GO_SETTINGS) as servers:
        servers.add_scram_user("anna", {"SCRAM-SHA-256": "secret"})
        environment = {
            "KGO_SEEDS": servers.bootstrap,
            "KGO_TEST_RF": str(min(3, brokers)),
            "KGO_TEST_RECORDS": os.environ.get("KGO_TEST_RECORDS", "50000"),
            "KGO_TEST_SCRAM": "anna:secret:256",
            "KGO_TEST_SCRAM_SEEDS": ",".join(f"127.0.0.1:{ports['SASL_PLAINTEXT']}" for ports in listeners),
        }
        command = [str(program), "-test.v", *arguments]
        return subprocess.run(command, cwd=package, env={**os.environ, **environment}, check=False).returncode


SUITES = {"kafka-python": kafka_python, "franz-go": franz_go}


def main() -> int:
    """Returns the exit status of what ran the tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.suites", description=__doc__)
    parser.add_argument("name", choices=sorted(SUITES))
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    chosen, arguments = parser.parse_known_args()
    with TemporaryDirectory() as folder:
        return SUITES[chosen.name](Path(folder), chosen.brokers, arguments)


if __name__ == "__main__":
    sys.exit(main())

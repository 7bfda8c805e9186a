"""Other projects' own tests, against Barnabas: `python -m tests.compat.suites kafka-python --brokers 3 [ARGUMENT...]`.

The tests come from where the project's packages come from, and are run as they are; those that are in no package are
taken from a checkout of the project (`--checkout FOLDER`), kafkajs's after `npm install` in it. Arguments go to what
runs them (pytest, jest, the test program of Go). What they gave, and what does not pass and why, is in
docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.barnabas_server import cli_command
from tests.compat.suites.brokers import SuiteBrokers
from tests.foreign_tools import CHECKOUT, cache_dir, cache_entry, require_tool, run_checked
from tests.golang import require_go
from tests.server_process import free_port

HERE = Path(__file__).parent
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--tb=short", "-rfEs")
KAFKA_PYTHON = "3.0.12"
AS_KAFKA = "4.3.0"
"""The version that tests are told they run against."""
GO_SETTINGS = {
    "acks.all.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "3",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}

KAFKAJS_PORTS = {"PLAINTEXT": 9092, "SSL": 9093, "SASL_SSL": 9094}
"""Of its first broker; those of the next are higher by three."""
KAFKAJS_SETTINGS = {
    "acks.all.durability": "page-cache",
    "allow.everyone.if.no.acl.found": "true",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "num.partitions": "2",
    "ssl.keystore.type": "PEM",
    "super.users": "User:ANONYMOUS",
}
KAFKAJS_LOGIN = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_test="testtest" user_bob="bobbob" user_alice="alicealice";',
}
KAFKAJS_TOKENS = {
    "connections.max.reauth.ms": "15000",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security"
    ".oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer"
    '.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="test";',
}
BESIDE = "import sys, pytest, tests; tests.__path__.append(sys.argv.pop(1)); sys.exit(pytest.main())"
"""Pytest for a project whose tests are a package `tests` as well: what is not in it is looked for in ours."""


@dataclass(frozen=True)
class Run:
    """What is asked for: a folder to work in, brokers, where the project's checkout is, and what its runner is told."""

    folder: Path
    brokers: int
    checkout: Path | None
    arguments: Sequence[str]

    def copied(self, *names: str) -> Path:
        """These files and folders of the checkout, in a folder of their own. Ends the program if there is none."""
        if self.checkout is None:
            sys.exit("its tests are in no package: --checkout FOLDER")
        for name in names:
            source, target = self.checkout / name, self.folder / "source" / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        return self.folder / "source"

    def call(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
        """The exit status of the command with the arguments at its end."""
        return subprocess.run(
            [*command, *self.arguments], cwd=folder, env={**os.environ, **environment}, check=False
        ).returncode


def sdist(name: str, version: str) -> Path:
    """The unpacked source distribution of a Python package."""
    with cache_entry(cache_dir("python"), f"{name}-{version}-sdist") as (entry, scratch):
        if scratch is not None:
            options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(scratch)]
            run_checked([sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"])
            with tarfile.open(next(scratch.glob("*.tar.gz"))) as archive:
                archive.extractall(scratch, filter="data")
    return next(path for path in entry.iterdir() if path.is_dir())


def kafka_python(run: Run) -> int:
    """Its fixtures start a broker for each file, with TLS and SASL too; the Kafka that they start is this one."""
    require_tool("keytool", "the tests make keystores with it")
    source = run.folder / "source"
    shutil.copytree(sdist("kafka-python", KAFKA_PYTHON), source)
    shutil.copytree(HERE / "kafka_python", source, dirs_exist_ok=True)
    environment = {
        "KAFKA_ROOT": str(HERE / "kafka_python"),
        "PROJECT_ROOT": str(HERE / "kafka_python"),
        "KAFKA_VERSION": AS_KAFKA,
        "BARNABAS_PROGRAM": shlex.join(cli_command()),
        "BARNABAS_SUITE_BROKERS": str(run.brokers),
        "PYTHONPATH": f"{source}:{CHECKOUT}",
    }
    return run.call([sys.executable, "-m", "pytest", *PYTEST, "test/integration"], source, environment)


def beside(run: Run, source: Path, plugin: str, options: Sequence[str]) -> int:
    """Pytest in the project's folder with a stand-in of ours as a plugin."""
    command = [sys.executable, "-c", BESIDE, str(CHECKOUT / "tests"), *PYTEST, "--timeout", "150"]
    environment = {"BARNABAS_SUITE_BROKERS": str(run.brokers)}
    return run.call([*command, "-p", f"tests.compat.suites.{plugin}", *options], source, environment)


def aiokafka(run: Run) -> int:
    """Its fixtures start an image with Kafka and a KDC. pytest's own deprecations are no failure."""
    source = run.copied("tests", "docker", "gen-ssl-certs.sh", "pyproject.toml")
    deprecated = [f"-Wignore::pytest.{name}" for name in ("PytestRemovedIn10Warning", "PytestDeprecationWarning")]
    image = ["--docker-image", "aiolibs/kafka:2.13_2.8.1", "--no-pull"]
    compiled = ["--ignore=tests/coordinator", "--ignore=tests/record"]
    return beside(run, source, "docker_stand_in", [*deprecated, *image, *compiled])


def confluent_kafka(run: Run) -> int:
    """Its fixtures start Kafka by a library of theirs; schemas, and share groups, are left out."""
    source = run.copied("tests")
    rooms = [f"tests/integration/{name}" for name in ("admin", "consumer", "producer")]
    return beside(run, source, "trivup_stand_in", ["-p", "no:asyncio", *rooms])


def kafkajs(run: Run) -> int:
    """The tests go to running brokers on fixed ports; with OAUTHBEARER_ENABLED=1 those that log in by tokens."""
    require_tool("node", "jest runs in it")
    if run.checkout is None:
        sys.exit("its tests are in no package: --checkout FOLDER")
    certificates = run.folder / "certificates"
    run_checked(cli_command("certs", str(certificates), "--host", "localhost", "--host", "127.0.0.1"))
    by_tokens = os.environ.get("OAUTHBEARER_ENABLED") == "1"
    properties = {
        **KAFKAJS_SETTINGS,
        **(KAFKAJS_TOKENS if by_tokens else KAFKAJS_LOGIN),
        "ssl.keystore.location": str(certificates / "broker.pem"),
        "default.replication.factor": str(min(2, run.brokers)),
    }
    listeners = [{name: port + 3 * index for name, port in KAFKAJS_PORTS.items()} for index in range(run.brokers)]
    with SuiteBrokers(run.folder, listeners, properties) as servers:
        if not by_tokens:
            servers.add_scram_user("testscram", {f"SCRAM-SHA-{bits}": f"testtestscram={bits}" for bits in (256, 512)})
        run_checked(cli_command("topic", "create", "test-topic-already-exists", "-b", servers.bootstrap))
        environment = {
            "BARNABAS_PROGRAM": shlex.join(cli_command()),
            "BARNABAS_BOOTSTRAP_SERVER": servers.bootstrap,
            "KAFKA_VERSION": "2.4",
            "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1",
            "NODE_ENV": "test",
            "PATH": f"{HERE / 'kafkajs'}:{os.environ['PATH']}",
        }
        command = ["node_modules/.bin/jest", "--ci", "--maxWorkers=2", "--no-watchman", "--forceExit"]
        return run.call(command, run.checkout, environment)


def franz_go(run: Run) -> int:
    """Tests of the client go to running brokers: groups and transactions with hundreds of thousands of records."""
    require_go()
    wanted = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go"]
    package = Path(run_checked(wanted, cwd=HERE.parent / "franzgo").strip()) / "pkg" / "kgo"
    program = run.folder / "kgo.test"
    run_checked(["go", "test", "-C", str(package), "-c", "-o", str(program), "."])
    listeners = [{"PLAINTEXT": free_port(), "SASL_PLAINTEXT": free_port()} for _ in range(run.brokers)]
    with SuiteBrokers(run.folder, listeners, GO_SETTINGS) as servers:
        servers.add_scram_user("anna", {"SCRAM-SHA-256": "secret"})
        environment = {
            "KGO_SEEDS": servers.bootstrap,
            "KGO_TEST_RF": str(min(3, run.brokers)),
            "KGO_TEST_RECORDS": os.environ.get("KGO_TEST_RECORDS", "50000"),
            "KGO_TEST_SCRAM": "anna:secret:256",
            "KGO_TEST_SCRAM_SEEDS": ",".join(f"127.0.0.1:{ports['SASL_PLAINTEXT']}" for ports in listeners),
        }
        return run.call([str(program), "-test.v"], package, environment)


SUITES = {
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
    "franz-go": franz_go,
    "kafka-python": kafka_python,
    "kafkajs": kafkajs,
}


def main() -> int:
    """Returns the exit status of what ran the tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.suites", description=__doc__)
    parser.add_argument("name", choices=sorted(SUITES))
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--checkout", type=lambda name: Path(name).resolve(), help="the project's source")
    chosen, arguments = parser.parse_known_args()
    with TemporaryDirectory() as folder:
        return SUITES[chosen.name](Run(Path(folder), chosen.brokers, chosen.checkout, arguments))


if __name__ == "__main__":
    sys.exit(main())

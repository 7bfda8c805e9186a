"""The brokers of the compose files, used, killed, stopped and started again from outside."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient, NewTopic
from engine import run, say, wait_for
from project import CLIENT_S, COMPOSE_FILE, QUIET, UP_S, count, here, is_refused, produce, running

MEMBERS = ["broker-1", "broker-2", "broker-3"]
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+[+-][\d:]+ [A-Z]+ barnabas\.\w+: |(listening|health|metrics|ready) ")
METRIC = "kafka_server_brokertopicmetrics_messagesin_total"
LIMITS = {
    "id --user": "10001",
    "grep CapBnd /proc/1/status | cut -f2": "0000000000000000",
    "grep NoNewPrivs /proc/1/status | cut -f2": "1",
    "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true": str(512 << 20),
    "touch /opt/here /etc/here 2>/dev/null || echo refused": "refused",
    "touch /tmp/here && echo done": "done",
}


def check_broker(docker: str, compose: Sequence[str]) -> None:
    """A broker alone: what its file promises of limits, restarts, settings and data."""
    os.environ.update(BARNABAS_PARTITIONS="3", BARNABAS_MEMORY="512m")
    client, metrics = here("BARNABAS_PORT"), here("BARNABAS_METRICS_PORT")
    with running(docker, compose, "broker.yml") as project:
        project.up("barnabas")
        for script, expected in LIMITS.items():
            found = project.inside("barnabas", script)
            assert found == expected, f"{script} says {found!r}"
        say("no rights, no place to write but data and /tmp, limits as the file has them")
        produce(client, "orders", 1000)
        partitions = (
            AdminClient({**QUIET, **client}).list_topics("orders", timeout=CLIENT_S).topics["orders"].partitions
        )
        assert len(partitions) == 3, f"{len(partitions)} partitions, though the environment says 3"
        with urlopen(f"http://{metrics['bootstrap.servers']}/metrics", timeout=CLIENT_S) as answer:
            told = re.findall(METRIC + r'{topic="orders"} (\d+)', answer.read().decode())
        assert told == ["1000"], f"metrics tell of {told} records"
        project.kill("barnabas")
        wait_for("restart", lambda: project.inspect("barnabas", "{{.RestartCount}}") == "1", UP_S)
        project.wait_healthy("barnabas")
        assert count(client, "orders") == 1000
        say("restarted after SIGKILL, with all that was acknowledged")
        strange = [line for line in project.log("barnabas") if not LOG_LINE.match(line)]
        assert not strange, f"lines that are none of the log: {strange[:3]}"
        project.stop("barnabas")
        project.compose("down")
        project.up("barnabas")
        assert "after a clean stop" in " ".join(project.log("barnabas"))
        assert count(client, "orders") == 1000
        say("stopped cleanly, and the volume outlived its container")


def check_secured(docker: str, compose: Sequence[str]) -> None:
    """TLS and a password: who has both is served, also from the host, and nobody else."""
    plain = here("BARNABAS_SECURED_PORT")
    with running(docker, compose, COMPOSE_FILE, "secured") as project, TemporaryDirectory() as folder:
        project.compose("up", "--detach", "--no-build", "secured", "secured-client")
        wait_for("end of the client", lambda: project.inspect("secured-client", "{{.State.Status}}") == "exited", UP_S)
        assert project.inspect("secured-client", "{{.State.ExitCode}}") == "0", project.log("secured-client")
        assert project.log("secured-client")[-3:] == ["998", "999", "1000"], project.log("secured-client")
        authority = Path(folder) / "ca.pem"
        run([docker, "cp", f"{project.container('secured')}:/etc/barnabas/certs/ca.pem", str(authority)])
        tls = {**plain, "security.protocol": "SASL_SSL", "ssl.ca.location": str(authority)}
        alice = {**tls, "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"}
        assert count(alice, "orders") == 1000
        assert is_refused({**alice, "sasl.password": "guessed"}), "a guessed password is taken"
        assert is_refused(plain), "somebody without TLS is served"
        say("a password over TLS, from the host too; nothing without")
        project.kill("secured")
        project.up("secured")
        produce(alice, "orders", 1000)
        assert count(alice, "orders") == 2000
        project.stop("secured")
        say("the same certificate and data after SIGKILL")


def check_cluster(docker: str, compose: Sequence[str]) -> None:
    """Three brokers around a ZooKeeper: one is killed, and nothing that was acknowledged is missing."""
    client = here(*(f"BARNABAS_PORT_{number}" for number in (1, 2, 3)))
    with running(docker, compose, COMPOSE_FILE, "cluster") as project:
        project.up(*MEMBERS)
        admin = AdminClient({**QUIET, **client})

        def in_sync(replicas: int) -> Callable[[], bool]:
            def all_are() -> bool:
                found = admin.list_topics("orders", timeout=CLIENT_S).topics["orders"].partitions.values()
                return all(len(partition.isrs) == replicas for partition in found)

            return all_are

        wait_for("three brokers", lambda: len(admin.list_topics(timeout=CLIENT_S).brokers) == 3, UP_S)
        admin.create_topics([NewTopic("orders", 6)])["orders"].result(CLIENT_S)
        wait_for("replicas in sync", in_sync(3), UP_S)
        produce(client, "orders", 1000)
        project.kill("broker-2")
        produce(client, "orders", 1000)
        wait_for("election without broker-2", in_sync(2), UP_S)
        say("written with one of three brokers killed")
        project.up("broker-2")
        wait_for("broker-2 in sync", in_sync(3), UP_S)
        assert count(client, "orders") == 2000
        project.stop(*MEMBERS)
        project.compose("down")
        project.up(*MEMBERS)
        wait_for("replicas in sync", in_sync(3), UP_S)
        assert count(client, "orders") == 2000
        say("in sync again, also after the whole cluster was taken away and started from its volumes")


ROWS = "barnabas_table_rows_total"
COUNT_ROWS = """python3 -c "
from pyiceberg.catalog.sql import SqlCatalog
lake = '/var/lib/barnabas/lake'
catalog = SqlCatalog('local', uri=f'sqlite:///{lake}/catalog.db', warehouse=f'file://{lake}')
print(catalog.load_table('demo.flights').scan().to_arrow().num_rows)
\""""


def check_table(docker: str, compose: Sequence[str]) -> None:
    """Check that a follower that is killed and stopped writes each record once."""
    client, metrics = here("BARNABAS_PORT"), here("BARNABAS_TABLE_PORT")
    with running(docker, compose, COMPOSE_FILE, "table") as project:
        project.up("broker", "table")
        produce(client, "flights", 1000)

        def rows() -> int:
            try:
                with urlopen(f"http://{metrics['bootstrap.servers']}/metrics", timeout=CLIENT_S) as answer:
                    return round(sum(map(float, re.findall(rf"^{ROWS} (\S+)$", answer.read().decode(), re.MULTILINE))))
            except OSError:  # it is starting
                return 0

        wait_for("rows in the table", lambda: rows() == 1000, UP_S)
        project.kill("table")
        produce(client, "flights", 1000)
        wait_for("rows after the restart", lambda: rows() == 1000, UP_S)
        counted = project.inside("table", COUNT_ROWS)
        assert counted == "2000", f"the table has {counted} rows"
        project.stop("table", status="143")
        project.stop("broker")
        say("each record once in an Iceberg table, with the follower killed in between")


def check_metrics(docker: str, compose: Sequence[str]) -> None:
    """Prometheus finds the broker and asks it."""
    client = here("BARNABAS_PORT")
    with running(docker, compose, COMPOSE_FILE, "metrics") as project:
        project.up("broker", "prometheus")
        produce(client, "flights", 1000)
        question = ["promtool", "query", "instant", "--format=json", "http://localhost:9090", METRIC]

        def told() -> bool:
            answer = run([docker, "exec", project.container("prometheus"), *question], check=False)
            found = {sample["metric"].get("topic"): sample["value"][1] for sample in json.loads(answer or "[]")}
            return found.get("flights") == "1000"

        wait_for("records in Prometheus", told, UP_S)
        project.stop("broker", "prometheus")
        say("Prometheus tells how many records the broker took")

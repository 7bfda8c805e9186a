"""`barnabas cluster`: several brokers on this machine, each a process, and a coordinator or Kafka's controllers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from ...clients.admin import QuorumInfo
from . import session
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, parse_settings
from .kafka_home import KafkaHome
from .local_cluster import LocalCluster, all_ready, at_work, check_config, check_ports, wait_until
from .local_process import ControllerProcess, LocalClusterError, LocalProcess, make_private
from .session import Bootstrap, Json, Row, fail, print_json, print_rows

app = typer.Typer(
    help="Run several brokers on this machine, each a process. Number 0 is the coordinator; brokers are 1, 2, 3 …; "
    "controllers of Apache Kafka (--controllers kafka) are 101, 102 and 103.",
    short_help="Run several brokers on this machine, each a process.",
    no_args_is_help=True,
    add_completion=False,
)

DEFAULT_FOLDER = Path("./barnabas-cluster")
DEFAULT_PORT = 9092
READY_SECONDS = 60.0

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Directory of the cluster.")]
Number = Annotated[
    int | None,
    typer.Argument(metavar="[N]", help="Only this process: the id of a broker or controller; 0 is the coordinator."),
]


class Controllers(StrEnum):
    """The processes with the metadata of a cluster."""

    BUILTIN = "builtin"
    KAFKA = "kafka"


@app.command()
def start(
    number: Number = None,
    *,
    brokers: Annotated[
        int | None, typer.Option("-n", "--brokers", min=1, max=100, help="Number of brokers (3).")
    ] = None,
    data: Data = DEFAULT_FOLDER,
    port: Annotated[
        int | None, typer.Option("--port", help=f"Port of the first broker ({DEFAULT_PORT}); 0: any free ports.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Setting of all brokers.")
    ] = None,
    controllers: Annotated[
        Controllers | None,
        typer.Option(
            help="builtin (default): the coordinator of Barnabas. "
            "kafka: three KRaft controllers of Apache Kafka, which require Java 17 and Kafka's jars."
        ),
    ] = None,
    kafka_home: Annotated[
        Path | None,
        typer.Option("--kafka-home", metavar="DIR", help="Directory of an Apache Kafka release (KAFKA_HOME)."),
    ] = None,
    json: Json = False,
) -> None:
    """Start a cluster, or its stopped processes.

    Broker k listens on PORT + k - 1, the coordinator on PORT - 1, controllers of Apache Kafka on the three ports before
    PORT.
    """
    began = time.perf_counter()
    with _errors(), _at_work(data, make=True) as folder:
        settings = parse_settings(config or ())
        check_config(settings)
        is_new = not (folder / "cluster.json").exists()
        with_quorum = controllers is Controllers.KAFKA
        home = KafkaHome.find(kafka_home) if is_new and with_quorum else None
        first_port = DEFAULT_PORT if port is None else port
        cluster = (
            LocalCluster.create(folder, brokers or 3, first_port, settings, with_quorum=with_quorum)
            if is_new
            else LocalCluster.load(folder)
        )
        if brokers not in (None, len(cluster.brokers)) or port not in (None, cluster.brokers[0].port, 0):
            raise LocalClusterError(f"{folder} has a cluster of {len(cluster.brokers)} brokers at {cluster.bootstrap}")
        if controllers is not None and with_quorum != (cluster.quorum is not None):
            present = Controllers.BUILTIN if cluster.quorum is None else Controllers.KAFKA
            raise LocalClusterError(f"{folder} has a cluster with --controllers {present}")
        if kafka_home is not None and cluster.quorum is None:
            raise LocalClusterError("--kafka-home requires --controllers kafka")
        cluster.config.update(settings)
        chosen = cluster.members if number is None else [cluster.member(number)]
        missing = [member for member in chosen if member.pid() is None]
        if not missing:
            what = "the cluster" if number is None else cluster.member(number).name
            raise LocalClusterError(f"{what} is already running")
        if number is not None and missing[0] in cluster.brokers and not cluster.has_metadata:
            raise LocalClusterError(
                "a broker cannot start without the coordinator; `barnabas cluster start 0` starts it"
                if cluster.quorum is None
                else "a broker cannot start without a majority of the controllers; "
                "`barnabas cluster start N` starts one"
            )
        if home is None and any(isinstance(member, ControllerProcess) for member in missing):
            assert cluster.quorum is not None, "only a quorum has controllers"
            home = KafkaHome.find(kafka_home or cluster.quorum.kafka_home)
        if home is not None and cluster.quorum is not None:
            cluster.quorum.kafka_home = home.folder
        if settings:
            _check_values(cluster)
        check_ports(missing)
        cluster.save()
        if home is not None:
            cluster.format(home)
        try:
            cluster.start(missing, home)
            # Imported while the started brokers import their own modules, not before.
            from .cluster_view import all_know

            wait_until(lambda: all_ready(missing), READY_SECONDS)
            wait_until(lambda: asyncio.run(all_know(cluster)), READY_SECONDS)
        except BaseException:
            cluster.stop(missing)
            raise
        seconds = time.perf_counter() - began
        rows = [_row(member) for member in cluster.members]
    if json:
        print_json({"bootstrap": cluster.bootstrap, "seconds": round(seconds, 3), "processes": rows})
    else:
        print_rows(rows)
        print(f"bootstrap {cluster.bootstrap}\nready in {seconds:.2f} s")


@app.command()
def status(*, data: Data = DEFAULT_FOLDER, json: Json = False) -> None:
    """Show the processes and the leaders of each broker; the exit status is 0 if all processes run, else 1."""
    with _errors():
        cluster = LocalCluster.load(data.resolve())
        rows = [_row(member) for member in cluster.members]
        from .cluster_view import roles_in

        roles = asyncio.run(roles_in(cluster))
        print_rows([{**row, **role} for row, role in zip(rows, roles, strict=True)], as_json=json)
        if any(row["pid"] is None for row in rows):
            raise typer.Exit(1)


@app.command()
def quorum(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show the controllers and observers of any KRaft cluster, and the lag of each in records."""
    from .cluster_view import quorum_rows

    async def work() -> QuorumInfo:
        async with admin_of(bootstrap) as admin:
            return await admin.describe_metadata_quorum()

    found = session.run(work())
    if json:
        about = {"leader": found.leader_id, "epoch": found.leader_epoch, "high watermark": found.high_watermark}
        print_json({**about, "replicas": quorum_rows(found)})
    else:
        print(f"leader {found.leader_id}, epoch {found.leader_epoch}, high watermark {found.high_watermark}")
        print_rows(quorum_rows(found))


@app.command()
def migrate(
    controllers: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Formatted log directories of the new controllers.")
    ],
    *,
    source: Annotated[
        list[Path],
        typer.Option(
            "--from",
            metavar="DIR",
            help="Log directory of the standalone broker, first the directory with metadata.sqlite; may be repeated.",
        ),
    ],
    json: Json = False,
) -> None:
    """Migrate a standalone broker into a new KRaft cluster with controllers of Apache Kafka.

    The broker must be stopped. The controllers must be formatted with its cluster id and never started. Their
    directories receive the topics, settings, ACLs, users and quotas of the broker, whose own directories are not
    changed. Afterwards start the controllers, and the broker with process.roles=broker.
    """
    kraft_handover = import_module("barnabas.server.kraft.kraft_handover")
    try:
        found = asyncio.run(
            kraft_handover.hand_over(
                [str(one.absolute()) for one in source], [str(one) for one in controllers], os.urandom
            )
        )
    except (kraft_handover.HandoverError, OSError) as error:
        fail(str(error))
    if json:
        print_json(found._asdict())
        return
    for text in found.changed_settings:
        print(f"setting of topic {text}", file=sys.stderr)
    for path in found.checkpoints:
        print(f"wrote {found.records} records to {path}")
    print(f"{found.topics} topics of cluster {found.cluster_id}. Start the controllers, and then the broker with:")
    print(f"process.roles=broker\nnode.id={found.broker_id}")


@app.command()
def stop(number: Number = None, *, data: Data = DEFAULT_FOLDER) -> None:
    """Stop the cluster, or one process, cleanly. The data are kept."""
    with _errors(), _at_work(data) as folder:
        cluster = LocalCluster.load(folder)
        stopped = cluster.stop(cluster.members if number is None else [cluster.member(number)])
    for member, pid in stopped:
        print(f"stopped {member.name} (pid {pid})")
    if not stopped:
        print("no process was running", file=sys.stderr)


@app.command()
def kill(
    number: Annotated[int, typer.Argument(metavar="N", help="Id of a broker or controller; 0 is the coordinator.")],
    *,
    data: Data = DEFAULT_FOLDER,
) -> None:
    """Kill one process as kill -9 does. `start N` starts it again.

    After the kill of a broker, other brokers become the leaders of its partitions. After the kill of the coordinator,
    or of a majority of the controllers, brokers continue to serve their partitions, but no leader is elected until a
    restart.
    """
    with _errors(), _at_work(data) as folder:
        member = LocalCluster.load(folder).member(number)
        pid = member.send(signal.SIGKILL)
        if pid is None:
            raise LocalClusterError(f"{member.name} is not running")
        member.await_end()
    print(f"killed {member.name} (pid {pid})")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except LocalClusterError as error:
        fail(str(error))
    except ValueError as error:
        fail(str(error), status=2)
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror}".removeprefix(": "))


@contextmanager
def _at_work(data: Path, *, make: bool = False) -> Iterator[Path]:
    """Lock the directory against other commands."""
    folder = data.resolve()
    if make:
        if not folder.exists() or (folder / "cluster.json").exists():
            make_private(folder)
    elif not folder.is_dir():
        LocalCluster.load(folder)
    with at_work(folder):
        yield folder


def _check_values(cluster: LocalCluster) -> None:
    """Validate settings before the start of the first process. Raises ValueError."""
    parsed = import_module("barnabas.server.config.broker_config").BrokerConfig.from_properties(
        cluster.settings(cluster.brokers[0])
    )
    for notice in parsed.startup_warnings:
        print(f"barnabas: {notice}", file=sys.stderr)


def _row(member: LocalProcess) -> Row:
    pid = member.pid()
    return {
        "process": member.name,
        "state": "running" if pid is not None else "down",
        "pid": pid,
        "address": member.address,
    }

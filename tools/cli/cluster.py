"""`barnabas cluster`: several brokers on this machine, each a process, and a coordinator process."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from .client_settings import parse_settings
from .local_cluster import (
    COORDINATOR,
    LocalCluster,
    LocalClusterError,
    LocalProcess,
    all_ready,
    at_work,
    check_config,
    check_ports,
    make_private,
    wait_until,
)
from .session import (
    Json,
    Row,
    fail,
    print_json,
    print_rows,
)

app = typer.Typer(
    help="Run several brokers on this machine, each a process. Number 0 is the coordinator; brokers are 1, 2, 3 …",
    short_help="Run several brokers on this machine, each a process.",
    no_args_is_help=True,
    add_completion=False,
)

DEFAULT_FOLDER = Path("./barnabas-cluster")
DEFAULT_PORT = 9092
READY_SECONDS = 60.0

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Directory of the cluster.")]
Number = Annotated[int | None, typer.Argument(metavar="[N]", help="Only this process: a broker's id, or 0.")]


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
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of all brokers.")
    ] = None,
    json: Json = False,
) -> None:
    """Start a cluster, or its stopped processes. Broker k listens on PORT + k - 1, the coordinator on PORT - 1."""
    began = time.perf_counter()
    with _errors(), _at_work(data, make=True) as folder:
        settings = parse_settings(config or ())
        check_config(settings)
        is_new = not (folder / "cluster.json").exists()
        cluster = (
            LocalCluster.create(folder, brokers or 3, DEFAULT_PORT if port is None else port, settings)
            if is_new
            else LocalCluster.load(folder)
        )
        if brokers not in (None, len(cluster.brokers)) or port not in (None, cluster.brokers[0].port, 0):
            raise LocalClusterError(f"{folder} has a cluster of {len(cluster.brokers)} brokers at {cluster.bootstrap}")
        cluster.config.update(settings)
        chosen = cluster.members if number is None else [cluster.member(number)]
        missing = [member for member in chosen if member.pid() is None]
        if not missing:
            what = "the cluster" if number is None else cluster.member(number).name
            raise LocalClusterError(f"{what} is already running")
        if number and cluster.members[COORDINATOR].pid() is None:
            raise LocalClusterError(
                "a broker cannot start without the coordinator; `barnabas cluster start 0` starts it"
            )
        if settings:
            _check_values(cluster)
        check_ports(missing)
        cluster.save()
        try:
            cluster.start(missing)
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
        print_rows([{**row, **roles[number]} for number, row in enumerate(rows)], as_json=json)
        if any(row["pid"] is None for row in rows):
            raise typer.Exit(1)


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
    number: Annotated[int, typer.Argument(metavar="N", help="A broker's id, or 0 for the coordinator.")],
    *,
    data: Data = DEFAULT_FOLDER,
) -> None:
    """Kill one process as kill -9 does. `start N` starts it again.

    Without a broker, others become the leaders of its partitions. Without the coordinator brokers continue to serve
    their partitions, and no leader is elected until it is restarted.
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

"""`barnabas log-dirs`: log directories of brokers, and moves of replicas between them."""

from __future__ import annotations

from typing import Annotated

import typer

from ...clients.admin import raise_first
from .broker import log_dirs as list_log_dirs
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import Bootstrap, Json, Row, print_rows, run, say
from .topic_partitions import find_partitions

app = typer.Typer(
    help="Show log directories, and move replicas between the log directories of a broker.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("list")(list_log_dirs)


@app.command()
def describe(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC[:0,1,5]…", help="Topics or partitions; all by default.")
    ] = None,
    *,
    broker: Annotated[
        list[int] | None, typer.Option("--broker", help="Broker id; may be repeated. All by default.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the log directory and the bytes of each replica."""

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            named = await find_partitions(admin, topics) if topics else None
            return [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "broker": log_dir.broker_id,
                    "path": log_dir.path,
                    "bytes": size,
                }
                for log_dir in await admin.describe_log_dirs(broker)
                for one, size in sorted(log_dir.sizes.items())
                if named is None or one in named
            ]

    print_rows(run(work()), as_json=json)


@app.command()
def move(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC[:0,1,5]…", help="Topics or partitions to move.")],
    *,
    broker: Annotated[int, typer.Option("--broker", help="Broker whose replicas are moved.")],
    to: Annotated[
        str, typer.Option("--to", metavar="PATH", help="Absolute path of the target, a log directory of the broker.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move replicas to another log directory of the same broker, in the background. `describe` shows the result."""

    async def work() -> int:
        async with admin_of(bootstrap) as admin:
            found = await find_partitions(admin, topics)
            moves = {one: to for one, info in found.items() if broker in info.replicas}
            if not moves:
                raise ValueError(f"broker {broker} has no replica of these partitions")
            raise_first(await admin.alter_replica_log_dirs(broker, moves))
            return len(moves)

    say(f"moving {run(work())} replicas of broker {broker} to {to}")

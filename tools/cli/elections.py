"""`barnabas elections`: partitions without their preferred leader, and elections."""

from __future__ import annotations

from typing import Annotated

import typer

from ...clients.admin import ElectionType, Outcome
from ...clients.cluster import NO_LEADER
from ...protocol.errors import ErrorCode
from ...protocol.topic_partition import TopicPartition
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import Bootstrap, Json, Row, Yes, ask_first, fail, print_rows, run
from .topic_partitions import find_partitions

app = typer.Typer(help="Show and elect the leaders of partitions.", no_args_is_help=True, add_completion=False)

Partitions = Annotated[list[str] | None, typer.Argument(metavar="TOPIC[:0,1,5]…", help="Partitions; all by default.")]


@app.command("list")
def list_needed(partitions: Partitions = None, *, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List partitions without a leader, and partitions whose leader is not their first replica."""

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            found = await find_partitions(admin, partitions or ())
        return [
            {
                "topic": one.topic,
                "partition": one.partition,
                "leader": None if info.leader_id == NO_LEADER else info.leader_id,
                "preferred": info.replicas[0],
                "in sync": list(info.in_sync_replicas),
                "election": "unclean" if info.leader_id == NO_LEADER else "preferred",
            }
            for one, info in sorted(found.items())
            if info.replicas and info.leader_id != info.replicas[0]
        ]

    print_rows(run(work()), as_json=json)


@app.command()
def preferred(partitions: Partitions = None, *, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Elect the first replica of each partition as its leader, if it is in sync."""
    _elect(bootstrap, ElectionType.PREFERRED, partitions, json=json)


@app.command()
def unclean(
    partitions: Annotated[list[str], typer.Argument(metavar="TOPIC[:0,1,5]…", help="Partitions without a leader.")],
    *,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Elect any live replica as the leader of partitions without a leader. Acknowledged records can be lost."""
    ask_first(f"Elect leaders of {', '.join(partitions)} that may lack acknowledged records?", yes=yes)
    _elect(bootstrap, ElectionType.UNCLEAN, partitions, json=json)


def _elect(bootstrap: str, kind: ElectionType, texts: list[str] | None, *, json: bool) -> None:
    async def work() -> dict[TopicPartition, Outcome]:
        async with admin_of(bootstrap) as admin:
            named = list(await find_partitions(admin, texts)) if texts else None
            return await admin.elect_leaders(kind, named)

    outcomes = run(work())
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "result": "elected" if error is None else error.code.name.lower().replace("_", " "),
        }
        for one, error in sorted(outcomes.items())
    ]
    print_rows(rows, as_json=json)
    failed = [e for e in outcomes.values() if e is not None and e.code is not ErrorCode.ELECTION_NOT_NEEDED]
    if failed:
        fail(str(failed[0]))

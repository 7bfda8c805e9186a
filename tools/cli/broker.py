"""`barnabas broker`: live brokers, their leaders, and the use of their disks."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from ...clients.admin import Admin, LogDirDescription
from ...protocol.errors import KafkaError
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import (
    Bootstrap,
    Json,
    Row,
    print_rows,
    run,
)

app = typer.Typer(help="List brokers and their log directories.", no_args_is_help=True, add_completion=False)


@app.command("list")
def list_brokers(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List brokers with their addresses, leaders and replicas, and the controller."""

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            return await broker_rows(admin)

    print_rows(run(work()), as_json=json)


@app.command("log-dirs")
def log_dirs(
    broker: Annotated[list[int] | None, typer.Argument(help="Broker ids; all by default.")] = None,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show log directories: their partitions and bytes, and the free space of their disks."""

    async def work() -> list[LogDirDescription]:
        async with admin_of(bootstrap) as admin:
            return await admin.describe_log_dirs(broker)

    rows = [
        {
            "broker": one.broker_id,
            "path": one.path,
            "partitions": len(one.sizes),
            "bytes": sum(one.sizes.values()),
            "free": one.usable_bytes if one.usable_bytes >= 0 else None,
            "total": one.total_bytes if one.total_bytes >= 0 else None,
            "error": one.error.name if one.error else None,
        }
        for one in run(work())
    ]
    print_rows(rows, as_json=json)


async def broker_rows(admin: Admin) -> list[Row]:
    """Return a row for each live broker; `free` is the space of its fullest disk. Raises KafkaError."""
    cluster = await admin.describe_cluster()
    partitions = [p for topic in await admin.describe_topics() for p in topic.partitions.values()]
    leads = Counter(p.leader_id for p in partitions)
    holds = Counter(replica for p in partitions for replica in p.replicas)
    behind = Counter(replica for p in partitions for replica in set(p.replicas) - set(p.in_sync_replicas))
    sizes: Counter[int] = Counter()
    free: dict[int, int] = {}
    try:
        for one in await admin.describe_log_dirs():
            sizes[one.broker_id] += sum(one.sizes.values())
            if one.usable_bytes >= 0:  # brokers before 3.3 do not report it (KIP-827)
                free[one.broker_id] = min(one.usable_bytes, free.get(one.broker_id, one.usable_bytes))
    except KafkaError:
        sizes.clear()  # without permission, or with brokers before 1.0, the other columns are still useful
    return [
        {
            "broker": broker.node_id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "controller": broker.node_id == cluster.controller_id,
            "leads": leads[broker.node_id],
            "holds": holds[broker.node_id],
            "not in sync": behind[broker.node_id],
            "bytes": sizes[broker.node_id] if sizes else None,
            "free": free.get(broker.node_id),
        }
        for broker in cluster.brokers
    ]

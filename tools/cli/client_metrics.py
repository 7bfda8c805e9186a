"""`barnabas client-metrics`: subscriptions to metrics of clients (KIP-714)."""

from __future__ import annotations

from typing import Annotated

import typer

from ...clients.admin import ConfigChange, ConfigResource, raise_first
from ...protocol.config_resources import ConfigOperation, ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import Bootstrap, Json, Row, Yes, ask_first, print_rows, run, say

app = typer.Typer(
    help="List, set and remove subscriptions to metrics that clients push.", no_args_is_help=True, add_completion=False
)

Name = Annotated[str, typer.Argument(help="Name of the subscription.")]
INTERVAL, METRICS, MATCH = "interval.ms", "metrics", "match"


@app.command("list")
def list_subscriptions(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List subscriptions with their metrics, intervals and selected clients."""

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            names = await admin.list_config_resources(ConfigResourceType.CLIENT_METRICS)
            described = await admin.describe_configs([_resource(name) for name in names]) if names else {}
        return [
            {"name": resource.name}
            | {key: next((one.value for one in entries if one.name == key), None) for key in (METRICS, INTERVAL, MATCH)}
            for resource, entries in described.items()
        ]

    print_rows(run(work()), as_json=json)


@app.command("set")
def set_subscription(
    name: Name,
    *,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="PREFIX", help="Prefix of metric names; * for all; may be repeated."),
    ] = None,
    interval_ms: Annotated[
        int | None, typer.Option("--interval", min=100, metavar="MS", help="Interval between two pushes.")
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            metavar="KEY=REGEX",
            help="Only clients that match, for example client_id=app-.*; may be repeated.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create or change a subscription. Options that are not given are unchanged."""
    changes = [
        ConfigChange(key, value)
        for key, value in (
            (METRICS, ",".join(metrics) if metrics else None),
            (INTERVAL, None if interval_ms is None else str(interval_ms)),
            (MATCH, ",".join(match) if match else None),
        )
        if value is not None
    ]
    if not changes:
        raise typer.BadParameter("no change given: use --metric, --interval or --match")
    _alter(bootstrap, name, changes)
    say(f"set subscription {name}")


@app.command()
def remove(name: Name, *, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Remove a subscription."""
    ask_first(f"Remove subscription {name}?", yes=yes)

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            if name not in await admin.list_config_resources(ConfigResourceType.CLIENT_METRICS):
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"subscription {name}")
            changes = [ConfigChange(key, None, ConfigOperation.DELETE) for key in (METRICS, INTERVAL, MATCH)]
            raise_first(await admin.alter_configs({_resource(name): changes}))

    run(work())
    say(f"removed subscription {name}")


def _alter(bootstrap: str, name: str, changes: list[ConfigChange]) -> None:
    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            raise_first(await admin.alter_configs({_resource(name): changes}))

    run(work())


def _resource(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.CLIENT_METRICS, name)

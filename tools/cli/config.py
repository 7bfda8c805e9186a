"""`barnabas config`: describe and alter the settings of topics, brokers and groups."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ...clients.admin import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    raise_first,
)
from ...protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, parse_settings
from .session import (
    Bootstrap,
    Json,
    Row,
    print_rows,
    run,
    say,
)

app = typer.Typer(
    help="Describe and alter the settings of topics, brokers and groups.", no_args_is_help=True, add_completion=False
)


class ResourceKind(StrEnum):
    """Resource types of settings."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGER = "broker-logger"
    GROUP = "group"


KindArgument = Annotated[ResourceKind, typer.Argument(help="Resource type.")]
NameArgument = Annotated[
    str, typer.Argument(help="Topic name, group id or broker id. Without a broker id: the settings of all brokers.")
]
Change = list[str] | None


@app.command()
def describe(
    kind: KindArgument,
    name: NameArgument = "",
    *,
    all_settings: Annotated[bool, typer.Option("--all", help="Include settings with default values.")] = False,
    doc: Annotated[bool, typer.Option("--doc", help="Show the documentation of each setting.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show effective settings and their sources."""
    resource = _resource(kind, name)

    async def work() -> list[ConfigEntry]:
        async with admin_of(bootstrap) as admin:
            return (await admin.describe_configs([resource], documentation=doc))[resource]

    entries = [entry for entry in run(work()) if all_settings or entry.source is not ConfigSource.DEFAULT]
    print_rows([_row(entry, doc=doc) for entry in entries], as_json=json)


@app.command()
def alter(
    kind: KindArgument,
    name: NameArgument = "",
    *,
    assignments: Annotated[
        Change, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set a setting; may be repeated.")
    ] = None,
    delete: Annotated[
        Change,
        typer.Option(
            "--delete", "--delete-config", "-d", metavar="KEY", help="Reset a setting to its default; may be repeated."
        ),
    ] = None,
    append: Annotated[
        Change, typer.Option("--append", metavar="KEY=VALUE", help="Add values to a setting that is a list.")
    ] = None,
    subtract: Annotated[
        Change, typer.Option("--subtract", metavar="KEY=VALUE", help="Remove values from a setting that is a list.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate the change without applying it.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change some settings of a resource. All other settings are kept."""
    resource = _resource(kind, name)
    changes = [ConfigChange(key, value) for key, value in parse_settings(assignments or ()).items()]
    changes += [ConfigChange(key, None, ConfigOperation.DELETE) for key in delete or ()]
    changes += [ConfigChange(k, v, ConfigOperation.APPEND) for k, v in parse_settings(append or ()).items()]
    changes += [ConfigChange(k, v, ConfigOperation.SUBTRACT) for k, v in parse_settings(subtract or ()).items()]
    if not changes:
        raise typer.BadParameter("no change given: use --set, --delete, --append or --subtract")

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            raise_first(await admin.alter_configs({resource: changes}, validate_only=dry_run))

    run(work())
    whom = f"{kind} {name}" if name else f"the defaults of every {kind}"
    say(f"{'would alter' if dry_run else 'altered'} {whom}: {', '.join(change.name for change in changes)}")


def _resource(kind: ResourceKind, name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType[kind.name], name)


def _row(entry: ConfigEntry, *, doc: bool) -> Row:
    row: dict[str, object] = {
        "key": entry.name,
        "value": "(sensitive)" if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower().replace("_", " "),
        "read only": entry.read_only,
    }
    if doc:
        row["documentation"] = entry.documentation
    return row

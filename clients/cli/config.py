"""`barnabas config`: describe and alter the settings of topics and brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ...protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from ..admin import ConfigChange, ConfigEntry, ConfigResource, raise_first
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, parse_settings
from .session import Bootstrap, Json, Row, print_rows, run

app = typer.Typer(
    help="Describe and alter the settings of topics and brokers.", no_args_is_help=True, add_completion=False
)


class Kind(StrEnum):
    """What settings belong to."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGER = "broker-logger"


KindArgument = Annotated[Kind, typer.Argument(help="What the settings belong to.")]
NameArgument = Annotated[str, typer.Argument(help="Topic name or broker id; no id: the default of all brokers.")]
Change = list[str] | None


@app.command()
def describe(
    kind: KindArgument,
    name: NameArgument = "",
    *,
    all_settings: Annotated[bool, typer.Option("--all", "-a", help="Those at their built-in default, too.")] = False,
    doc: Annotated[bool, typer.Option("--doc", help="With the documentation of each.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show settings in force and where they come from."""
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
    assignments: Annotated[Change, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Give a value.")] = None,
    delete: Annotated[Change, typer.Option("--delete", "-d", metavar="KEY", help="Back to the default.")] = None,
    append: Annotated[Change, typer.Option("--append", metavar="KEY=VALUE", help="Add to a list.")] = None,
    subtract: Annotated[Change, typer.Option("--subtract", metavar="KEY=VALUE", help="Take from a list.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only let the broker check.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change settings; those that are not named stay."""
    resource = _resource(kind, name)
    changes = [ConfigChange(key, value) for key, value in parse_settings(assignments or ()).items()]
    changes += [ConfigChange(key, None, ConfigOperation.DELETE) for key in delete or ()]
    changes += [ConfigChange(k, v, ConfigOperation.APPEND) for k, v in parse_settings(append or ()).items()]
    changes += [ConfigChange(k, v, ConfigOperation.SUBTRACT) for k, v in parse_settings(subtract or ()).items()]
    if not changes:
        raise typer.BadParameter("nothing to alter: give --set, --delete, --append or --subtract")

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            raise_first(await admin.alter_configs({resource: changes}, validate_only=dry_run))

    run(work())
    print(f"{'would alter' if dry_run else 'altered'} {kind} {name}: {', '.join(change.name for change in changes)}")


def _resource(kind: Kind, name: str) -> ConfigResource:
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

"""`barnabas quota`: list, set and remove quotas of users, clients and addresses."""

from __future__ import annotations

from typing import Annotated

import typer

from ...clients.admin.quotas import QuotaDescription, QuotaEntity
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, parse_settings
from .session import (
    Bootstrap,
    Json,
    Row,
    Yes,
    ask_first,
    print_rows,
    run,
    say,
)

app = typer.Typer(
    help="List, set and remove quotas of users, clients and addresses.", no_args_is_help=True, add_completion=False
)

DEFAULT = "<default>"
"""Name of the default quota, as in Kafka's tools."""
Of = str | None
User = Annotated[Of, typer.Option("--user", "-u", help=f"A user, or {DEFAULT}.")]
ClientId = Annotated[Of, typer.Option("--client-id", help=f"A client id, or {DEFAULT}.")]
Ip = Annotated[Of, typer.Option("--ip", help=f"An address, or {DEFAULT}.")]


@app.command("list")
def list_quotas(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List all quotas."""

    async def work() -> list[QuotaDescription]:
        async with admin_of(bootstrap) as admin:
            return await admin.describe_quotas()

    print_rows([row for one in run(work()) for row in _rows(one)], as_json=json)


@app.command("set")
def set_quotas(
    quotas: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE…", help="For example producer_byte_rate=1000000 (bytes per second)."),
    ],
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set quotas: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate.

    For an address: connection_creation_rate.
    """
    values: dict[str, float | None] = {}
    for key, text in parse_settings(quotas).items():
        try:
            values[key] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{key}={text}: expected a number") from None
    _alter(bootstrap, _entity(user, client_id, ip), values)


@app.command("remove")
def remove_quotas(
    keys: Annotated[list[str], typer.Argument(metavar="KEY…", help="For example producer_byte_rate.")],
    *,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove quotas."""
    entity = _entity(user, client_id, ip)
    ask_first(f"remove {', '.join(keys)} of {_shown(entity)}?", yes=yes)
    _alter(bootstrap, entity, dict.fromkeys(keys))


def _alter(bootstrap: str, entity: QuotaEntity, values: dict[str, float | None]) -> None:
    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            await admin.alter_quotas(entity, values)

    run(work())
    say(f"altered quotas of {_shown(entity)}: {', '.join(values)}")


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name or DEFAULT}" for kind, name in entity.items())


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    named = {"user": user, "client-id": client_id, "ip": ip}
    entity = {kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None}
    if not entity:
        raise typer.BadParameter("no entity given: use --user, --client-id or both, or --ip")
    return entity


def _rows(one: QuotaDescription) -> list[Row]:
    names = {kind: DEFAULT if name is None else name for kind, name in one.entity.items()}
    return [
        {kind: names.get(kind) for kind in ("user", "client-id", "ip")} | {"quota": key, "value": value}
        for key, value in sorted(one.values.items())
    ]

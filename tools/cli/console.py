"""`barnabas console`: a web page for any Kafka cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from .client_settings import DEFAULT_BOOTSTRAP
from .console_options import (
    ACCESS_TOKEN,
    AllowHosts,
    AllowRemote,
    ServedAt,
    access_token,
    connection_settings_of,
    parse_listen,
    require_extra,
)
from .session import Bootstrap, run
from .start import DEFAULT_CONSOLE, SCHEMAS_HELP, TOKEN_HELP

app = typer.Typer(add_completion=False)


@app.command()
def console(
    *,
    listen: ServedAt = DEFAULT_CONSOLE,
    allow_remote: AllowRemote = False,
    allow_host: AllowHosts = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="on|off|TOKEN", envvar=ACCESS_TOKEN, help=TOKEN_HELP)
    ] = None,
    schemas: Annotated[list[str] | None, typer.Option("--schemas", metavar="URL|PATH", help=SCHEMAS_HELP)] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Serve the web console of a cluster: topics, records, groups and settings.

    barnabas console -b localhost:9092
    """

    async def work() -> None:
        require_extra()
        where = parse_listen("--listen", listen, allow_host or (), allow_remote=allow_remote)
        from ..console.server import serve

        reach = connection_settings_of(bootstrap, schemas or ())
        required = access_token("--token", token, where, reach)
        await serve(reach, where, lambda url: print(f"console {url}", flush=True), access_token=required)

    run(work())

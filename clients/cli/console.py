"""`barnabas console`: a page in the browser for any Kafka cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from .client_settings import DEFAULT_BOOTSTRAP
from .console_options import AllowHosts, AllowRemote, ServedAt, parse_listen, reach_of, require_extra
from .session import Bootstrap, run
from .start import DEFAULT_CONSOLE, SCHEMAS_HELP

app = typer.Typer(add_completion=False)


@app.command()
def console(
    *,
    listen: ServedAt = DEFAULT_CONSOLE,
    allow_remote: AllowRemote = False,
    allow_host: AllowHosts = None,
    schemas: Annotated[list[str] | None, typer.Option("--schemas", metavar="URL|PATH", help=SCHEMAS_HELP)] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Serve a console for the browser: topics, records, groups, live.

    barnabas console -b localhost:9092
    """

    async def work() -> None:
        require_extra()
        where = parse_listen("--listen", listen, allow_host or (), allow_remote=allow_remote)
        from ..console.server import serve

        await serve(reach_of(bootstrap, schemas or ()), where, lambda url: print(f"console {url}", flush=True))

    run(work())

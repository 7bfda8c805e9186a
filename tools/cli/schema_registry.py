"""`barnabas schema-registry`: Confluent's REST API over a cluster's topic `_schemas`."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from .client_settings import DEFAULT_BOOTSTRAP
from .console_options import (
    AllowHosts,
    AllowRemote,
    ServedAt,
    connection_settings_of,
    parse_listen,
)
from .session import Bootstrap, run

app = typer.Typer(add_completion=False)

_NEEDED = ("starlette", "uvicorn", "fastavro", "jsonschema", "protoxy")


@app.command()
def schema_registry(
    *,
    listen: ServedAt = "localhost:8081",
    allow_remote: AllowRemote = False,
    allow_host: AllowHosts = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Serve a schema registry with Confluent's REST API. The schemas are stored in the topic _schemas.

    barnabas schema-registry -b localhost:9092
    """

    async def work() -> None:
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise ValueError(f"the registry requires {', '.join(missing)}: pip install 'barnabas[schema-registry]'")
        where = parse_listen("--listen", listen, allow_host or (), allow_remote=allow_remote)
        from ..registry.server import serve

        await serve(connection_settings_of(bootstrap), where, lambda url: print(f"schema registry {url}", flush=True))

    run(work())

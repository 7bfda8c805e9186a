"""Common options of commands that serve pages: their address, and the settings of their clients."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from .client_settings import bootstrap_servers, client_arguments

if TYPE_CHECKING:
    from ..connection_settings import ConnectionSettings
    from ..http_server import ListenAddress

_NEEDED = ("starlette", "uvicorn")
ACCESS_TOKEN = "BARNABAS_CONSOLE_TOKEN"  # noqa: S105 - the name of the variable
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")

ServedAt = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on.")]
AllowRemote = Annotated[
    bool,
    typer.Option("--allow-remote", help="Accept connections from other machines, without TLS."),
]
AllowHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="Host name under which browsers reach the service; may be repeated."
    ),
]


def require_extra() -> None:
    """Raise ValueError if the console's packages are not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError(f"the console requires {' and '.join(missing)}: pip install 'barnabas[console]'")


def parse_listen(option: str, text: str, names: Sequence[str] = (), *, allow_remote: bool) -> ListenAddress:
    """Parse `host:port`, or `:port` for all interfaces. Raises ValueError, also for a remote address without
    permission.
    """
    from ..http_server import ListenAddress

    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{option} {text}: expected HOST:PORT")
    listen = ListenAddress(host.strip("[]"), int(port), tuple(names))
    if not listen.is_local and not allow_remote:
        where = listen.host or "every address"
        raise ValueError(
            f"{option} {text}: {where} accepts connections from other machines without authentication. "
            "Add --allow-remote to permit it"
        )
    return listen


def access_token(
    option: str, said: str | None, listen: ListenAddress, connection_settings: ConnectionSettings
) -> str | None:
    """Return the token that the console requires: `on` generates one, `off` means none; None uses the environment's.

    Without either, a token is required if a local user could do more with the console than without it: if it has
    credentials for the cluster, or accepts connections from other machines. Raises ValueError.
    """
    from ...clients.security import PLAINTEXT

    if said is None:
        said = os.environ.get(ACCESS_TOKEN)
    if said is None:
        said = (
            "on" if not listen.is_local or connection_settings.admin.get("security", PLAINTEXT) != PLAINTEXT else "off"
        )
    if said == "off":
        return None
    if said == "on":
        return secrets.token_urlsafe(24)
    if not _TOKEN.fullmatch(said):
        raise ValueError(f"{option}: expected on, off, or at least 16 letters, digits, - and _")
    return said


def connection_settings_of(bootstrap: str, schemas: Sequence[str] = ()) -> ConnectionSettings:
    """Return the settings of this command line for each kind of client, and the sources of schemas. Raises
    ValueError.
    """
    from ...clients.admin import Admin
    from ...clients.consumer import Consumer
    from ...clients.decoding.schemas import schema_source
    from ...clients.group.settings import GroupOptions
    from ...clients.producer import Producer
    from ..connection_settings import ConnectionSettings

    # A file may contain group settings for other clients; the console's consumers have no group.
    consumer = client_arguments(Consumer, without=GroupOptions.__optional_keys__)
    clients = client_arguments(Admin), consumer, client_arguments(Producer)
    return ConnectionSettings(bootstrap_servers(bootstrap), *clients, tuple(map(schema_source, schemas)))

"""What commands that serve pages share: their address as it is written, and how their clients are told the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from .client_settings import bootstrap_servers, client_arguments

if TYPE_CHECKING:
    from ..http_server import Listen
    from ..reach import Reach

_NEEDED = ("starlette", "uvicorn")

ServedAt = Annotated[str, typer.Option("--listen", "-l", metavar="HOST:PORT", help="Where to serve.")]
AllowRemote = Annotated[
    bool, typer.Option("--allow-remote", help="Other machines may reach it; nobody has to prove who he is.")
]
AllowHosts = Annotated[
    list[str] | None, typer.Option("--allow-host", metavar="NAME", help="Another name it is reached by.")
]


def require_extra() -> None:
    """Raise ValueError if the console's packages are not here."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError(f"the console needs {' and '.join(missing)}: pip install 'barnabas[console]'")


def parse_listen(option: str, text: str, names: Sequence[str] = (), *, allow_remote: bool) -> Listen:
    """`host:port`, or `:port` for all interfaces. Raises ValueError, also for what others reach and nobody allowed."""
    from ..http_server import Listen

    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{option} {text}: HOST:PORT is expected")
    listen = Listen(host.strip("[]"), int(port), tuple(names))
    if not listen.is_local and not allow_remote:
        where = listen.host or "every address"
        raise ValueError(
            f"{option} {text}: {where} is open to other machines, to do anything, and --allow-remote is not said"
        )
    return listen


def reach_of(bootstrap: str, schemas: Sequence[str] = ()) -> Reach:
    """The settings of this command line for each kind of client, and where schemas are. Raises ValueError."""
    from ..admin import Admin
    from ..console.decoding.schemas import schema_source
    from ..consumer import Consumer
    from ..group.settings import GroupOptions
    from ..producer import Producer
    from ..reach import Reach

    # A file may say of groups what its other readers want; the console's consumers are in none.
    consumer = client_arguments(Consumer, without=GroupOptions.__optional_keys__)
    clients = client_arguments(Admin), consumer, client_arguments(Producer)
    return Reach(bootstrap_servers(bootstrap), *clients, tuple(map(schema_source, schemas)))

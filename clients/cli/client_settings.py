"""What a command's client is told beside the command's own options: `--command-config` and `-X`, for every command.

Both take Kafka's names. A file may hold what other clients want, too, and so may what it says; a `-X` that says nothing
to this client is a mistake and refused. What connections need (`security.*`, `ssl.*`, `sasl.*`) goes into one Security.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack, get_args, get_origin, get_type_hints

import typer
from typer.main import get_command

from ...protocol.properties import parse_properties
from ..security import PLAINTEXT, Security, security_of
from .reasons import reason

if TYPE_CHECKING:
    from ..admin import Admin

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_SERVERS = "bootstrap.servers"
_CONNECT_MS = 5_000
"""Who sits at a terminal should not wait longer for something that is no broker."""

command_config: ContextVar[Path | None] = ContextVar("command_config", default=None)
"""The client.properties of this command line."""
overrides: ContextVar[Mapping[str, str]] = ContextVar("overrides", default={})  # noqa: B039 - nobody changes it
"""What `-X` says."""

_NAMES = {"compression.type": "compression", "max.in.flight.requests.per.connection": "max_in_flight"}
_SECURITY = ("security.", "ssl.", "sasl.")
_NO_SETTINGS = frozenset(
    {"return", "bootstrap_servers", "security", "rng", "wall_clock_ms", "partitioner", "group_id", "transactional_id"}
)
"""Parameters that are no text, or that a command has an option for."""


_FILE_HELP = "A client.properties as Kafka's tools take it: security.protocol, sasl.*, ssl.*."
_SETTINGS_HELP = "A setting of the client, as request.timeout.ms=5000; may be repeated."


def _file_option(**how: Any) -> Any:
    return typer.Option("--command-config", envvar="BARNABAS_COMMAND_CONFIG", metavar="FILE", help=_FILE_HELP, **how)


def _settings_option(**how: Any) -> Any:
    return typer.Option("-X", metavar="KEY=VALUE", help=_SETTINGS_HELP, **how)


CommandConfig = Annotated[Path | None, _file_option()]
ClientSettings = Annotated[list[str] | None, _settings_option()]


def begin(path: Path | None, pairs: list[str] | None) -> None:
    """What was said before the command's name; what is said behind it comes on top."""
    command_config.set(path)
    overrides.set(parse_settings(pairs or ()))


def _take_file(path: Path | None) -> None:
    if path is not None:
        command_config.set(path)


def _add_settings(pairs: list[str] | None) -> None:
    overrides.set({**overrides.get(), **parse_settings(pairs or ())})


def _as_options(
    *,
    settings: Annotated[list[str] | None, _settings_option(callback=_add_settings, expose_value=False)] = None,
    command_config: Annotated[Path | None, _file_option(callback=_take_file, expose_value=False)] = None,
) -> None:
    """Their values are remembered as they are read."""


@cache
def cluster_options() -> list[Any]:
    """Both as parameters that any command of a client can be given."""
    carrier = typer.Typer(add_completion=False)
    carrier.command()(_as_options)
    return list(get_command(carrier).params)


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` options. Raises typer.BadParameter."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE")
        settings[key.strip()] = value
    return settings


def client_properties() -> dict[str, str]:
    """The file's, with those of `-X` on top. Raises ValueError."""
    path = command_config.get()
    try:
        said = {} if path is None else parse_properties(path.read_text(encoding="iso-8859-1"))
    except (OSError, ValueError) as error:
        raise ValueError(_of_file(path, error)) from None
    return {**said, **overrides.get()}


def _of_file(path: Path | None, error: Exception) -> str:
    told = reason(error)
    return told if path is None or told.startswith(f"{path}:") else f"{path}: {told}"


def bootstrap_servers(option: str) -> str:
    """What the option says, or the settings if nothing was said."""
    return client_properties().get(BOOTSTRAP_SERVERS, option) if option == DEFAULT_BOOTSTRAP else option


def security() -> Security:
    """What the settings say about who both ends are. Raises ValueError."""
    properties = client_properties()
    if not any(name.startswith(_SECURITY) for name in properties):
        return PLAINTEXT
    try:
        return security_of(properties)
    except (OSError, ValueError) as error:
        path = command_config.get()
        raise ValueError(_of_file(path, error)) from None


def client_arguments(client: Callable[..., Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """The settings as keyword arguments of Producer, Consumer or Admin, with security, `without` these names.

    Raises ValueError.
    """
    known = {name: kind for name, kind in _parameters(client).items() if name not in without}
    arguments: dict[str, Any] = {"socket_connection_setup_timeout_ms": _CONNECT_MS, "security": security()}
    for key, text in client_properties().items():
        if key == BOOTSTRAP_SERVERS or key.startswith(_SECURITY):
            continue
        name = _NAMES.get(key, key.replace(".", "_"))
        if name in known:
            arguments[name] = _typed(key, text, known[name])
        elif key in overrides.get():
            raise ValueError(f"-X {key}: no setting of this command's client{_nearest(key, known)}")
    return arguments


def _parameters(client: Callable[..., Any]) -> dict[str, Any]:
    """Names and types of what can be set, those that a TypedDict gathers inclusive."""
    hints = get_type_hints(vars(client)["__init__"])
    known: dict[str, Any] = {}
    for name, kind in hints.items():
        if get_origin(kind) is Unpack:
            known |= get_type_hints(get_args(kind)[0])
        elif name not in _NO_SETTINGS:
            known[name] = kind
    return known


def _nearest(key: str, known: Mapping[str, object]) -> str:
    shown = {name: kafka for kafka, name in _NAMES.items()}
    names = [BOOTSTRAP_SERVERS, *(shown.get(name, name.replace("_", ".")) for name in known)]
    near = get_close_matches(key, names, n=1)
    return f"; do you mean {near[0]}?" if near else ""


def _typed(key: str, text: str, kind: object) -> object:
    """Text as the parameter wants it, which lists types as `int | None`. Raises ValueError."""
    lowered = text.lower()
    if "bool" in str(kind):
        if lowered not in ("true", "false"):
            raise ValueError(f"{key}={text}: true or false is expected")
        return lowered == "true"
    for number in (int, float):
        if number is kind or number.__name__ in str(kind).replace("Literal", ""):
            try:
                return number(text)
            except ValueError:
                raise ValueError(f"{key}={text}: a number is expected") from None
    return text


def admin_of(bootstrap: str) -> Admin:
    """An admin client as the settings have it."""
    # Most of what a command loads, and not every command needs it.
    from ..admin import Admin

    return Admin(bootstrap_servers(bootstrap), **client_arguments(Admin))

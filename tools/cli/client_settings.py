"""Settings of a command's client in addition to its options: `--command-config` and `-X`, for every command.

Both have Kafka's names. A file may contain settings and values for other clients; `-X` with a setting that this client
does not have is rejected. Settings of connections (`security.*`, `ssl.*`, `sasl.*`) become one Security.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from copy import copy
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack, get_args, get_origin, get_type_hints

import typer
from typer.main import get_command

from ...clients.security import PLAINTEXT, Security, security_of
from ...common.properties import parse_properties
from .reasons import reason

if TYPE_CHECKING:
    from ...clients.admin import Admin

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_SERVERS = "bootstrap.servers"
_CONNECT_MS = 5_000
"""Shorter timeout of commands at an address that is not a broker."""

command_config: ContextVar[Path | None] = ContextVar("command_config", default=None)
"""The client.properties of this command line."""
overrides: ContextVar[Mapping[str, str]] = ContextVar("overrides", default={})  # noqa: B039 - it is never changed
"""Settings of `-X`."""

_NAMES = {"compression.type": "compression", "max.in.flight.requests.per.connection": "max_in_flight"}
_SECURITY = ("security.", "ssl.", "sasl.")
_NO_SETTINGS = frozenset(
    {
        "return",
        "bootstrap_servers",
        "security",
        "rng",
        "wall_clock_ms",
        "partitioner",
        "group_id",
        "transactional_id",
        "topics",
    }
)
"""Parameters that are not text, or have an option of their own."""


_FILE_HELP = "client.properties file, as for Kafka's tools, with security.protocol, sasl.*, ssl.*."
_SETTINGS_HELP = "Client setting, such as request.timeout.ms=5000; may be repeated."


def _file_option(**how: Any) -> Any:
    return typer.Option("--command-config", metavar="FILE", help=_FILE_HELP, **how)


def _settings_option(**how: Any) -> Any:
    # Kafka's tools have `--command-property` (KIP-1147), kcat has `-X`.
    return typer.Option("-X", "--command-property", metavar="KEY=VALUE", help=_SETTINGS_HELP, **how)


# Only the option before the command's name reads the variable: the option after the name overrides the option before
# it, and must not do so with the value of the variable.
CommandConfig = Annotated[Path | None, _file_option(envvar="BARNABAS_COMMAND_CONFIG")]
ClientSettings = Annotated[list[str] | None, _settings_option()]


def begin(path: Path | None, pairs: list[str] | None) -> None:
    """Settings before the command's name; settings after it override them."""
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
    """Store their values as they are parsed."""


@cache
def _common_options() -> list[Any]:
    carrier = typer.Typer(add_completion=False)
    carrier.command()(_as_options)
    return list(get_command(carrier).params)


FORMER_SPELLINGS = {
    "produce": {"command_config": "--producer.config", "settings": "--producer-property"},
    "consume": {"command_config": "--consumer.config", "settings": "--consumer-property"},
    "elections": {"command_config": "--admin.config"},
}
"""The options of Kafka's tools before KIP-1147, by the command that corresponds to the tool. Kafka accepts both."""


def cluster_options(command: str = "") -> list[Any]:
    """Return both options as parameters for a command with a client, with Kafka's former spellings of its tool."""
    options = []
    for option in _common_options():
        former = FORMER_SPELLINGS.get(command, {}).get(option.name)
        if former is not None:
            option = copy(option)
            option.opts = [*option.opts, former]
        options.append(option)
    return options


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` options. Raises typer.BadParameter."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE")
        settings[key.strip()] = value
    return settings


def client_properties() -> dict[str, str]:
    """Return the file's settings, overridden by `-X`. Raises ValueError."""
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
    """Return the option's value, or without it the setting's."""
    return client_properties().get(BOOTSTRAP_SERVERS, option) if option == DEFAULT_BOOTSTRAP else option


def security() -> Security:
    """Return the security settings. Raises ValueError."""
    properties = client_properties()
    if not any(name.startswith(_SECURITY) for name in properties):
        return PLAINTEXT
    try:
        return security_of(properties)
    except (OSError, ValueError) as error:
        path = command_config.get()
        raise ValueError(_of_file(path, error)) from None


def client_arguments(client: Callable[..., Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings as keyword arguments of Producer, Consumer or Admin, with security, `without` these names.

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
            raise ValueError(f"-X {key}: unknown setting of this command's client{_nearest(key, known)}")
    return arguments


def _parameters(client: Callable[..., Any]) -> dict[str, Any]:
    """Return the names and types of the settings, including the keys of a TypedDict."""
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
    return f"; did you mean {near[0]}?" if near else ""


def _typed(key: str, text: str, kind: object) -> object:
    """Parse text for the parameter's type, such as `int | None`. Raises ValueError."""
    lowered = text.lower()
    if "bool" in str(kind):
        if lowered not in ("true", "false"):
            raise ValueError(f"{key}={text}: expected true or false")
        return lowered == "true"
    for number in (int, float):
        if number is kind or number.__name__ in str(kind).replace("Literal", ""):
            try:
                return number(text)
            except ValueError:
                raise ValueError(f"{key}={text}: expected a number") from None
    return text


def admin_of(bootstrap: str) -> Admin:
    """Create an admin client with the settings."""
    # This import is most of the load time of a command, and not every command needs it.
    from ...clients.admin import Admin

    return Admin(bootstrap_servers(bootstrap), **client_arguments(Admin))

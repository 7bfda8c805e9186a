"""The table of commands, loaded by name."""

from __future__ import annotations

import os
import platform
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ... import __version__
from ...protocol.native import native
from . import coordinator, start
from .argparse_command import command_of_parser
from .client_settings import (
    ClientSettings,
    CommandConfig,
    begin,
    cluster_options,
)
from .reasons import reason
from .session import BOOTSTRAP_VARIABLE, Bootstrap, warn

COMMANDS = (
    "start",
    "cluster",
    "coordinator",
    "topic",
    "produce",
    "consume",
    "offsets",
    "group",
    "share-group",
    "streams-group",
    "transactions",
    "config",
    "broker",
    "quota",
    "acl",
    "user",
    "features",
    "elections",
    "reassign",
    "log-dirs",
    "client-metrics",
    "top",
    "console",
    "schema-registry",
    "backup",
    "restore",
    "dump-log",
    "compact",
    "bench",
    "demo",
    "spark",
    "table",
    "certs",
    "service",
)
"""The Typer object `app` of each module, except for the commands in `SERVERS`."""
SERVERS = {"start": (start.parser, start.START_HELP), "coordinator": (coordinator.parser, coordinator.COORDINATOR_HELP)}
"""Functions called before this module is loaded: command_of_parser and completed."""


class LazyGroup(TyperGroup):
    """A Typer group that imports a command's module when the command is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in SERVERS:
            parser, short_help = SERVERS[cmd_name]
            return command_of_parser(parser(), short_help)
        module = import_module(f".{cmd_name.replace('-', '_')}", __package__)
        command = get_command(module.app)
        command.name = cmd_name
        _give_cluster_options(command, cmd_name)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        near = get_close_matches(args[0], COMMANDS, n=1)
        if near and args[0] not in COMMANDS:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


def _give_cluster_options(command: Any, name: str) -> None:
    """Add the options of all commands that connect to a cluster."""
    for one in getattr(command, "commands", {}).values():
        _give_cluster_options(one, name)
    if any(parameter.name == "bootstrap" for parameter in command.params):
        command.params.extend(cluster_options(name))


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


def _print_version(wanted: bool) -> None:
    if wanted:
        code = "compiled code" if native is not None else "no compiled code"
        typer.echo(f"barnabas {__version__} (Python {platform.python_version()}, {code})")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    bootstrap: Bootstrap = "",
    command_config: CommandConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Kafka's broker and storage engine in Python, and a command line for any Kafka cluster.

    A broker in one line: barnabas start --data ./data --topic flights:4
    """
    if bootstrap:
        os.environ[BOOTSTRAP_VARIABLE] = bootstrap
    begin(command_config, settings)


_UsageError: Any = typer.BadParameter.__mro__[1]
"""The error of a command line that cannot be parsed, which typer does not export."""


def main(arguments: list[str]) -> int:
    """Run one command and return its exit status: 2 for a command line that cannot be used, 1 for another error.

    Each error is one line on standard error that begins with `barnabas:`.
    """
    try:
        status: object = get_command(app).main(arguments, prog_name="barnabas", standalone_mode=False)
    except _UsageError as error:
        # Typer has shown the help of a group of commands that was given no command.
        if type(error).__name__ != "NoArgsIsHelpError":
            path = error.ctx.command_path if error.ctx is not None else "barnabas"
            warn(f"{error.format_message().rstrip('.')}. See {path} --help")
        return int(error.exit_code)
    except typer.Abort:
        warn("aborted")
        return 1
    except OSError as error:  # standard output may be closed
        warn(reason(error))
        return 1
    return status if isinstance(status, int) else 0

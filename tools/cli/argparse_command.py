"""A command parsed by argparse within the table of commands, with the same help and shell completion."""

from __future__ import annotations

import argparse
import inspect
from enum import Enum
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.main import get_command


def command_of_parser(parser: argparse.ArgumentParser, short_help: str) -> Any:
    """Return a command with the parser's arguments, for help and completion; it is executed with the parser."""

    def command(**values: object) -> None:
        parser.error(f"client options before the command are not supported by {parser.prog}")

    parameters = [_parameter(action) for action in parser._actions if action.dest != "help"]
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    carrier = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    words = f"{parser.description}\n\n{parser.epilog}"
    carrier.command(parser.prog.split()[-1], help=words, short_help=short_help)(command)
    return get_command(carrier)


def _parameter(action: argparse.Action) -> inspect.Parameter:
    kind: Any = Enum(action.dest, [(name, name) for name in action.choices]) if action.choices else str
    if action.type is int or action.nargs == 0:
        kind = int if action.type is int else bool
    if isinstance(action.default, list):
        kind = list[kind]
    about: dict[str, Any] = {"help": escape(action.help or ""), "metavar": None if action.choices else action.metavar}
    told: Any = typer.Option(*action.option_strings, **about) if action.option_strings else typer.Argument(**about)
    annotation = Annotated[kind | None, told]
    default = kind(action.default) if action.choices else None
    return inspect.Parameter(action.dest, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

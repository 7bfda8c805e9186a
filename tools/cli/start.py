"""`barnabas start`: settings from a file and from options, then the broker."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .reasons import reason

if TYPE_CHECKING:
    import argparse

DEFAULT_DATA = "./barnabas-data"
DEFAULT_PORT = 9092
START_HELP = "Start a broker: one process with one data directory."
ENVIRONMENT = "BARNABAS_CONFIG_"
_UNDERSCORES = re.compile("_{1,3}")
DEFAULT_CONSOLE = "127.0.0.1:8080"
CONSOLE_HELP = f"serve the web console in the broker's process ({DEFAULT_CONSOLE}); requires barnabas[console]"
SCHEMAS_HELP = "schema registry, or file or directory of schemas, to decode Avro and Protobuf records; may be repeated"
TOKEN_HELP = "access token of the console: on creates one, off requires none (default: on with credentials)"  # noqa: S105
CONSOLE_ONLY = ("console_config", "console_schemas", "console_token")
HELP_COLUMNS = 100
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    options = options_of(arguments)
    config_room = import_module("barnabas.server.config.broker_config")
    try:
        properties = _properties(options)
        topics = topics_of(options)
        companion = _console(options)
        config = config_room.BrokerConfig.from_properties(properties, os.environ)
        log = log_output(options)
    except (OSError, ValueError) as error:
        print(f"barnabas start: {reason(error)}", file=sys.stderr)
        return 2
    try:
        status: int = import_module("barnabas.server.__main__").run(config, topics, log, companion)
    except Exception as error:  # noqa: BLE001 - the process ends with the reason instead of a traceback
        print(f"barnabas start: {reason(error)}", file=sys.stderr)
        return 1
    return status


def options_of(arguments: list[str]) -> SimpleNamespace:
    """Parse the options, then unload the parser: half a megabyte that the broker does not need."""
    known = set(sys.modules)
    read = vars(parser().parse_args(arguments))
    for name in {"argparse", "gettext", "locale"} - known:
        sys.modules.pop(name, None)
    sys.modules.pop(f"{__package__}.one_line_parser", None)
    return SimpleNamespace(**read)


def parser() -> argparse.ArgumentParser:
    """Return the parser of `start`, with argparse, which loads fast."""
    import argparse

    from .one_line_parser import OneLineParser

    parser = OneLineParser(
        prog="barnabas start",
        description="Start a broker: one process with one data directory. Prints its listeners, and `ready` when it "
        "serves clients.",
        epilog="Kafka's server.properties files work unchanged. Environment variables such as "
        "BARNABAS_CONFIG_NUM_PARTITIONS=3 override the file, and options override both.",
        # Without a width argparse would import the codecs of archives at each start to read the terminal's width.
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=HELP_COLUMNS),
    )
    add = parser.add_argument
    add("properties", nargs="?", metavar="server.properties", help="file with Kafka's broker settings")
    add("--data", metavar="DIR", help=f"data directory (log.dirs; {DEFAULT_DATA} unless the file sets it)")
    add("--listener", action="append", default=[], metavar="NAME://HOST:PORT", help="listener address; may be repeated")
    add(
        "--advertise",
        action="append",
        default=[],
        metavar="NAME://HOST:PORT",
        help="address of a listener that is sent to clients",
    )
    add(
        "--port",
        type=int,
        metavar="N",
        help=f"short for --listener PLAINTEXT://127.0.0.1:N ({DEFAULT_PORT}; 0: any free port)",
    )
    add(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="create this topic if it does not exist",
    )
    setting_help = "another broker setting; may be repeated"
    add("--override", "--config", action="append", default=[], metavar="KEY=VALUE", help=setting_help)
    add("--console", nargs="?", const=DEFAULT_CONSOLE, metavar="HOST:PORT", help=CONSOLE_HELP)
    add("--console-config", metavar="FILE", help="client.properties for the console's connection to the broker")
    add("--console-token", nargs="?", const="on", metavar="on|off|TOKEN", help=TOKEN_HELP)
    add("--console-schemas", action="append", default=[], metavar="URL|PATH", help=SCHEMAS_HELP)
    add("--log-level", default="INFO", type=str.upper, choices=LOG_LEVELS, help="lowest level that is logged")
    add("--log-format", default="text", choices=("text", "json"), help="format of log lines")
    add(
        "--log-file",
        metavar="FILE",
        help="log to this file instead of standard error; rotates at 100 MB and keeps ten old files",
    )
    return parser


def topics_of(options: SimpleNamespace) -> dict[str, int]:
    """Return the topics to create, with their numbers of partitions. Raises ValueError."""
    return dict(map(_topic, options.topic))


def log_output(options: SimpleNamespace) -> Any:
    """Return the broker's log output."""
    output: Any = import_module("barnabas.server.runtime.log_output").LogOutput
    return output(options.log_level.upper(), options.log_format, options.log_file)


def _console(options: SimpleNamespace) -> Any:
    """Return the companion of the broker, if any. Raises ValueError, also for console settings without a console."""
    if options.console is None:
        unused = [name for name in CONSOLE_ONLY if getattr(options, name)]
        if unused:
            raise ValueError(f"--{unused[0].replace('_', '-')} requires --console")
        return None
    beside = import_module("barnabas.tools.cli.console_beside").console_beside
    return beside(options.console, options.console_config, options.console_schemas, options.console_token)


def _properties(options: SimpleNamespace) -> dict[str, str]:
    """Return the file's settings, overridden by the options. Raises OSError, ValueError."""
    properties: dict[str, str] = {}
    if options.properties is not None:
        parse: Any = import_module("barnabas.common.properties").parse_properties
        text = Path(options.properties).read_text(encoding="iso-8859-1")  # as in Java
        try:
            properties.update(parse(text))
        except ValueError as error:
            raise ValueError(f"{options.properties}: {error}") from None
    properties.update(environment_properties(os.environ))
    apply_options(properties, options)
    return properties


def apply_options(properties: dict[str, str], options: SimpleNamespace) -> None:
    """Override settings by the options, and set the defaults of `start`. Raises ValueError."""
    if options.data is not None:
        properties["log.dirs"] = options.data
    elif not {"log.dirs", "log.dir"} & set(properties):
        properties["log.dirs"] = DEFAULT_DATA
    listeners = list(options.listener)
    if options.port is not None:
        listeners.append(f"PLAINTEXT://127.0.0.1:{options.port}")
    elif not listeners and "listeners" not in properties:
        listeners.append(f"PLAINTEXT://127.0.0.1:{DEFAULT_PORT}")
    if listeners:
        properties["listeners"] = ",".join(listeners)
        properties.pop("advertised.listeners", None)
    if options.advertise:
        properties["advertised.listeners"] = ",".join(options.advertise)
    for override in options.override:
        key, equals, value = override.partition("=")
        if not equals:
            raise ValueError(f"--override {override}: expected KEY=VALUE")
        properties[key.strip()] = value
    if options.console is not None:
        properties.setdefault("metrics.listeners", "127.0.0.1:0")
    # Local tools can query the broker on this port; an empty value disables it.
    if not properties.setdefault("health.port", "0"):
        del properties["health.port"]


def environment_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings from the environment of a container: `BARNABAS_CONFIG_NUM_PARTITIONS`, as in Kafka's images.

    A dot of a key is `_`, an underscore `__`, a dash `___`.
    """
    prefixed = {name.removeprefix(ENVIRONMENT): v for name, v in environment.items() if name.startswith(ENVIRONMENT)}
    return {_UNDERSCORES.sub(lambda run: "._-"[len(run[0]) - 1], key.lower()): v for key, v in prefixed.items()}


def _topic(declared: str) -> tuple[str, int]:
    name, _, partitions = declared.partition(":")
    if partitions and not (partitions.isdecimal() and int(partitions)):
        raise ValueError(f"--topic {declared}: expected NAME or NAME:PARTITIONS")
    return name, int(partitions or 1)

"""`barnabas coordinator`: the metadata tree of a cluster, served over ZooKeeper's protocol by its own process."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from .one_line_parser import OneLineParser
from .reasons import reason

DEFAULT_ADDRESS = "127.0.0.1:2181"
COORDINATOR_HELP = "Serve the metadata of a cluster, in place of ZooKeeper."


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    options = parser().parse_args(arguments)
    listeners = import_module("barnabas.server.config.listeners")
    log = import_module("barnabas.server.runtime.log_output").LogOutput(options.log_level)
    try:
        addresses = listeners.parse_addresses("--listen", options.listen)
        open_hosts = [host or "every address" for host, _ in addresses if not listeners.is_loopback(host)]
        if open_hosts and not options.allow_remote:
            raise ValueError(
                f"{open_hosts[0]} accepts connections from other machines. Add --allow-remote to permit it"
            )
    except ValueError as error:
        print(f"barnabas coordinator: {reason(error)}", file=sys.stderr)
        return 2
    try:
        run = import_module("barnabas.server.metadata.served.process").run
        status: int = run(options.data, addresses, log, owner_only=options.owner_only)
    except Exception as error:  # noqa: BLE001 - the process ends with the reason instead of a traceback
        print(f"barnabas coordinator: {reason(error)}", file=sys.stderr)
        return 1
    return status


def parser() -> argparse.ArgumentParser:
    """Return the parser of `coordinator`."""
    parser = OneLineParser(
        prog="barnabas coordinator",
        description="Serve the metadata tree of a cluster to brokers, in place of a ZooKeeper ensemble. "
        "Prints its addresses, and `ready` when it serves brokers.",
        epilog="Brokers connect to it with zookeeper.connect. For more than one machine use Apache ZooKeeper.",
    )
    add = parser.add_argument
    add("--data", metavar="DIR", type=Path, required=True, help="directory of the stored metadata")
    add("--listen", metavar="HOST:PORT", default=DEFAULT_ADDRESS, help=f"address for brokers ({DEFAULT_ADDRESS})")
    add("--allow-remote", action="store_true", help="accept connections from other machines, without authentication")
    add("--owner-only", action="store_true", help="refuse connections of other users of this machine (Linux)")
    add(
        "--log-level",
        default="INFO",
        type=str.upper,
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        help="lowest level that is logged",
    )
    return parser

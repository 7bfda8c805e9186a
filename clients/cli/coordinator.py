"""`barnabas coordinator`: what brokers of a cluster share, served over ZooKeeper's protocol by a process of its own."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from .reasons import reason

DEFAULT_ADDRESS = "127.0.0.1:2181"
COORDINATOR_HELP = "Serve what brokers of a cluster share, without ZooKeeper."


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    options = parser().parse_args(arguments)
    listeners = import_module("barnabas.server.config.listeners")
    log = import_module("barnabas.server.runtime.log_output").LogOutput(options.log_level)
    try:
        addresses = listeners.parse_addresses("--listen", options.listen)
        open_hosts = [host or "every address" for host, _ in addresses if not listeners.is_loopback(host)]
        if open_hosts and not options.allow_remote:
            raise ValueError(f"{open_hosts[0]} is open to other machines, and --allow-remote is not said")
    except ValueError as error:
        print(f"barnabas coordinator: {reason(error)}", file=sys.stderr)
        return 2
    try:
        status: int = import_module("barnabas.server.metadata.served.process").run(options.data, addresses, log)
    except Exception as error:  # noqa: BLE001 - the end of the process: the reason, not a traceback, is the answer
        print(f"barnabas coordinator: {reason(error)}", file=sys.stderr)
        return 1
    return status


def parser() -> argparse.ArgumentParser:
    """The options of `coordinator`."""
    parser = argparse.ArgumentParser(
        prog="barnabas coordinator",
        description="Serve the tree that brokers share, as if it were a ZooKeeper of one server: "
        "one durable process. Prints `ready` and its addresses once it serves.",
        epilog="Brokers are told of it by zookeeper.connect. For more than one machine take Apache ZooKeeper.",
    )
    add = parser.add_argument
    add("--data", metavar="DIR", type=Path, required=True, help="where the tree is kept")
    add("--listen", metavar="HOST:PORT", default=DEFAULT_ADDRESS, help=f"where brokers reach it ({DEFAULT_ADDRESS})")
    add("--allow-remote", action="store_true", help="other machines may, and nobody has to prove who he is")
    add("--log-level", default="INFO", type=str.upper, choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
    return parser

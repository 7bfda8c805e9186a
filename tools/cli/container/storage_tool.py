"""`kafka-storage` in the container: a cluster's id is stored in the log directories before the first start."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ....common.properties import parse_properties
from ....common.uuid_text import new_uuid, uuid_text
from ..reasons import reason
from .scram_argument import ScramLogin, parse_scram

NO_NODE = "1"


def format_directories(
    properties: dict[str, str], cluster_id: str | None, logins: Sequence[ScramLogin] = ()
) -> dict[str, str]:
    """Write `meta.properties` in the log directories without one, durably; return the cluster ids of the others.

    Without a cluster id they get the id of the others, or of the metadata store that an interrupted format has left, or
    a random one. The users of `logins` are stored if all directories are new.

    Raises OSError, ValueError, StoreError, and StorageError for a file that cannot be read.
    """
    room: Any = import_module("barnabas.storage.meta_properties")
    filesystem: Any = import_module("barnabas.storage.filesystem").OsFileSystem()
    node_id = int(properties.get("node.id") or properties.get("broker.id") or NO_NODE)
    found = {}
    for log_dir in log_dirs(properties):
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        found[log_dir] = room.read_meta_properties(filesystem, log_dir)
    others = {log_dir: one.cluster_id or "" for log_dir, one in found.items() if one is not None}
    if logins and not others:
        # Before meta.properties: after an interruption, the next format stores the users again.
        cluster_id = _store_users(properties, cluster_id, logins)
    cluster_id = cluster_id or next(filter(None, others.values()), None) or uuid_text(new_uuid(os.urandom))
    for log_dir in [one for one in found if one not in others]:
        wanted = room.MetaProperties(1, node_id, cluster_id, uuid_text(new_uuid(os.urandom)))
        room.write_meta_properties(filesystem, log_dir, wanted)
    return others


def _store_users(properties: dict[str, str], cluster_id: str | None, logins: Sequence[ScramLogin]) -> str:
    """Return the cluster id of the metadata store."""
    config: Any = import_module("barnabas.server.config.broker_config").BrokerConfig.from_properties(
        properties, os.environ
    )
    if config.is_kraft:
        raise ValueError("process.roles=broker: the controllers store the users. Format a controller with --add-scram")
    if config.zookeeper_connect:
        raise ValueError("zookeeper.connect: ZooKeeper stores the users. Start the broker, and run barnabas user add")
    import asyncio  # the other commands do not need it

    users = [(one.name, one.mechanism, one.credential(os.urandom)) for one in logins]
    store: Any = import_module("barnabas.server.metadata.initial_users").store_initial_users
    stored_id: str = asyncio.run(
        store(
            config.metadata_store_path,
            cluster_id,
            users,
            now_ms=lambda: time.time_ns() // 1_000_000,
            token_bytes=os.urandom,
        )
    )
    return stored_id


def log_dirs(properties: dict[str, str]) -> list[str]:
    """Return the absolute paths of `log.dirs`, else of `log.dir`."""
    text = properties.get("log.dirs") or properties.get("log.dir") or ""
    return [str(Path(one.strip()).absolute()) for one in text.split(",") if one.strip()]


def main(arguments: Sequence[str]) -> int:
    """Run `kafka-storage`; return the exit status."""
    options = parser().parse_args(arguments)
    if options.command == "random-uuid":
        print(uuid_text(new_uuid(os.urandom)))
        return 0
    try:
        properties = parse_properties(Path(options.config).read_text(encoding="iso-8859-1"))
        if not log_dirs(properties):
            raise ValueError(f"{options.config}: log.dirs is not set")
        if options.command == "info":
            return _info(properties)
        logins = [parse_scram(argument) for argument in options.add_scram]
        formatted = format_directories(properties, options.cluster_id, logins)
    except Exception as error:  # noqa: BLE001 - the tool ends with the reason instead of a traceback
        print(f"kafka-storage: {reason(error)}", file=sys.stderr)
        return 1
    for log_dir in log_dirs(properties):
        if log_dir not in formatted:
            print(f"Formatting {log_dir} with cluster id {options.cluster_id}.")
    if formatted and not options.ignore_formatted:
        print(f"Log directory {next(iter(formatted))} is already formatted. Use --ignore-formatted", file=sys.stderr)
        return 1
    if formatted:
        print(f"Already formatted: {', '.join(f'{path} (cluster id {owner})' for path, owner in formatted.items())}.")
        if logins:
            print("The users of --add-scram are not stored in formatted directories.", file=sys.stderr)
    return 0


def _info(properties: dict[str, str]) -> int:
    room: Any = import_module("barnabas.storage.meta_properties")
    filesystem: Any = import_module("barnabas.storage.filesystem").OsFileSystem()
    status = 0
    for log_dir in log_dirs(properties):
        found = room.read_meta_properties(filesystem, log_dir)
        print(f"{log_dir}: {found}" if found is not None else f"{log_dir}: not formatted")
        status |= found is None
    return status


def parser() -> argparse.ArgumentParser:
    """Return the parser of `kafka-storage`."""
    parser = argparse.ArgumentParser(prog="kafka-storage", description="Format log directories.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("random-uuid", help="print a new cluster id")
    info = commands.add_parser("info", help="show the ids in the log directories")
    info.add_argument("--config", "-c", required=True, metavar="FILE", help="properties with log.dirs")
    add = commands.add_parser("format", help="store the cluster id in the log directories").add_argument
    add("--config", "-c", required=True, metavar="FILE", help="properties with log.dirs and node.id")
    add("--cluster-id", "-t", required=True, metavar="ID", help="cluster id")
    add("--ignore-formatted", "-g", action="store_true", help="accept formatted directories")
    add(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="MECHANISM=[name=USER,password=PASSWORD]",
        help="store a user in new directories; may be repeated",
    )
    for name in ("--standalone", "-s", "--no-initial-controllers", "-N"):
        add(name, action="store_true", help="accepted without effect")
    for name in ("--initial-controllers", "-I", "--release-version", "-r", "--feature", "-f"):
        add(name, action="append", metavar="VALUE", help="accepted without effect")
    return parser

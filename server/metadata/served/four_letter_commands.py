"""ZooKeeper's four-letter words, except for the words that list clients.

Source: org.apache.zookeeper.server.command of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tree_server import TreeServer

VERSION = "3.8.4-barnabas"
"""The release of ZooKeeper whose protocol this is, where tools look for one."""


def execute_command(server: TreeServer, word: str) -> str:
    if word not in COMMANDS:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return COMMANDS[word](server)


def _environment(_: TreeServer) -> str:
    return f"Environment:\nzookeeper.version={VERSION}\n"


def _server_details(server: TreeServer) -> str:
    tree, connections = server.request_processor.tree, server.connections
    lines = {
        "Received": sum(one.received for one in connections),
        "Sent": sum(one.sent for one in connections),
        "Connections": len(connections),
        "Outstanding": sum(one.in_flight for one in connections),
        "Zxid": hex(tree.zxid),
        "Mode": "standalone",
        "Node count": tree.node_count,
    }
    head = f"Zookeeper version: {VERSION}\n"
    return head + "".join(f"{name}: {value}\n" for name, value in lines.items())


def _server_details_with_clients(server: TreeServer) -> str:
    version, _, rest = _server_details(server).partition("\n")
    clients = "".join(
        f" /{one.host}[1](queued={one.in_flight},recved={one.received},sent={one.sent})\n" for one in server.connections
    )
    return f"{version}\nClients:\n{clients}\n{rest}"


def _monitored_values(server: TreeServer) -> str:
    tree, connections = server.request_processor.tree, server.connections
    figures: dict[str, object] = {
        "version": VERSION,
        "server_state": "standalone",
        "num_alive_connections": len(connections),
        "outstanding_requests": sum(one.in_flight for one in connections),
        "packets_received": sum(one.received for one in connections),
        "packets_sent": sum(one.sent for one in connections),
        "znode_count": tree.node_count,
        "ephemerals_count": tree.ephemeral_count,
        "watch_count": tree.watches.count,
        "global_sessions": len(server.clock),
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in figures.items())


COMMANDS: Mapping[str, Callable[[TreeServer], str]] = {
    "envi": _environment,
    "isro": lambda _: "rw",
    "mntr": _monitored_values,
    "ruok": lambda _: "imok",
    "srvr": _server_details,
    "stat": _server_details_with_clients,
}

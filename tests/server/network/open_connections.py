"""How many connections a broker has."""

from __future__ import annotations

from barnabas.server.network.socket_server import SocketServer


def open_connections(sockets: SocketServer) -> int:
    """On all listeners, as its metrics tell; those that are put off count, too."""
    return sum(sockets.connections_by_listener.values())

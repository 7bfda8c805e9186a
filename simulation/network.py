"""A simulated network: streams with latency, split at random points, that can break, hang and be partitioned.

Bytes of one connection arrive in order or not at all; connections are independent of each other. A link that is cut
holds its bytes back until it heals, as TCP does by retransmission. The peers of a dead machine receive a reset some
time later.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from .loop import WORLD, SimLoop
from .node import NODE, SimNode

HIGH_WATER = 1 << 16
KERNEL_BYTES = 1 << 16
"""Bytes in flight that have left the sender's transport."""


@dataclass(slots=True)
class NetworkFaults:
    """Network faults; times in seconds."""

    latency: float = 0.0005
    jitter: float = 0.0005
    tail_chance: float = 0.0
    """Share of fragments that take up to `tail` longer."""
    tail: float = 0.2
    split_chance: float = 0.2
    """Share of writes that arrive in several fragments."""
    reset_after: float = 1.0
    """Maximum time after which peers detect a dead machine."""


class SimNetwork:
    """All listeners and connections of one world."""

    def __init__(self, loop: SimLoop, rng: random.Random, faults: NetworkFaults | None = None) -> None:
        self.loop = loop
        self.random = rng
        self.faults = faults or NetworkFaults()
        self.connections: dict[Stream, None] = {}
        self._listeners: dict[tuple[str, int], tuple[Callable[[], Any], SimNode]] = {}
        self._next_port = 30000
        self._next_client_port = 1
        self._serving: set[tuple[str, int]] = set()
        self._cut: set[tuple[SimNode, SimNode]] = set()
        self.slow: dict[tuple[SimNode, SimNode], float] = {}
        """Additional seconds of each fragment from one machine to another."""
        self.meddle: Callable[[Stream, bytes], None] | None = None
        """Called before each write, for example to break the connection."""
        loop.network = self

    # -- functions of the loop ----------------------------------------------------------------------------------------

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> SimServer:
        if not port:
            port = self._next_port
            self._next_port += 1
        if (host, port) in self._listeners:
            raise OSError(98, "address in use")
        node = current_node()
        self._listeners[host, port] = (factory, node)
        node.on_kill[lambda: self.unlisten(host, port)] = None
        return SimServer(self, host, port)

    def serve(self, host: str, port: int) -> None:
        """Accept connections from now on; a socket that is bound but not listening refuses them."""
        self._serving.add((host, port))

    def unlisten(self, host: str, port: int) -> None:
        self._listeners.pop((host, port), None)
        self._serving.discard((host, port))

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[asyncio.Transport, Any]:
        client = current_node()
        await asyncio.sleep(self.delay())
        listener = self._listeners.get((host, port))
        if listener is None or (host, port) not in self._serving:
            raise ConnectionRefusedError(111, f"no listener on {host}:{port}")
        server_factory, server = listener
        if self.is_cut(client, server) or self.is_cut(server, client):
            await asyncio.sleep(5.0)
            raise TimeoutError(f"no route from {client.name} to {host}:{port}")
        near, far = Stream(self, client, (host, port)), Stream(self, server, (client.name, self._next_client_port))
        self._next_client_port += 1
        near.peer, far.peer = far, near
        protocol = factory()
        near.attach(protocol)
        protocol.connection_made(near)
        self.loop.call_in(server, self.delay(), far.accept, server_factory)
        return cast(asyncio.Transport, near), protocol

    # -- faults ----------------------------------------------------------------------------------------------------

    def cut(self, sender: SimNode, receiver: SimNode, *, both_ways: bool = True) -> None:
        """Hold back all bytes from one machine to another."""
        self._cut.add((sender, receiver))
        if both_ways:
            self._cut.add((receiver, sender))

    def heal(self) -> None:
        """Restore a direction."""
        self._cut.clear()
        self.slow.clear()
        self._pump()

    def mend(self, first: SimNode, second: SimNode) -> None:
        """Restore both directions between two machines."""
        for way in ((first, second), (second, first)):
            self._cut.discard(way)
            self.slow.pop(way, None)
        self._pump()

    def _pump(self) -> None:
        for stream in list(self.connections):
            stream.pump()

    def is_cut(self, sender: SimNode, receiver: SimNode) -> bool:
        return (sender, receiver) in self._cut

    def reset_some(self, share: float) -> int:
        """Break a share of all connections; return their number."""
        broken = [stream for stream in self.connections if self.random.random() < share]
        for stream in broken:
            stream.reset()
        return len(broken)

    def delay(self) -> float:
        """Return the latency of one fragment in one direction."""
        faults = self.faults
        delay = faults.latency + self.random.random() * faults.jitter
        if self.random.random() < faults.tail_chance:
            delay += self.random.random() * faults.tail
        return delay


class SimServer:
    """A listening socket as asyncio's Server shows it."""

    def __init__(self, network: SimNetwork, host: str, port: int) -> None:
        self._network = network
        self._address = (host, port)
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Do nothing: the bytes in flight are limited by `Faults`."""

    async def start_serving(self) -> None:
        self._network.serve(*self._address)

    def close(self) -> None:
        self._network.unlisten(*self._address)

    async def wait_closed(self) -> None:
        """Return immediately."""


class Stream(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: SimNetwork, node: SimNode, peer_name: tuple[str, int]) -> None:
        super().__init__({"peername": peer_name})
        self.peer: Stream = self
        self._network = network
        self._node = node
        self._protocol: Any = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._inbox: deque[bytes] = deque()
        self._arrives_at = 0.0
        self._high = HIGH_WATER
        self._closing = False
        self._closed = False
        self._ends = False
        self._is_deaf = False
        self._writing_paused = False
        self._reading_paused = False
        network.connections[self] = None
        node.on_kill[self._died] = None

    @property
    def node(self) -> SimNode:
        """Return the machine at this end."""
        return self._node

    # -- asyncio.Transport -----------------------------------------------------------------------------------------

    def attach(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self._unsent_bytes - KERNEL_BYTES)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._reading_paused

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._inbox:
            self._network.loop.call_soon(self._deliver)

    def write(self, data: Any) -> None:
        if self._network.meddle is not None:
            self._network.meddle(self, bytes(data))
        if self._closing or not len(data):
            return
        for piece in self._pieces(bytes(data)):
            self._unsent.append(piece)
        self._unsent_bytes += len(data)
        if self.get_write_buffer_size() > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()
        self.pump()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._ends = True
            self.pump()
            self._lose(None)

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self._unsent.clear()
            self._ends = True
            self.pump()
            self._lose(None)

    # -- the other side ----------------------------------------------------------------------------------------------

    def accept(self, factory: Callable[[], Any]) -> None:
        """Start the server's side of the connection."""
        if self._closed or self._closing:
            return
        protocol = factory()
        self.attach(protocol)
        protocol.connection_made(self)
        if self._inbox:
            self._deliver()

    def reset(self) -> None:
        """Break the connection for both sides."""
        for stream in (self, self.peer):
            self._network.loop.call_in(stream._node, 0, stream._break)

    def turn_deaf(self) -> None:
        """Drop all responses. This side sees the connection break when its next bytes have arrived."""
        network, peer = self._network, self.peer
        delay = (
            network.faults.latency + network.faults.jitter + (network.faults.tail if network.faults.tail_chance else 0)
        )
        self._is_deaf = True
        for stream in (self, peer):
            network.loop.call_in(stream._node, max(delay, self._arrives_at - network.loop.time()) * 2, stream._break)

    def abandon(self, delay: float) -> None:
        """Break the connection for this side. Its next bytes arrive later, without a response."""
        network, peer = self._network, self.peer
        self._arrives_at = max(self._arrives_at, network.loop.time() + delay)
        network.loop.call_in(self._node, 0, self._break)
        network.loop.call_in(peer._node, delay + network.faults.reset_after, peer._break)

    def pump(self) -> None:
        """Send waiting bytes, unless the link is cut."""
        network, peer = self._network, self.peer
        if network.is_cut(self._node, peer._node):
            return
        loop = network.loop
        slow = network.slow.get((self._node, peer._node), 0.0)
        while self._unsent:
            piece = self._unsent.popleft()
            self._arrives_at = max(self._arrives_at + 1e-9, loop.time() + network.delay() + slow)
            loop.call_in(peer._node, self._arrives_at - loop.time(), peer._arrive, piece, self)
        if self._ends:
            self._ends = False
            self._arrives_at = max(self._arrives_at + 1e-9, loop.time() + network.delay())
            loop.call_in(peer._node, self._arrives_at - loop.time(), peer._end)

    def _pieces(self, data: bytes) -> list[bytes]:
        rng = self._network.random
        if len(data) < 2 or rng.random() >= self._network.faults.split_chance:
            return [data]
        cut = rng.randrange(1, len(data))
        return [data[:cut], data[cut:]]

    def _arrive(self, piece: bytes, sender: Stream) -> None:
        if self._closed or self._is_deaf:
            return
        self._inbox.append(piece)
        sender._taken(len(piece))
        if not self._reading_paused and self._protocol is not None:
            self._deliver()

    def _taken(self, count: int) -> None:
        """Process arrived bytes; a paused writer is resumed in a separate step."""
        self._unsent_bytes -= count
        if self._writing_paused and self.get_write_buffer_size() <= self._high // 4:
            self._network.loop.call_in(self._node, 0, self._resume_writing)

    def _resume_writing(self) -> None:
        if self._writing_paused and self.get_write_buffer_size() <= self._high // 4 and not self._closed:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _deliver(self) -> None:
        while self._inbox and not self._reading_paused and not self._closed:
            piece = memoryview(self._inbox.popleft())
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                room: Any = self._protocol.get_buffer(len(piece))
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                if count < len(piece):
                    self._inbox.appendleft(bytes(piece[count:]))
                self._protocol.buffer_updated(count)
            else:
                self._protocol.data_received(bytes(piece))

    def _end(self) -> None:
        """Process the close of the other side."""
        if not self._closed:
            if self._protocol is not None and not self._inbox:
                self._protocol.eof_received()
            self._break()

    def _break(self) -> None:
        self._closing = True
        self._lose(ConnectionResetError(104, "connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._network.connections.pop(self, None)
        self._node.on_kill.pop(self._died, None)
        if self._protocol is not None:
            self._network.loop.call_soon(self._protocol.connection_lost, error)

    def _died(self) -> None:
        """Silence the side of a dead machine; the other side receives a reset later."""
        if self._closed:
            return
        self._closed = self._closing = True
        self._network.connections.pop(self, None)
        network, peer = self._network, self.peer
        delay = network.random.random() * network.faults.reset_after
        network.loop.call_in(peer._node, delay, peer._break)


def current_node() -> SimNode:
    """Return the machine whose code is running."""
    return NODE.get((WORLD, 0))[0]

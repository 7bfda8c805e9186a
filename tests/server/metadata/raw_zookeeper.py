"""A client of ZooKeeper's protocol that does as a test says, right or wrong."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, TypeVar

from barnabas.protocol.zookeeper.constants import OpCode
from barnabas.protocol.zookeeper.frames import frame
from barnabas.protocol.zookeeper.jute import decode, decode_at, encode
from barnabas.protocol.zookeeper.records import (
    Acl,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    Id,
    ReplyHead,
    RequestHead,
    WatchedRequest,
)

R = TypeVar("R", bound=tuple[Any, ...])

OPEN_ACL = [Acl(31, Id("world", "anyone"))]


class RawClient:
    """A socket; `connect` begins or resumes a session."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def connect(
        self, session: int = 0, password: bytes = bytes(16), *, zxid: int = 0, ms: int = 6000
    ) -> ConnectResponse:
        """Returns the server's answer. Raises EOFError if there is none."""
        self.send(frame(encode(ConnectRequest(0, zxid, ms, session, password)), b"\0"))
        return decode(ConnectResponse, self.receive())

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next frame. Raises EOFError when the server has closed."""
        try:
            head = self._stream.read(4)
            body = self._stream.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
        except ConnectionResetError:
            raise EOFError from None
        if len(head) < 4:
            raise EOFError
        return body

    def reply(self) -> tuple[ReplyHead, bytes]:
        """The next answer or notification, and what follows its head."""
        body = self.receive()
        head, at = decode_at(ReplyHead, body, 0)
        return head, body[at:]

    def call(self, opcode: int, *parts: bytes, xid: int = 1) -> tuple[ReplyHead, bytes]:
        """Sends a request and returns its answer."""
        self.send(request(opcode, *parts, xid=xid))
        return self.reply()

    def is_closed(self) -> bool:
        """Whether the server closes, whatever it sends before."""
        try:
            while True:
                self.receive()
        except EOFError:
            return True


def request(opcode: int, *parts: bytes, xid: int = 1) -> bytes:
    """A request as it goes over the wire."""
    return frame(encode(RequestHead(xid, opcode)), *parts)


def creation(path: str, data: bytes | None = b"", flags: int = 0, *, xid: int = 1) -> bytes:
    """A Create that goes over the wire."""
    return request(OpCode.CREATE, encode(CreateRequest(path, data, OPEN_ACL, flags)), xid=xid)


def look(path: str, *, watch: bool = False) -> bytes:
    """The body of Exists, GetData, GetChildren."""
    return encode(WatchedRequest(path, watch))

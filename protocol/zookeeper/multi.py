"""Multi and MultiRead: several operations in one frame, each after a header, and their results likewise.

Source: MultiOperationRecord and MultiResponse of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ProtocolError
from .constants import OpCode, ZkError
from .jute import decode_at, encode
from .records import CreateRequest, ErrorResponse, MultiHeader, SetDataRequest, VersionRequest, WatchedRequest

MAX_OPERATIONS = 20_000
"""ZooKeeper has no limit except the frame's, which permits forty thousand deletions."""

WRITE_PARTS: dict[int, type[tuple[Any, ...]]] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.DELETE: VersionRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.CHECK: VersionRequest,
}
READ_PARTS: dict[int, type[tuple[Any, ...]]] = {
    OpCode.GET_DATA: WatchedRequest,
    OpCode.GET_CHILDREN: WatchedRequest,
}

Part = tuple[OpCode, tuple[Any, ...]]
"""An operation and its request, or its result. A failed operation has an `ErrorResponse` of `OpCode.ERROR`."""

_END = encode(MultiHeader(OpCode.ERROR, True, -1))


def decode_parts(data: bytes, at: int, kinds: dict[int, type[tuple[Any, ...]]]) -> list[Part]:
    """Read the operations of a Multi (`WRITE_PARTS`) or a MultiRead (`READ_PARTS`). Raises ProtocolError."""
    parts: list[Part] = []
    while True:
        header, at = decode_at(MultiHeader, data, at)
        if header.done:
            return parts
        kind = kinds.get(header.type)
        if kind is None or len(parts) >= MAX_OPERATIONS:
            raise ProtocolError(f"operation {header.type} as number {len(parts)} of a multi")
        request, at = decode_at(kind, data, at)
        parts.append((OpCode(header.type), request))


def encode_results(results: Iterable[Part]) -> bytes:
    """Encode the response to a Multi. The result of an operation without one, a deletion, is the empty tuple."""
    out = bytearray()
    for kind, result in results:
        code = result.err if isinstance(result, ErrorResponse) else ZkError.OK
        out += encode(MultiHeader(kind, False, code))
        if result:
            out += encode(result)
    out += _END
    return bytes(out)

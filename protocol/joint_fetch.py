"""Equal fetch requests of consumers, and their responses.

Fetch requests of consumers at the end of the same partition differ in their correlation ids, their client ids and their
fetch sessions, and so do the responses. All other bytes are equal, and are read and written once for all of them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import UUID

from .codec import encode_request, encode_response
from .compiled_support import uvarint
from .messages.fetch import FetchRequest, FetchResponse
from .schema import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_VERSION, LAST_VERSION = 7, 18
"""The versions with fetch sessions. Older versions have other positions, and some need records in an older format."""
MAX_REQUEST_BYTES = 512
"""The size of the largest request that is compared with others: a request for one partition is smaller."""
JOINED_BYTES = 1 << 14
"""The size of the largest response that is copied for each request. Others are passed on in parts."""
NO_SESSION = (0, -1)
"""Session id and session epoch of a request without a session."""
_LEADER_EPOCHS = 9
_PREFERRED_REPLICAS = 11
_FLEXIBLE = 12
_TOPIC_IDS = 13
_WITHOUT_REPLICA_ID = 15
_API_SIZE = 4
_FRONT_SIZE = 10
_SESSION_SIZE = 8
_SESSION_AT, _SESSION_AT_WITHOUT_REPLICA_ID = 17, 13
"""Position of the session id in the body: after the replica id, the maximum wait, the two limits and the isolation."""

_EPOCH_AT = 4
_LEADER_EPOCH_SIZE = 4
_CLASSIC_FRONT, _FLEXIBLE_FRONT = 4 + 4 + 4 + _LEADER_EPOCH_SIZE, 1 + 1 + 4 + _LEADER_EPOCH_SIZE
"""Bytes between the session epoch and the offset without the topic: two counts, the partition and the leader epoch."""
_NAME_LENGTH_SIZE = 2
_TOPIC_ID_SIZE = 16

_front_at = Struct(">hhih").unpack_from  # API key, version, correlation id, length of the client id
_session_at = Struct(">ii").unpack_from

# Size, correlation id, no tagged fields in a flexible header, no throttle time, no error, session id.
_RESPONSE_FRONT = Struct(">ii6xi")
_FLEXIBLE_RESPONSE_FRONT = Struct(">iix6xi")
_BODY_FRONT_SIZE = 10
_COUNT = Struct(">i")
_COUNT_AND_LENGTH = Struct(">ih")
_PARTITION_AND_ERROR = Struct(">ih")


_new_tuple = tuple.__new__  # the generated constructor of a NamedTuple takes twice as long


class EqualFetch(NamedTuple):
    """The parts of a fetch request that are read before it is compared with other requests."""

    key: bytes
    """The request without its correlation id, its client id and the id and epoch of its session."""
    correlation_id: int
    session_id: int
    session_epoch: int


def read_equal_fetch(buffer: memoryview, start: int, end: int) -> EqualFetch | None:
    """Read the request of a version from `FIRST_VERSION` to `LAST_VERSION` in the frame at `[start, end)`.

    Returns None for a request that has to be handled alone: it opens or closes a session, is large, has tagged
    fields in its header, or is invalid before the end of its session epoch. The rest of the request is only compared.
    """
    size = end - start
    if not _FRONT_SIZE <= size <= MAX_REQUEST_BYTES:
        return None
    _, version, correlation_id, length = _front_at(buffer, start)
    body = start + _FRONT_SIZE
    if length > 0:
        client_id = body
        body += length
        try:
            str(buffer[client_id:body], "utf-8")
        except UnicodeDecodeError:
            return None
    elif length < -1:
        return None
    if version >= _FLEXIBLE:
        if body >= end or buffer[body]:
            return None
        body += 1
    session = body + (_SESSION_AT if version < _WITHOUT_REPLICA_ID else _SESSION_AT_WITHOUT_REPLICA_ID)
    rest = session + _SESSION_SIZE
    if rest > end:
        return None
    session_id, epoch = ids = _session_at(buffer, session)
    if ids != NO_SESSION and (epoch <= 0 or not session_id):
        return None
    key = b"".join((buffer[start : start + _API_SIZE], buffer[body:session], buffer[rest:end]))
    return _new_tuple(EqualFetch, (key, correlation_id, session_id, epoch))


class RepeatedFetch:
    """A request for one partition, which a consumer repeats with other correlation ids, session epochs and offsets.

    `read` is a shorter way to the result of the codec: all other bytes are compared.
    """

    __slots__ = ("_fixed", "_size", "_unpack")

    def __init__(self, buffer: memoryview, start: int, end: int, request: FetchRequest) -> None:
        """The frame at `[start, end)` has the `request`. Raises ValueError for a request that is not compared.

        The positions are valid for the codec's own encoding. A request with a number in more bytes, or with unknown
        tagged fields, has other positions and is not compared.
        """
        _, version, _, length = _front_at(buffer, start)
        is_flexible = version >= _FLEXIBLE
        body = start + _FRONT_SIZE + max(length, 0) + is_flexible
        if end - start > MAX_REQUEST_BYTES or buffer[body:end] != encode_request(request, version):
            raise ValueError("the frame is large, or differs from the codec's encoding")
        (topic,) = request.topics
        name = topic.topic.encode()
        if is_flexible:
            topic_size = _TOPIC_ID_SIZE if version >= _TOPIC_IDS else len(uvarint(len(name) + 1)) + len(name)
            offset = topic_size + _FLEXIBLE_FRONT
        else:
            offset = _NAME_LENGTH_SIZE + len(name) + _CLASSIC_FRONT - _LEADER_EPOCH_SIZE * (version < _LEADER_EPOCHS)
        session = body + (_SESSION_AT if version < _WITHOUT_REPLICA_ID else _SESSION_AT_WITHOUT_REPLICA_ID)
        epoch = session + _EPOCH_AT
        offset += session + _SESSION_SIZE
        self._size = end - start
        sizes = epoch - start - _API_SIZE - 4, offset - epoch - 4, end - offset - 8
        self._unpack = Struct(">4si{}si{}sq{}s".format(*sizes)).unpack_from
        front, _, middle, _, between, _, rest = self._unpack(buffer, start)
        self._fixed = front, middle, between, rest

    def read(self, buffer: memoryview, start: int, end: int) -> tuple[int, int, int] | None:
        """Return the correlation id, the session epoch and the offset in the frame at `[start, end)`.

        Returns None if it has another request.
        """
        if end - start != self._size:
            return None
        front, correlation_id, middle, epoch, between, offset, rest = self._unpack(buffer, start)
        return (correlation_id, epoch, offset) if (front, middle, between, rest) == self._fixed else None


class RecordsResponse:
    """The encoding of fetch responses of one version with records of one partition, without an error.

    A shorter way to the bytes of the codec: a consumer gets many responses that differ in few numbers.
    """

    __slots__ = ("_end", "_is_flexible", "_pack", "_rest", "_topic")

    def __init__(self, version: int, topic: str | UUID, partition: int, *, is_read_committed: bool) -> None:
        """`is_read_committed`: the responses list aborted transactions, of which there are none."""
        assert FIRST_VERSION <= version <= LAST_VERSION, "other versions have other positions"
        self._is_flexible = version >= _FLEXIBLE
        name = topic.bytes if isinstance(topic, UUID) else topic.encode()
        if self._is_flexible:
            length = b"" if isinstance(topic, UUID) else uvarint(len(name) + 1)
            self._topic = b"\2" + length + name + b"\2" + _PARTITION_AND_ERROR.pack(partition, 0)
            numbers, self._end = "qqqBi", b"\0\0\0"
            self._rest: tuple[int, ...] = int(is_read_committed), -1
        else:
            self._topic = _COUNT_AND_LENGTH.pack(1, len(name)) + name + _COUNT.pack(1)
            self._topic += _PARTITION_AND_ERROR.pack(partition, 0)
            numbers, self._end = "qqqi" + "i" * (version >= _PREFERRED_REPLICAS), b""
            self._rest = (is_read_committed - 1, -1)[: len(numbers) - 3]
        front = _FLEXIBLE_RESPONSE_FRONT if self._is_flexible else _RESPONSE_FRONT
        self._pack = Struct(f"{front.format}{len(self._topic)}s{numbers}")

    def frame(
        self,
        correlation_id: int,
        session_id: int,
        offsets: tuple[int, int, int],
        records: bytes,
    ) -> bytes:
        """Return a response. `offsets` are the high watermark, the last stable offset and the log start offset."""
        size = len(records)
        length = uvarint(size + 1) if self._is_flexible else _COUNT.pack(size)
        total = self._pack.size + len(length) + size + len(self._end) - 4
        front = self._pack.pack(total, correlation_id, session_id, self._topic, *offsets, *self._rest)
        return b"".join((front, length, records, self._end))


class SharedFetchResponse:
    """The encoding of a fetch response of one version for several requests. Its session id is not used."""

    __slots__ = ("_front", "_pack", "_parts", "_size")

    def __init__(self, response: FetchResponse, version: int) -> None:
        """Raises ProtocolError if the version cannot represent the response."""
        assert FIRST_VERSION <= version <= LAST_VERSION, "other versions have other positions"
        assert not response.throttle_time_ms and not response.error_code, "such a response is for one request"
        first, *others = encode_response(response, version)
        self._front = _FLEXIBLE_RESPONSE_FRONT if version >= _FLEXIBLE else _RESPONSE_FRONT
        self._parts: list[Buffer] = [first[_BODY_FRONT_SIZE:], *others]
        self._size = self._front.size + sum(map(len, self._parts))
        self._pack: Callable[[int, int, int, bytes], bytes] | None = None

    def frame(self, correlation_id: int, session_id: int) -> tuple[list[Any], int]:
        """Return the parts and the size of the response to one request."""
        size = self._size
        if size > JOINED_BYTES:
            return [self._front.pack(size - 4, correlation_id, session_id), *self._parts], size
        if self._pack is None:
            body = b"".join(self._parts)
            self._parts = [body]
            self._pack = Struct(f"{self._front.format}{len(body)}s").pack
        # One object with all bytes: the connection would join the parts for each consumer.
        return [self._pack(size - 4, correlation_id, session_id, cast(bytes, self._parts[0]))], size

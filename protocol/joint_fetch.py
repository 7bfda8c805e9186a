"""Equal fetch requests of consumers, and their responses.

Fetch requests of consumers at the end of the same partition differ in their correlation ids, their client ids and their
fetch sessions, and so do the responses. All other bytes are equal, and are read and written once for all of them.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from .codec import encode_response
from .messages.fetch import FetchResponse
from .schema import Buffer

FIRST_VERSION, LAST_VERSION = 7, 18
"""The versions with fetch sessions. Older versions have other positions, and some need records in an older format."""
MAX_REQUEST_BYTES = 512
"""The size of the largest request that is compared with others: a request for one partition is smaller."""
NO_SESSION = (0, -1)
"""Session id and session epoch of a request without a session."""
_FLEXIBLE = 12
_WITHOUT_REPLICA_ID = 15
_API_SIZE = 4
_FRONT_SIZE = 10
_SESSION_SIZE = 8
_SESSION_AT, _SESSION_AT_WITHOUT_REPLICA_ID = 17, 13
"""Position of the session id in the body: after the replica id, the maximum wait, the two limits and the isolation."""

_front_at = Struct(">hhih").unpack_from  # API key, version, correlation id, length of the client id
_session_at = Struct(">ii").unpack_from

# Size, correlation id, no tagged fields in a flexible header, no throttle time, no error, session id.
_RESPONSE_FRONT = Struct(">ii6xi")
_FLEXIBLE_RESPONSE_FRONT = Struct(">iix6xi")
_BODY_FRONT_SIZE = 10


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
    return EqualFetch(key, correlation_id, session_id, epoch)


class SharedFetchResponse:
    """The encoding of a fetch response of one version for several requests. Its session id is not used."""

    __slots__ = ("_front", "_parts", "_size")

    def __init__(self, response: FetchResponse, version: int) -> None:
        """Raises ProtocolError if the version cannot represent the response."""
        assert FIRST_VERSION <= version <= LAST_VERSION, "other versions have other positions"
        assert not response.throttle_time_ms and not response.error_code, "such a response is for one request"
        first, *others = encode_response(response, version)
        self._front = _FLEXIBLE_RESPONSE_FRONT if version >= _FLEXIBLE else _RESPONSE_FRONT
        self._parts: list[Buffer] = [first[_BODY_FRONT_SIZE:], *others]
        self._size = self._front.size + sum(map(len, self._parts))

    def frame(self, correlation_id: int, session_id: int) -> tuple[list[Any], int]:
        """Return the parts and the size of the response to one request."""
        return [self._front.pack(self._size - 4, correlation_id, session_id), *self._parts], self._size

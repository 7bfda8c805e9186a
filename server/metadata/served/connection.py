"""One connection of a client of the served tree: frames in, responses and notifications out.

Responses are sent in the order of the requests. A read is answered from memory, after the earlier writes of its
connection; many writes of one connection may wait in the tree's request processor. A notification is sent before the
response of any read that could have seen its change.
Source: NIOServerCnxn, ZooKeeperServer.processConnectRequest and processPacket of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from ....common.room_logger import room_logger
from ....protocol.errors import ProtocolError, as_value
from ....protocol.zookeeper.constants import (
    NOTIFICATION_XID,
    PASSWORD_SIZE,
    SYNC_CONNECTED,
    EventCode,
    OpCode,
    Perms,
    ZkError,
)
from ....protocol.zookeeper.frames import FrameStream, frame
from ....protocol.zookeeper.jute import decode, decode_at, encode
from ....protocol.zookeeper.records import (
    Acl,
    AuthRequest,
    ConnectRequest,
    ConnectResponse,
    Id,
    ReadOnly,
    ReplyHead,
    RequestHead,
    WatcherEvent,
)
from ..data_tree import Transaction
from ..metadata_store import EventType, SessionExpiredError, StoreError, StoreUnavailableError, WatchEvent
from ..tree_acls import OPEN_ACL, allows, digest_id
from .requests import WRITES, Caller, Write, code_of, decode_write, read

if TYPE_CHECKING:
    from .tree_server import TreeServer

logger = room_logger("metadata")

RESPONSE_BYTES_PER_TURN = 1 << 16
"""Bytes of responses to one connection beyond which its further requests wait."""
REQUESTS_PER_TURN = 50
"""Requests of one connection that are handled."""

READ_AHEAD_BYTES = 1 << 16
"""Received and not yet handled bytes beyond which reading stops, once a whole frame is among them."""
MAX_IN_FLIGHT = 1000
"""Writes of one connection that are not answered yet."""
UNSENT_BYTES = 1 << 18
"""Reading from a client pauses while it has this number of unread bytes."""
UNHEARD_BYTES = 16 << 20
"""A client with this number of unread bytes, notifications included, is disconnected."""
MAX_IDENTITIES = 64

_WRITING = frozenset({OpCode.MULTI, *WRITES})
_EVENT_CODES = {
    EventType.CREATED: EventCode.NODE_CREATED,
    EventType.DELETED: EventCode.NODE_DELETED,
    EventType.CHANGED: EventCode.NODE_DATA_CHANGED,
    EventType.CHILDREN: EventCode.NODE_CHILDREN_CHANGED,
}


class TreeConnection(asyncio.Protocol):
    """A connection of a client. Created by `TreeServer`; used on the loop's thread only."""

    def __init__(self, server: TreeServer) -> None:
        self.host = ""
        self.session = 0
        """0 until there is one."""
        self.begun_tick = server.ticks
        self.received = 0
        self.sent = 0
        self.in_flight = 0
        """Unanswered writes and other operations for which later requests have to wait."""
        self.choked_tick: int | None = None
        """The tick at which the client began to leave answers unread; None if it does not."""
        self._server = server
        self._tree = server.request_processor.tree
        self._frames = FrameStream()
        self._parked: bytes | None = None
        """A frame that waits for writes before it."""
        self._transport: asyncio.Transport | None = None
        self._who: tuple[Id, ...] = ()
        self._knows_read_only = False
        self._is_serving = False
        self._is_closing = False
        self._is_paused = False
        self._is_next = False
        """Whether `serve` is due in the loop's next turn."""
        self._answer_bytes = 0

    # -- called by the transport -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, or reject it."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES)
        peer, own = (self._transport.get_extra_info(name, ("", 0)) for name in ("peername", "sockname"))
        self.host = str(peer[0])
        self._who = (Id("ip", self.host),)
        if not self._server.admit(self, (self.host, int(peer[1])), (str(own[0]), int(own[1]))):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection's watches; its session continues."""
        self._is_closing = True
        self._transport = None
        self._parked = None
        if self._server.is_owner(self):
            self._tree.watches.drop(self.session)
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        """Handle whole frames; each request prolongs the session."""
        if self._is_closing:
            return
        self._server.clock.touch(self.session)
        self._frames.feed(data)
        if self._is_next:
            self._pace()
        else:
            self.serve()

    def pause_writing(self) -> None:
        """Stop reading: the client does not read its responses."""
        self.choked_tick = self._server.ticks

    def resume_writing(self) -> None:
        """Read again: the client reads its responses."""
        self.choked_tick = None
        self.serve()

    # -- called by the server --------------------------------------------------------------------------------------

    @property
    def half_received(self) -> int:
        """Bytes of a frame that is arriving."""
        return 0 if self._is_behind() else self._frames.pending

    @property
    def unsent(self) -> int:
        """Bytes of answers and notifications that the client has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def serve_soon(self) -> None:
        """`serve` in the loop's next turn."""
        if not self._is_next:
            self._is_next = True
            self._server.loop.call_soon(self._serve_next)

    def _serve_next(self) -> None:
        self._is_next = False
        self.serve()

    def serve(self) -> None:
        """Handle the frames that need not wait, a portion in each turn of the loop."""
        if self._is_serving or self._is_closing:
            return
        self._is_serving = True
        try:
            self._serve_portion()
        except ProtocolError as error:
            self._server.log_refusal("closed the connection from %s: %s", self.host, error)
            self.abort()
        finally:
            self._is_serving = False
        if not self._is_closing:
            self._pace()

    def process(self, event: WatchEvent, acl: Sequence[Acl]) -> None:
        """Notify the client of an event, unless it may not read the node."""
        if acl and acl is not OPEN_ACL and not allows(acl, Perms.READ, self._who):
            return
        notification = WatcherEvent(_EVENT_CODES[event.type], SYNC_CONNECTED, event.path)
        self._send(encode(ReplyHead(NOTIFICATION_XID, -1, ZkError.OK)), encode(notification))
        if self.unsent > UNHEARD_BYTES:
            self.abort()

    def close(self) -> None:
        """Send the finished responses, then close."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    # -- requests --------------------------------------------------------------------------------------------------

    def _serve_portion(self) -> None:
        self._answer_bytes = 0
        for _ in range(REQUESTS_PER_TURN):
            if self._is_closing or self.choked_tick is not None or not self._server.has_room(self):
                return
            if self._answer_bytes > RESPONSE_BYTES_PER_TURN:
                break
            if not self.session and self._answers_word():
                return
            data = self._parked or self._frames.next()
            if data is None:
                return
            self._parked = None if self._handle(data) else data
            if self._parked is not None:
                return
        self.serve_soon()

    def _is_behind(self) -> bool:
        """Whether received frames have to wait."""
        is_held = self._is_next or self.in_flight > 0 or self._server.is_waiting(self)
        return is_held or self._parked is not None or self.choked_tick is not None

    def _pace(self) -> None:
        """Stop reading while received frames have to wait, and resume afterwards."""
        assert self._transport is not None
        should_pause = self._frames.pending > READ_AHEAD_BYTES and self._is_behind()
        if should_pause != self._is_paused:
            self._is_paused = should_pause
            (self._transport.pause_reading if should_pause else self._transport.resume_reading)()
        self._server.hold(self)

    def _handle(self, data: bytes) -> bool:
        """Handle a frame; False if it has to wait. Raises ProtocolError if the connection has to end."""
        if not self.session:
            return self.in_flight == 0 and self._connect(data)
        header, at = decode_at(RequestHead, data, 0)
        if header.type == OpCode.PING:
            self._reply(header.xid, ZkError.OK)
        elif header.type in _WRITING:
            if self.in_flight >= MAX_IN_FLIGHT:
                return False
            self._write(header, data, at)
        elif self.in_flight:
            return False
        elif header.type == OpCode.AUTH:
            self._authenticate(header, data, at)
        elif header.type == OpCode.SASL:
            self._reply(header.xid, ZkError.AUTH_FAILED)
        elif header.type == OpCode.CLOSE_SESSION:
            self.in_flight += 1
            self._server.end_session(self.session, partial(self._ended, header.xid))
        else:
            self._read(header, data, at)
        self.received += 1
        return True

    def _read(self, header: RequestHead, data: bytes, at: int) -> None:
        caller = Caller(self._tree, self.session, self, self._who)
        try:
            answer = read(caller, header.type, data, at)
        except (StoreError, ProtocolError) as error:
            self._reply(header.xid, code_of(error))
        else:
            self._reply(header.xid, ZkError.OK, answer)

    def _write(self, header: RequestHead, data: bytes, at: int) -> None:
        write: Write | None = None
        error: Exception | None = None
        try:
            write = decode_write(header.type, data, at)
            error = write.error
        except ProtocolError as malformed:
            error = as_value(malformed)
        session, who = self.session, self._who

        def plan() -> Transaction:
            if error is not None or write is None:
                raise error or ProtocolError("nothing to write")
            return self._tree.plan(write.operations, session, who)

        size = len(data)
        self.in_flight += 1
        self._server.queued_bytes += size
        self._server.request_processor.submit(plan, partial(self._written, header.xid, write, size))

    def _written(self, xid: int, write: Write | None, size: int, outcome: Transaction | BaseException) -> None:
        self.in_flight -= 1
        self._server.queued_bytes -= size
        if isinstance(outcome, StoreUnavailableError):
            # It is unknown whether the write took place, and a lost connection has exactly this meaning for the client.
            logger.error("closed the connection from %s: %s", self.host, outcome)
            self.abort()
        elif isinstance(outcome, Transaction):
            assert write is not None, "only a decoded request is written"
            zxid = self._tree.zxid if outcome.is_empty else outcome.zxid
            self._reply(xid, ZkError.OK, write.answer(outcome.results), zxid)
        elif write is not None and write.is_multi and _is_of_one(outcome):
            self._reply(xid, ZkError.OK, write.refusal(cast("StoreError", outcome)))
        else:
            code = code_of(outcome)
            if code == ZkError.SYSTEM_ERROR:
                logger.error("a write of %s failed", self.host, exc_info=outcome)
            self._reply(xid, code)
        self._server.continue_waiting(self)

    def _authenticate(self, header: RequestHead, data: bytes, at: int) -> None:
        request = decode(AuthRequest, data, at)
        try:
            if request.scheme != "digest" or len(self._who) >= MAX_IDENTITIES:
                raise ValueError(f"unsupported scheme {request.scheme!r}")
            proved = digest_id(request.auth or b"")
        except ValueError:
            self._reply(header.xid, ZkError.AUTH_FAILED)
            self.close()
        else:
            self._who = tuple(dict.fromkeys((*self._who, proved)))
            self._reply(header.xid, ZkError.OK)

    # -- sessions --------------------------------------------------------------------------------------------------

    def _answers_word(self) -> bool:
        word = self._frames.four_letter_word()
        if word is None or self.in_flight:
            return False
        if self._transport is not None:
            self._transport.write(self._server.answer_to(word).encode())
        self.close()
        return True

    def _connect(self, data: bytes) -> bool:
        request, end = decode_at(ConnectRequest, data, 0)
        self._knows_read_only = len(data) > end
        if request.last_zxid_seen > self._tree.zxid:
            raise ProtocolError(
                f"the client has zxid {request.last_zxid_seen:#x}, newer than {self._tree.zxid:#x} of this server"
            )
        self.in_flight += 1
        if request.session_id == 0:
            self._server.begin_session(self, request.timeout_ms)
        else:
            session = self._server.known_session(request.session_id)
            if session is None or not hmac.compare_digest(session.password, request.password or b""):
                self.connected(0, 0, bytes(PASSWORD_SIZE))
                self.close()
            else:
                self._server.resume_session(self, request.session_id, session, request.timeout_ms)
        return True

    def connected(self, session: int, timeout_ms: int, password: bytes) -> None:
        """Respond to the connection request. The session is 0 if it has expired, or never existed."""
        self.in_flight -= 1
        self.session = session
        answer = encode(ConnectResponse(0, timeout_ms, session, password))
        self._send(answer, encode(ReadOnly(False)) if self._knows_read_only else b"")

    def _ended(self, xid: int) -> None:
        self._reply(xid, ZkError.OK)
        self.close()

    # -- answers ---------------------------------------------------------------------------------------------------

    def _reply(self, xid: int, code: int, answer: bytes = b"", zxid: int | None = None) -> None:
        self._send(encode(ReplyHead(xid, self._tree.zxid if zxid is None else zxid, code)), answer)
        self._answer_bytes += len(answer)

    def _send(self, *parts: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(*parts))
            self.sent += 1


def _is_of_one(error: BaseException) -> bool:
    """Whether one operation of a Multi is to blame."""
    return isinstance(error, StoreError) and not isinstance(error, SessionExpiredError)

"""The effect of each operation of ZooKeeper's protocol on the tree, and its response; no I/O.

Source: FinalRequestProcessor and PrepRequestProcessor of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ....protocol.errors import ProtocolError, as_value
from ....protocol.zookeeper.constants import AddWatchMode, CreateFlag, OpCode, Perms, WatcherType, ZkError
from ....protocol.zookeeper.jute import decode, encode
from ....protocol.zookeeper.multi import READ_PARTS, WRITE_PARTS, Part, decode_parts, encode_results
from ....protocol.zookeeper.records import (
    AddWatchRequest,
    ClientInfo,
    Create2Response,
    CreateRequest,
    ErrorResponse,
    GetAclResponse,
    GetChildren2Response,
    GetDataResponse,
    Id,
    NamesResponse,
    NodeStat,
    PathRequest,
    PathResponse,
    SetAclRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    StatResponse,
    VersionRequest,
    WatchedRequest,
    WatcherTypeRequest,
    WhoAmIResponse,
)
from ..data_tree import (
    DataTree,
    Node,
    Outcome,
    ProtectedCreate,
    SetAcl,
    SetNull,
    TreeOperation,
    children_version,
)
from ..metadata_store import (
    ROOT,
    BadVersionError,
    Check,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SetData,
    StoreError,
    WatchEvent,
    check_path,
)
from ..tree_acls import InvalidAclError, NoAuthError, allows, without_digests
from ..watch_manager import Watcher, WatchKind

WATCH_BYTES = 32 << 20
"""Memory for the watches of one session."""
MULTI_READ_BYTES, CHILD_BYTES = 4 << 20, 50
"""The size limit of the response to one MultiRead, which may request the same large node thousands of times, and the
cost of each child name beyond its characters. ZooKeeper's client accepts responses of 1 MiB by default."""

_ILLEGAL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""Characters that ZooKeeper allows in no path (PathUtils)."""


class UnimplementedError(StoreError):
    """An operation that is not served."""


class ReconfigDisabledError(StoreError):
    """There is no ensemble whose members could be changed."""


class BadArgumentsError(StoreError):
    """Arguments that make no sense."""


class NoWatcherError(StoreError):
    """There is no such watch to be removed."""


class TooManyWatchesError(StoreError):
    """The memory for watches is used up."""


ERROR_CODES: dict[type[BaseException], ZkError] = {
    NoNodeError: ZkError.NO_NODE,
    NodeExistsError: ZkError.NODE_EXISTS,
    BadVersionError: ZkError.BAD_VERSION,
    NotEmptyError: ZkError.NOT_EMPTY,
    NoChildrenForEphemeralsError: ZkError.NO_CHILDREN_FOR_EPHEMERALS,
    SessionExpiredError: ZkError.SESSION_EXPIRED,
    NoAuthError: ZkError.NO_AUTH,
    InvalidAclError: ZkError.INVALID_ACL,
    UnimplementedError: ZkError.UNIMPLEMENTED,
    ReconfigDisabledError: ZkError.RECONFIG_DISABLED,
    BadArgumentsError: ZkError.BAD_ARGUMENTS,
    NoWatcherError: ZkError.NO_WATCHER,
    ProtocolError: ZkError.MARSHALLING_ERROR,
}
"""The error code of each error; any other error is a system error."""


def code_of(error: BaseException) -> ZkError:
    """Return the error code for the client."""
    return ERROR_CODES.get(type(error), ZkError.SYSTEM_ERROR)


@dataclass(slots=True)
class Caller:
    """The sender of a request: a session, its proved identities, and the receiver of its notifications."""

    tree: DataTree
    session: int
    watcher: Watcher
    who: tuple[Id, ...]

    def node(self, path: str, perms: int = 0) -> Node:
        """Return a node, with one of these permissions if any. Raises NoNodeError, NoAuthError."""
        node = self.tree.look(path)
        if node is None:
            raise NoNodeError(path)
        if perms and not allows(node.acl, perms, self.who):
            raise NoAuthError(path)
        return node

    def stat(self, path: str, node: Node) -> NodeStat:
        """Return a node's stat."""
        return stat_of(node, len(self.tree.names(path)))

    def watch(self, path: str, kind: int) -> None:
        """Set a watch of this connection. Raises TooManyWatchesError."""
        watches = self.tree.watches
        if watches.cost(self.session) > WATCH_BYTES or watches.total_cost > watches.max_cost:
            raise TooManyWatchesError(path)
        watches.add(path, self.session, self.watcher, kind)


def stat_of(node: Node, children_count: int) -> NodeStat:
    """Return a node's stat on the wire."""
    return NodeStat(
        czxid=node.czxid,
        mzxid=node.mzxid,
        ctime=node.created_ms,
        mtime=node.modified_ms,
        version=node.version,
        cversion=children_version(node, children_count),
        aversion=node.acl_version,
        ephemeral_owner=node.owner,
        data_length=len(node.data or b""),
        num_children=children_count,
        pzxid=node.children_zxid,
    )


# Reading


def _exists(caller: Caller, request: WatchedRequest) -> StatResponse:
    if request.watch:
        caller.watch(request.path, WatchKind.DATA)
    return StatResponse(caller.stat(request.path, caller.node(request.path)))


def _get_data(caller: Caller, request: WatchedRequest) -> GetDataResponse:
    node = caller.node(request.path, Perms.READ)
    if request.watch:
        caller.watch(request.path, WatchKind.DATA)
    return GetDataResponse(node.data, caller.stat(request.path, node))


def _get_children(caller: Caller, request: WatchedRequest) -> NamesResponse:
    return NamesResponse(_get_children2(caller, request).names)


def _get_children2(caller: Caller, request: WatchedRequest) -> GetChildren2Response:
    node = caller.node(request.path, Perms.READ)
    if request.watch:
        caller.watch(request.path, WatchKind.CHILDREN)
    return GetChildren2Response(list(caller.tree.names(request.path)), caller.stat(request.path, node))


def _get_acl(caller: Caller, request: PathRequest) -> GetAclResponse:
    node = caller.node(request.path, Perms.READ | Perms.ADMIN)
    may_change = allows(node.acl, Perms.ADMIN, caller.who)
    acl = list(node.acl) if may_change else without_digests(node.acl)
    return GetAclResponse(acl, caller.stat(request.path, node))


def _sync(_: Caller, request: PathRequest) -> PathResponse:
    # The response is sent after the session's own writes, and other sessions' writes are visible once acknowledged.
    return PathResponse(request.path)


def _who_am_i(caller: Caller, _: tuple[()]) -> WhoAmIResponse:
    # The user of a digest precedes the colon.
    users = [one.id.partition(":")[0] if one.scheme == "digest" else one.id for one in caller.who]
    return WhoAmIResponse([ClientInfo(one.scheme, user) for one, user in zip(caller.who, users, strict=True)])


# Watches


_ADDED = {
    AddWatchMode.PERSISTENT: WatchKind.PERSISTENT,
    AddWatchMode.PERSISTENT_RECURSIVE: WatchKind.RECURSIVE,
}
_OF_TYPE = {
    WatcherType.CHILDREN: WatchKind.CHILDREN,
    WatcherType.DATA: WatchKind.DATA,
    WatcherType.ANY: WatchKind.ANY,
}


def _add_watch(caller: Caller, request: AddWatchRequest) -> ErrorResponse:
    kind = _ADDED.get(AddWatchMode(request.mode)) if request.mode in list(AddWatchMode) else None
    if kind is None:
        raise BadArgumentsError(request.path)
    caller.watch(request.path, kind)
    return ErrorResponse(ZkError.OK)


def _check_watches(caller: Caller, request: WatcherTypeRequest) -> tuple[()]:
    _watches_of_type(caller, request)
    return ()


def _remove_watches(caller: Caller, request: WatcherTypeRequest) -> tuple[()]:
    kind = _watches_of_type(caller, request)
    caller.tree.watches.remove(request.path, caller.session, caller.watcher, kind)
    return ()


def _watches_of_type(caller: Caller, request: WatcherTypeRequest) -> int:
    """Return the watches of the kind that a request names. Raises NoWatcherError if there are none."""
    if request.type not in list(WatcherType):
        raise BadArgumentsError(request.path)
    kind = _OF_TYPE[WatcherType(request.type)]
    if not caller.tree.watches.kind_of(request.path, caller.session, caller.watcher) & kind:
        raise NoWatcherError(request.path)
    return kind


def _set_watches(caller: Caller, request: SetWatchesRequest | SetWatches2Request) -> tuple[()]:
    """Restore a returning client's watches; report changes during its absence immediately (DataTree.setWatches)."""
    since = request.relative_zxid
    for path in request.data_watches:
        node = caller.tree.look(path)
        changed = node is not None and node.mzxid > since
        _watch_or_notify(
            caller, path, WatchKind.DATA, _deletion_event(node) or (EventType.CHANGED if changed else None)
        )
    for path in request.exist_watches:
        is_there = caller.tree.look(path) is not None
        _watch_or_notify(caller, path, WatchKind.DATA, EventType.CREATED if is_there else None)
    for path in request.child_watches:
        node = caller.tree.look(path)
        changed = node is not None and node.children_zxid > since
        _watch_or_notify(
            caller, path, WatchKind.CHILDREN, _deletion_event(node) or (EventType.CHILDREN if changed else None)
        )
    if isinstance(request, SetWatches2Request):
        for path in request.persistent_watches:
            caller.watch(path, WatchKind.PERSISTENT)
        for path in request.persistent_recursive_watches:
            caller.watch(path, WatchKind.RECURSIVE)
    return ()


def _deletion_event(node: Node | None) -> EventType | None:
    return EventType.DELETED if node is None else None


def _watch_or_notify(caller: Caller, path: str, kind: int, happened: EventType | None) -> None:
    node = caller.tree.look(path)
    if happened is None:
        caller.watch(path, kind)
    else:
        caller.watcher.process(WatchEvent(happened, path), () if node is None else node.acl)


Read = Callable[[Caller, Any], tuple[Any, ...]]

READS: Mapping[int, tuple[type[tuple[Any, ...]], Read]] = {
    OpCode.EXISTS: (WatchedRequest, _exists),
    OpCode.GET_DATA: (WatchedRequest, _get_data),
    OpCode.GET_CHILDREN: (WatchedRequest, _get_children),
    OpCode.GET_CHILDREN2: (WatchedRequest, _get_children2),
    OpCode.GET_ACL: (PathRequest, _get_acl),
    OpCode.SYNC: (PathRequest, _sync),
    OpCode.CHECK_WATCHES: (WatcherTypeRequest, _check_watches),
    OpCode.REMOVE_WATCHES: (WatcherTypeRequest, _remove_watches),
    OpCode.SET_WATCHES: (SetWatchesRequest, _set_watches),
    OpCode.SET_WATCHES2: (SetWatches2Request, _set_watches),
    OpCode.ADD_WATCH: (AddWatchRequest, _add_watch),
    OpCode.WHO_AM_I: (tuple, _who_am_i),
}
"""Operations that are answered from memory: their request, and the function that returns the response."""


def read(caller: Caller, opcode: int, frame: bytes, at: int) -> bytes:
    """Answer a request that begins at `at` of its frame. Raises StoreError, ProtocolError."""
    if opcode == OpCode.MULTI_READ:
        return encode_results(_read_parts(caller, decode_parts(frame, at, READ_PARTS)))
    if opcode == OpCode.RECONFIG:
        raise ReconfigDisabledError("")
    if opcode not in READS:
        raise UnimplementedError("")
    kind, answer = READS[opcode]
    request = () if kind is tuple else decode(kind, frame, at)
    reply = answer(caller, request)
    return encode(reply) if reply else b""


def _read_parts(caller: Caller, parts: Sequence[Part]) -> Iterator[Part]:
    """Answer reads until `MULTI_READ_BYTES` are reached; the others fail, and the client has to request fewer."""
    size = 0
    for part in parts:
        if size > MULTI_READ_BYTES:
            yield OpCode.ERROR, ErrorResponse(ZkError.SYSTEM_ERROR)
            continue
        opcode, answer = _read_part(caller, part)
        if isinstance(answer, GetDataResponse):
            size += len(answer.data or b"")
        elif isinstance(answer, NamesResponse):
            size += sum(len(name) + CHILD_BYTES for name in answer.names)
        yield opcode, answer


def _read_part(caller: Caller, part: Part) -> Part:
    opcode, request = part
    try:
        return opcode, READS[opcode][1](caller, request)
    except StoreError as error:
        return OpCode.ERROR, ErrorResponse(code_of(error))


# Writing


def _creation(request: CreateRequest) -> TreeOperation:
    flags = request.flags
    if flags in (CreateFlag.CONTAINER, CreateFlag.PERSISTENT_WITH_TTL, CreateFlag.PERSISTENT_SEQUENTIAL_WITH_TTL):
        raise UnimplementedError(request.path)
    is_sequential = flags in (CreateFlag.PERSISTENT_SEQUENTIAL, CreateFlag.EPHEMERAL_SEQUENTIAL)
    if flags not in list(CreateFlag) or _ILLEGAL.search(request.path):
        raise BadArgumentsError(request.path)
    _check_path(f"{request.path}0" if is_sequential else request.path)
    is_ephemeral = flags in (CreateFlag.EPHEMERAL, CreateFlag.EPHEMERAL_SEQUENTIAL)
    data, acl = request.data, tuple(request.acl)
    return ProtectedCreate(request.path, data or b"", is_ephemeral, is_sequential, acl, has_data=data is not None)


def _deletion(request: VersionRequest) -> TreeOperation:
    if request.path == ROOT:
        raise BadArgumentsError(request.path)
    _check_path(request.path)
    return Delete(request.path, request.version)


def _check(request: VersionRequest) -> TreeOperation:
    _check_path(request.path)
    return Check(request.path, request.version)


def _set_data(request: SetDataRequest) -> TreeOperation:
    _check_path(request.path)
    if request.data is None:
        return SetNull(request.path, request.version)
    return SetData(request.path, request.data, request.version)


def _set_acl(request: SetAclRequest) -> TreeOperation:
    _check_path(request.path)
    return SetAcl(request.path, tuple(request.acl), request.version)


def _check_path(path: str) -> None:
    try:
        check_path(path)
    except ValueError as error:
        raise BadArgumentsError(path) from error


def _made(outcome: Outcome) -> PathResponse:
    return PathResponse(outcome.path)


def _made_with_stat(outcome: Outcome) -> Create2Response:
    assert outcome.node is not None
    return Create2Response(outcome.path, stat_of(outcome.node, outcome.children_count))


def _new_stat(outcome: Outcome) -> StatResponse:
    assert outcome.node is not None
    return StatResponse(stat_of(outcome.node, outcome.children_count))


def _nothing(_: Outcome) -> tuple[()]:
    return ()


class WriteRow(NamedTuple):
    """A writing operation: its request, its tree operation, and its response."""

    request: type[tuple[Any, ...]]
    operation: Callable[[Any], TreeOperation]
    answer: Callable[[Outcome], tuple[Any, ...]]


WRITES: Mapping[int, WriteRow] = {
    OpCode.CREATE: WriteRow(CreateRequest, _creation, _made),
    OpCode.CREATE2: WriteRow(CreateRequest, _creation, _made_with_stat),
    # Both begin like any creation; the rest of the request does not matter, because their flags are rejected.
    OpCode.CREATE_CONTAINER: WriteRow(CreateRequest, _creation, _made_with_stat),
    OpCode.CREATE_TTL: WriteRow(CreateRequest, _creation, _made_with_stat),
    OpCode.DELETE: WriteRow(VersionRequest, _deletion, _nothing),
    OpCode.SET_DATA: WriteRow(SetDataRequest, _set_data, _new_stat),
    OpCode.SET_ACL: WriteRow(SetAclRequest, _set_acl, _new_stat),
    OpCode.CHECK: WriteRow(VersionRequest, _check, _nothing),
}


class Write(NamedTuple):
    """A decoded write request: its operations. An error may replace the last operation."""

    operations: Sequence[TreeOperation]
    error: StoreError | None
    opcodes: Sequence[OpCode]
    is_multi: bool

    def answer(self, outcomes: Sequence[Outcome]) -> bytes:
        """Return the response after all operations took place."""
        replies = [
            (opcode, WRITES[opcode].answer(outcome)) for opcode, outcome in zip(self.opcodes, outcomes, strict=True)
        ]
        if self.is_multi:
            return encode_results(replies)
        reply = replies[0][1]
        return encode(reply) if reply else b""

    def refusal(self, error: StoreError) -> bytes:
        """Return the response to a Multi that failed as a whole because of one operation."""
        codes = [ZkError.OK] * error.index + [code_of(error)]
        codes += [ZkError.RUNTIME_INCONSISTENCY] * (len(self.opcodes) - len(codes))
        return encode_results((OpCode.ERROR, ErrorResponse(code)) for code in codes)


def decode_write(opcode: int, frame: bytes, at: int) -> Write:
    """Decode a write request that begins at `at` of its frame. Raises ProtocolError."""
    is_multi = opcode == OpCode.MULTI
    parts = (
        decode_parts(frame, at, WRITE_PARTS)
        if is_multi
        else [(OpCode(opcode), decode(WRITES[opcode].request, frame, at))]
    )
    operations: list[TreeOperation] = []
    error = None
    for index, (kind, request) in enumerate(parts):
        try:
            operations.append(WRITES[kind].operation(request))
        except StoreError as refusal:
            error, refusal.index = as_value(refusal), index
            break
    return Write(operations, error, [kind for kind, _ in parts], is_multi)

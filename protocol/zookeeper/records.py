"""Requests and replies of ZooKeeper's protocol, field by field as in zookeeper.jute."""

from __future__ import annotations

from typing import NamedTuple

from .jute import Int, Long


class Id(NamedTuple):
    """Somebody: what `id` means is up to the scheme (world, ip, digest)."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """What somebody may do, as the bits of `Perms`."""

    perms: Int
    id: Id


class AclList(NamedTuple):
    """ACLs of one node, as they are kept."""

    acl: list[Acl]


class NodeStat(NamedTuple):
    """All that is known of a node besides its data."""

    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeral_owner: Long
    data_length: Int
    num_children: Int
    pzxid: Long


# The connection


class ConnectRequest(NamedTuple):
    """The first frame of a client. `session_id` is 0 for a new session. A byte `readOnly` may follow."""

    protocol_version: Int
    last_zxid_seen: Long
    timeout_ms: Int
    session_id: Long
    password: bytes | None


class ConnectResponse(NamedTuple):
    """Its answer. A timeout of 0 says that the session is over."""

    protocol_version: Int
    timeout_ms: Int
    session_id: Long
    password: bytes | None


class ReadOnly(NamedTuple):
    """Follows the answer for clients that know it."""

    read_only: bool


class RequestHead(NamedTuple):
    """Begins every other frame of a client."""

    xid: Int
    type: Int


class ReplyHead(NamedTuple):
    """Begins every other frame of a server."""

    xid: Int
    zxid: Long
    err: Int


class WatcherEvent(NamedTuple):
    """A notification."""

    type: Int
    state: Int
    path: str


class AuthRequest(NamedTuple):
    """Proves who somebody is."""

    type: Int
    scheme: str
    auth: bytes | None


class ClientInfo(NamedTuple):
    """One of those whom a connection has proved to be."""

    auth_scheme: str
    user: str


class WhoAmIResponse(NamedTuple):
    """All of them."""

    client_info: list[ClientInfo]


# Requests about nodes


class PathRequest(NamedTuple):
    """GetACL, Sync, GetAllChildrenNumber; GetEphemerals, where the path is a prefix."""

    path: str


class WatchedRequest(NamedTuple):
    """Exists, GetData, GetChildren, GetChildren2."""

    path: str
    watch: bool


class CreateRequest(NamedTuple):
    """Create and Create2; `flags` is a `CreateFlag`."""

    path: str
    data: bytes | None
    acl: list[Acl]
    flags: Int


class VersionRequest(NamedTuple):
    """Delete and Check."""

    path: str
    version: Int


class SetDataRequest(NamedTuple):
    """Replaces the data."""

    path: str
    data: bytes | None
    version: Int


class SetAclRequest(NamedTuple):
    """Replaces the ACLs; the version is theirs."""

    path: str
    acl: list[Acl]
    version: Int


class SetWatchesRequest(NamedTuple):
    """What a client that is back wants to hear of, as it last knew it at `relative_zxid`."""

    relative_zxid: Long
    data_watches: list[str]
    exist_watches: list[str]
    child_watches: list[str]


class SetWatches2Request(NamedTuple):
    """The same with watches that stay."""

    relative_zxid: Long
    data_watches: list[str]
    exist_watches: list[str]
    child_watches: list[str]
    persistent_watches: list[str]
    persistent_recursive_watches: list[str]


class AddWatchRequest(NamedTuple):
    """A watch that stays; `mode` is an `AddWatchMode`."""

    path: str
    mode: Int


class WatcherTypeRequest(NamedTuple):
    """CheckWatches and RemoveWatches; `type` is a `WatcherType`."""

    path: str
    type: Int


# Replies


class PathResponse(NamedTuple):
    """Create and Sync."""

    path: str


class Create2Response(NamedTuple):
    """Create2."""

    path: str
    stat: NodeStat


class StatResponse(NamedTuple):
    """Exists, SetData, SetACL."""

    stat: NodeStat


class GetDataResponse(NamedTuple):
    """GetData."""

    data: bytes | None
    stat: NodeStat


class GetAclResponse(NamedTuple):
    """GetACL."""

    acl: list[Acl]
    stat: NodeStat


class NamesResponse(NamedTuple):
    """GetChildren and GetEphemerals."""

    names: list[str]


class GetChildren2Response(NamedTuple):
    """GetChildren2."""

    names: list[str]
    stat: NodeStat


# Several operations in one


class MultiHeader(NamedTuple):
    """Before each part of a Multi or its answer; `done` ends it."""

    type: Int
    done: bool
    err: Int


class ErrorResponse(NamedTuple):
    """A part that failed."""

    err: Int

"""Requests and replies of ZooKeeper's protocol, field by field as in zookeeper.jute."""

from __future__ import annotations

from typing import NamedTuple

from .jute import Int, Long


class Id(NamedTuple):
    """An identity: the scheme (world, ip, digest) defines the meaning of `id`."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """The permissions of an identity, as the bits of `Perms`."""

    perms: Int
    id: Id


class AclList(NamedTuple):
    """ACLs of one node in their stored form."""

    acl: list[Acl]


class NodeStat(NamedTuple):
    """The metadata of a node."""

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
    """The response to it. A timeout of 0 means that the session has expired."""

    protocol_version: Int
    timeout_ms: Int
    session_id: Long
    password: bytes | None


class ReadOnly(NamedTuple):
    """Follows the response for clients that support it."""

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
    """Authenticates an identity."""

    type: Int
    scheme: str
    auth: bytes | None


class ClientInfo(NamedTuple):
    """One authenticated identity of a connection."""

    auth_scheme: str
    user: str


class WhoAmIResponse(NamedTuple):
    """All authenticated identities."""

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
    """Watches of a reconnecting client, whose state is that of `relative_zxid`."""

    relative_zxid: Long
    data_watches: list[str]
    exist_watches: list[str]
    child_watches: list[str]


class SetWatches2Request(NamedTuple):
    """The same with persistent watches."""

    relative_zxid: Long
    data_watches: list[str]
    exist_watches: list[str]
    child_watches: list[str]
    persistent_watches: list[str]
    persistent_recursive_watches: list[str]


class AddWatchRequest(NamedTuple):
    """A persistent watch; `mode` is an `AddWatchMode`."""

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
    """Precedes each part of a Multi or its response; `done` ends it."""

    type: Int
    done: bool
    err: Int


class ErrorResponse(NamedTuple):
    """A failed part."""

    err: Int

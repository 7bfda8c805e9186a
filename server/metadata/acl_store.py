"""Rules of access in the metadata tree, and the notices of their changes: Kafka's layout (its `ZkAclStore`).

    /kafka-acl/Topic/NAME                       rules of a literal name or of `*`
    /kafka-acl-extended/prefixed/Topic/NAME     rules of a prefix
    /kafka-acl-changes/acl_changes_N            `TOPIC:NAME`
    /kafka-acl-extended-changes/acl_changes_N   JSON with type, name and pattern type

Names that cannot be those of a node, of a group with a slash for one, which Kafka refuses, are percent-encoded, and
the node says what is meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from urllib.parse import quote

from ...protocol.acl_bindings import AccessControlEntry, ResourcePattern
from ...protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from .metadata_store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    SetData,
    Watch,
    WatchEvent,
)

LITERAL_ROOT, EXTENDED_ROOT = "/kafka-acl", "/kafka-acl-extended"
LITERAL_CHANGES, EXTENDED_CHANGES = "/kafka-acl-changes", "/kafka-acl-extended-changes"
CHANGE_LIFE_MS = 15 * 60 * 1000
PURGE_INTERVAL_MS = 60 * 1000
NOTICES_A_PURGE = 1000
_PREFIX_ROOT = f"{EXTENDED_ROOT}/prefixed"
_NOTICE = "acl_changes_"


def _words(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


TYPE_NAMES: dict[AclResourceType, str] = {
    kind: _words(kind.name) for kind in AclResourceType if kind is not AclResourceType.ANY
}
OPERATION_NAMES: dict[AclOperation, str] = {
    operation: _words(operation.name) for operation in AclOperation if operation is not AclOperation.ANY
}
PERMISSION_NAMES = {AclPermissionType.DENY: "Deny", AclPermissionType.ALLOW: "Allow"}
_TYPES = {name: kind for kind, name in TYPE_NAMES.items()}
_OPERATIONS = {name: operation for operation, name in OPERATION_NAMES.items()}
_PERMISSIONS = {name: permission for permission, name in PERMISSION_NAMES.items()}

Change = Callable[[frozenset[AccessControlEntry]], frozenset[AccessControlEntry]]
"""From the rules that a pattern has to those that it is to have; called again if somebody else was faster."""


def acl_path(pattern: ResourcePattern) -> str:
    """Node of a pattern's rules."""
    root = _PREFIX_ROOT if pattern.pattern_type is AclPatternType.PREFIXED else LITERAL_ROOT
    return f"{root}/{TYPE_NAMES[pattern.resource_type]}/{_node_name(pattern.name)}"


def encode_acls(pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bytes:
    """JSON of a pattern's node."""
    value: dict[str, object] = {
        "version": 1,
        "acls": [
            {
                "principal": entry.principal,
                "permissionType": PERMISSION_NAMES[entry.permission],
                "operation": OPERATION_NAMES[entry.operation],
                "host": entry.host,
            }
            for entry in sorted(entries)
        ],
    }
    if _node_name(pattern.name) != pattern.name:
        value["resource"] = pattern.name
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_acls(data: bytes) -> tuple[str | None, frozenset[AccessControlEntry]]:
    """The name of the resource where the node's does not say it, and the rules. Raises ValueError."""
    value: Mapping[str, object] = json.loads(data) if data else {}
    try:
        acls = value.get("acls") or []
        assert isinstance(acls, list)
        entries = frozenset(
            AccessControlEntry(
                str(acl["principal"]),
                str(acl["host"]),
                _OPERATIONS[acl["operation"]],
                _PERMISSIONS[acl["permissionType"]],
            )
            for acl in acls
        )
    except (AssertionError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a list of rules: {data[:200]!r}") from error
    name = value.get("resource")
    return (str(name) if name is not None else None), entries


def _node_name(name: str) -> str:
    is_usable = name.isprintable() and "/" not in name and "%" not in name and name not in (".", "..")
    return name if is_usable else quote(name, safe="").replace(".", "%2E")


def _encode_notice(pattern: ResourcePattern) -> tuple[str, bytes]:
    if pattern.pattern_type is AclPatternType.LITERAL:
        return LITERAL_CHANGES, f"{pattern.resource_type.name}:{pattern.name}".encode()
    value = {
        "version": 1,
        "resourceType": pattern.resource_type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return EXTENDED_CHANGES, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _decode_notice(root: str, data: bytes) -> ResourcePattern:
    try:
        if root == LITERAL_CHANGES:
            named, _, name = data.decode().partition(":")
            # The first releases wrote a type as its node is called.
            return ResourcePattern(_TYPES.get(named) or AclResourceType[named], name)
        value = json.loads(data)
        kind = AclResourceType[value["resourceType"].upper()]
        return ResourcePattern(kind, value["name"], AclPatternType[value["patternType"].upper()])
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a notice of a change: {data[:200]!r}") from error


class AclStore:
    """Reads and writes rules. Every method may raise what a MetadataStore raises. Loop-thread only."""

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._next_purge_ms: dict[str, int] = {}
        self._watched: set[str] = set()

    async def prepare(self) -> None:
        """Make the lasting paths that are missing."""
        paths = [LITERAL_ROOT, LITERAL_CHANGES, EXTENDED_ROOT, _PREFIX_ROOT, EXTENDED_CHANGES]
        paths += [f"{root}/{name}" for root in (LITERAL_ROOT, _PREFIX_ROOT) for name in TYPE_NAMES.values()]
        for path in paths:
            if await self._store.exists(path) is None:
                try:
                    await self._store.create(path)
                except NodeExistsError:
                    continue

    async def load(self) -> dict[ResourcePattern, frozenset[AccessControlEntry]]:
        """All rules. Raises ValueError for a node that holds none: to leave out what denies would be worse."""
        found = {}
        for root, pattern_type in ((LITERAL_ROOT, AclPatternType.LITERAL), (_PREFIX_ROOT, AclPatternType.PREFIXED)):
            for kind, kind_name in TYPE_NAMES.items():
                for node in await self._store.children(f"{root}/{kind_name}"):
                    data, _ = await self._store.get(f"{root}/{kind_name}/{node}")
                    name, entries = decode_acls(data)
                    found[ResourcePattern(kind, name or node, pattern_type)] = entries
        return found

    async def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """The rules of one pattern. Raises ValueError."""
        try:
            data, _ = await self._store.get(acl_path(pattern))
        except NoNodeError:
            return frozenset()
        return decode_acls(data)[1]

    async def change(self, pattern: ResourcePattern, change: Change) -> frozenset[AccessControlEntry]:
        """Change a pattern's rules and notify the brokers; returns what they are now. Raises ValueError."""
        path = acl_path(pattern)
        while True:
            version: int | None = None
            present: frozenset[AccessControlEntry] = frozenset()
            try:
                data, stat = await self._store.get(path)
                present, version = decode_acls(data)[1], stat.version
            except NoNodeError:
                present = frozenset()
            wanted = change(present)
            if wanted == present:
                return present
            root, notice = _encode_notice(pattern)
            text = encode_acls(pattern, wanted)
            if version is None:
                write: Create | SetData | Delete = Create(path, text)
            else:
                write = SetData(path, text, version) if wanted else Delete(path, version)
            try:
                await self._store.multi(
                    [write, Create(f"{root}/{_NOTICE}", notice, sequential=True), *await self._old_notices(root)]
                )
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            return wanted

    async def _old_notices(self, root: str) -> list[Delete]:
        """Notices that are old enough for every broker to have read them, the oldest first; looked for now and then."""
        now_ms = self._now_ms()
        if now_ms < self._next_purge_ms.get(root, 0):
            return []
        old = []
        for name in islice(await self._store.children(root), NOTICES_A_PURGE):
            stat = await self._store.exists(f"{root}/{name}")
            if stat is not None and stat.created_ms >= now_ms - CHANGE_LIFE_MS:
                break
            if stat is not None:
                old.append(Delete(f"{root}/{name}"))
        if len(old) < NOTICES_A_PURGE:
            self._next_purge_ms[root] = now_ms + PURGE_INTERVAL_MS
        return old

    async def notices(
        self, after: Mapping[str, str], heard: Callable[[], None]
    ) -> tuple[list[ResourcePattern], dict[str, str]]:
        """Patterns of which there is news since `after`, and what to say next time.

        `heard` is called once when there is more. Raises ValueError for a notice that says nothing.
        """
        news: dict[ResourcePattern, None] = {}
        newest: dict[str, str] = {}
        for root in (LITERAL_CHANGES, EXTENDED_CHANGES):
            names = await self._store.children(root, self._watch(root, heard))
            last = after.get(root, "")
            newest[root] = max([last, *names])
            for name in names:
                if name > last:
                    try:
                        data, _ = await self._store.get(f"{root}/{name}")
                    except NoNodeError:
                        continue
                    news[_decode_notice(root, data)] = None
        return list(news), newest

    def session_lost(self) -> None:
        """The session has ended, and its watches with it."""
        self._watched.clear()

    def _watch(self, root: str, heard: Callable[[], None]) -> Watch | None:
        if root in self._watched:
            return None

        def fired(_: WatchEvent) -> None:
            self._watched.discard(root)
            heard()

        self._watched.add(root)
        return fired

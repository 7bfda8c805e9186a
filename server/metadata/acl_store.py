"""ACLs in the metadata tree, and the notifications of their changes: Kafka's layout (its `ZkAclStore`).

    /kafka-acl/Topic/NAME                       ACLs of a literal name or of `*`
    /kafka-acl-extended/prefixed/Topic/NAME     ACLs of a prefix
    /kafka-acl-changes/acl_changes_N            `TOPIC:NAME`
    /kafka-acl-extended-changes/acl_changes_N   JSON with type, name and pattern type

Names that cannot be node names, for example a group with a slash, are rejected by Kafka. Barnabas percent-encodes them
and stores the original name in the node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

from ...common.room_logger import room_logger
from ...protocol.acl_bindings import AccessControlEntry, ResourcePattern
from ...protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from ..runtime.loop_sharing import CountBudget
from .change_notifications import ChangeNotifications
from .metadata_store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    SetData,
    Watch,
)

logger = room_logger("metadata")

LITERAL_ROOT, EXTENDED_ROOT = "/kafka-acl", "/kafka-acl-extended"
LITERAL_CHANGES, EXTENDED_CHANGES = "/kafka-acl-changes", "/kafka-acl-extended-changes"
_PREFIX_ROOT = f"{EXTENDED_ROOT}/prefixed"


def _pascal_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


TYPE_NAMES: dict[AclResourceType, str] = {
    kind: _pascal_case(kind.name) for kind in AclResourceType if kind is not AclResourceType.ANY
}
OPERATION_NAMES: dict[AclOperation, str] = {
    operation: _pascal_case(operation.name) for operation in AclOperation if operation is not AclOperation.ANY
}
PERMISSION_NAMES = {AclPermissionType.DENY: "Deny", AclPermissionType.ALLOW: "Allow"}
_TYPES = {name: kind for kind, name in TYPE_NAMES.items()}
_OPERATIONS = {name: operation for operation, name in OPERATION_NAMES.items()}
_PERMISSIONS = {name: permission for permission, name in PERMISSION_NAMES.items()}

MAX_BYTES = 1_000_000
"""The limit for the node of a pattern: ZooKeeper accepts no larger request, and each change writes the whole node."""


class TooManyRulesError(ValueError):
    """The ACLs of a pattern do not fit in its node."""


Change = Callable[[frozenset[AccessControlEntry]], frozenset[AccessControlEntry]]
"""Maps a pattern's current ACLs to its new ACLs; called again if another broker changed the node first."""


def acl_path(pattern: ResourcePattern) -> str:
    """Node of a pattern's rules."""
    root = _PREFIX_ROOT if pattern.pattern_type is AclPatternType.PREFIXED else LITERAL_ROOT
    return f"{root}/{TYPE_NAMES[pattern.resource_type]}/{_node_name(pattern.name)}"


def is_storable(pattern: ResourcePattern, entry: AccessControlEntry) -> bool:
    """Return whether an ACL has only values that nodes can have. Others, such as ANY, are for filters."""
    return (
        pattern.resource_type in TYPE_NAMES
        and pattern.pattern_type in (AclPatternType.LITERAL, AclPatternType.PREFIXED)
        and entry.operation in OPERATION_NAMES
        and entry.permission in PERMISSION_NAMES
    )


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
    """Return the resource name, None if the node's name has it, and the ACLs of a node. Raises ValueError."""
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
        raise ValueError(f"not a list of ACLs: {data[:200]!r}") from error
    name = value.get("resource")
    return (str(name) if name is not None else None), entries


def _node_name(name: str) -> str:
    is_usable = name.isprintable() and "/" not in name and "%" not in name and name not in (".", "..")
    return name if is_usable else quote(name, safe="").replace(".", "%2E")


def _encode_notice(pattern: ResourcePattern) -> bytes:
    if pattern.pattern_type is AclPatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    value = {
        "version": 1,
        "resourceType": pattern.resource_type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _decode_notice(root: str, data: bytes) -> ResourcePattern:
    """Raises ValueError."""
    pattern_type = AclPatternType.LITERAL
    try:
        if root == LITERAL_CHANGES:
            named, _, name = data.decode().partition(":")
            # The first releases wrote a type as its node is called.
            kind = _TYPES.get(named) or AclResourceType[named]
        else:
            value = json.loads(data)
            kind, name = AclResourceType[value["resourceType"].upper()], value["name"]
            pattern_type = AclPatternType[value["patternType"].upper()]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a change notification: {data[:200]!r}") from error
    has_rules = kind in TYPE_NAMES and pattern_type in (AclPatternType.LITERAL, AclPatternType.PREFIXED)
    if not has_rules or not isinstance(name, str) or not name:
        raise ValueError(f"a notification about a resource that cannot have ACLs: {data[:200]!r}")
    return ResourcePattern(kind, name, pattern_type)


class AclStore:
    """Reads and writes ACLs, on the loop thread. Every method may raise the errors of MetadataStore."""

    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int]) -> None:
        self.store = store
        self._notifications = {
            root: ChangeNotifications(store, f"{root}/acl_changes_", now_ms=now_ms)
            for root in (LITERAL_CHANGES, EXTENDED_CHANGES)
        }

    async def prepare(self) -> None:
        """Make the lasting paths that are missing."""
        paths = [LITERAL_ROOT, LITERAL_CHANGES, EXTENDED_ROOT, _PREFIX_ROOT, EXTENDED_CHANGES]
        paths += [f"{root}/{name}" for root in (LITERAL_ROOT, _PREFIX_ROOT) for name in TYPE_NAMES.values()]
        for path in paths:
            if await self.store.exists(path) is None:
                try:
                    await self.store.create(path)
                except NodeExistsError:
                    continue

    async def load(self) -> dict[ResourcePattern, frozenset[AccessControlEntry]]:
        """Return all ACLs. Raises ValueError for an unreadable node, because skipping it could drop a DENY."""
        found, budget = {}, CountBudget()
        for root, pattern_type in ((LITERAL_ROOT, AclPatternType.LITERAL), (_PREFIX_ROOT, AclPatternType.PREFIXED)):
            for kind, kind_name in TYPE_NAMES.items():
                names = await self.store.children(f"{root}/{kind_name}")
                nodes = await self.store.get_many([f"{root}/{kind_name}/{name}" for name in names])
                for node_name, node in zip(names, nodes, strict=True):
                    if node is not None:
                        name, entries = decode_acls(node[0])
                        found[ResourcePattern(kind, name or node_name, pattern_type)] = entries
                        await budget.step(1 + len(entries))
        return found

    async def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """Return the rules of one pattern. Raises ValueError."""
        try:
            data, _ = await self.store.get(acl_path(pattern))
        except NoNodeError:
            return frozenset()
        return decode_acls(data)[1]

    async def change(self, pattern: ResourcePattern, change: Change) -> frozenset[AccessControlEntry]:
        """Change a pattern's ACLs and notify the brokers; return the new ACLs.

        Raises TooManyRulesError, and ValueError for an unreadable node.
        """
        path = acl_path(pattern)
        is_literal = pattern.pattern_type is AclPatternType.LITERAL
        notifications = self._notifications[LITERAL_CHANGES if is_literal else EXTENDED_CHANGES]
        while True:
            version: int | None = None
            present: frozenset[AccessControlEntry] = frozenset()
            try:
                data, stat = await self.store.get(path)
                present, version = decode_acls(data)[1], stat.version
            except NoNodeError:
                present = frozenset()
            wanted = change(present)
            if wanted == present:
                return present
            text = encode_acls(pattern, wanted)
            if len(text) > MAX_BYTES and not wanted < present:
                raise TooManyRulesError(f"the ACLs of {pattern.name} would take more than {MAX_BYTES} bytes")
            if version is None:
                write: Create | SetData | Delete = Create(path, text)
            else:
                write = SetData(path, text, version) if wanted else Delete(path, version)
            try:
                await self.store.multi([write, notifications.notification(_encode_notice(pattern))])
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            await notifications.purge()
            return wanted

    async def read_changes(
        self, after: Mapping[str, str], watch: Callable[[str], Watch | None]
    ) -> tuple[list[ResourcePattern], dict[str, str]]:
        """Return the patterns whose ACLs have changed since `after`, and the `after` of the next call.

        `watch` returns the watch for changes below a path.
        """
        changed: dict[ResourcePattern, None] = {}
        newest: dict[str, str] = {}
        for root, notifications in self._notifications.items():
            last = after.get(root, "")
            new = await notifications.after(last, watch(root))
            newest[root] = max([last, *new])
            for data in new.values():
                try:
                    changed[_decode_notice(root, data)] = None
                except ValueError as error:
                    logger.error("%s", error)
        return list(changed), newest

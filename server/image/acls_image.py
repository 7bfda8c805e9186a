"""ACLs of a KRaft cluster, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ...protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from ...protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from ...protocol.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ..runtime.loop_sharing import CountBudget
from .map_changes import difference, with_changes
from .metadata_error import MetadataError


@dataclass(frozen=True, slots=True)
class AclsImage:
    """All ACLs by id."""

    acls: Mapping[UUID, AclBinding] = field(default_factory=dict)

    def write(self) -> Iterator[tuple[Any, int]]:
        """Yield the records of all ACLs, with their versions."""
        for acl_id, (pattern, entry) in self.acls.items():
            record = AccessControlEntryRecord(
                id=acl_id,
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            yield record, 0


class AclsDelta:
    """The changes of ACLs, None for a removed one. `image` has the ACLs before them."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changes: dict[UUID, AclBinding | None] = {}

    def replay(self, record: AccessControlEntryRecord) -> None:
        """Add an ACL. Raises MetadataError for an unknown type: skipping an ACL could drop a DENY."""
        try:
            pattern = ResourcePattern(
                AclResourceType(record.resource_type), record.resource_name, AclPatternType(record.pattern_type)
            )
            operation, permission = AclOperation(record.operation), AclPermissionType(record.permission_type)
        except ValueError as error:
            raise MetadataError(f"ACL {record.id}: {error}") from error
        self.changes[record.id] = AclBinding(
            pattern, AccessControlEntry(record.principal, record.host, operation, permission)
        )

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        """Remove an ACL. Raises MetadataError for an unknown one."""
        known = self.changes[record.id] if record.id in self.changes else self.image.acls.get(record.id)
        if known is None:
            raise MetadataError(f"removal of the unknown ACL {record.id}")
        if record.id in self.image.acls:
            self.changes[record.id] = None
        else:
            del self.changes[record.id]

    def apply(self) -> AclsImage:
        """Return the ACLs after the changes."""
        return AclsImage(with_changes(self.image.acls, self.changes))

    @classmethod
    async def between(cls, before: AclsImage, after: AclsImage, budget: CountBudget) -> AclsDelta | None:
        """Return the changes that make `after` of `before`; None without any."""
        delta = cls(before)
        delta.changes = await difference(before.acls, after.acls, budget)
        return delta if delta.changes else None

"""ACLs and their filters as data (Kafka's AclBinding and AclBindingFilter)."""

from __future__ import annotations

from typing import NamedTuple

from .acls import WILDCARD, AclOperation, AclPatternType, AclPermissionType, AclResourceType

WILDCARD_PRINCIPAL = f"User:{WILDCARD}"


class ResourcePattern(NamedTuple):
    """The resources of an ACL."""

    resource_type: AclResourceType
    name: str
    pattern_type: AclPatternType = AclPatternType.LITERAL

    def __str__(self) -> str:
        """Return the text of Kafka's ResourcePattern, for logs."""
        type_name, name, pattern_type = self.resource_type.name, self.name, self.pattern_type.name
        return f"ResourcePattern(resourceType={type_name}, name={name}, patternType={pattern_type})"


class AccessControlEntry(NamedTuple):
    """Principal, operation, permission and host of an ACL."""

    principal: str
    """`User:name`, or `User:*` for all users."""
    host: str
    """An address, a CIDR block of addresses, or `*` for all."""
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        """Return the text of Kafka's AccessControlEntry, for logs."""
        operation, permission = self.operation.name, self.permission.name
        return f"(principal={self.principal}, host={self.host}, operation={operation}, permissionType={permission})"


class AclBinding(NamedTuple):
    """An ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        """Return the text of Kafka's AclBinding, for logs."""
        return f"(pattern={self.pattern}, entry={self.entry})"


class AclBindingFilter(NamedTuple):
    """A filter of ACLs; None and ANY match everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY

    def selects_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether a resource pattern matches (Kafka's ResourcePatternFilter)."""
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (AclPatternType.ANY, AclPatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not AclPatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is AclPatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def selects_entry(self, entry: AccessControlEntry) -> bool:
        """Return whether an entry matches (Kafka's AccessControlEntryFilter)."""
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermissionType.ANY, entry.permission)
        )

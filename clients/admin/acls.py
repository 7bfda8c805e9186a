"""ACLs (KIP-11, KIP-290) between the types of the client and the messages of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from ...protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from ...protocol.messages.create_acls import AclCreation, CreateAclsRequest

EVERY_ACL = AclBindingFilter()


def creation_of(bindings: Iterable[AclBinding]) -> CreateAclsRequest:
    """Return a request that creates these ACLs."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ]
    )


def filter_fields(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def acl_binding(resource_type: int, name: str, pattern_type: int, rule: Any) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResourceType(resource_type), name, AclPatternType(pattern_type)),
        AccessControlEntry(
            rule.principal, rule.host, AclOperation(rule.operation), AclPermissionType(rule.permission_type)
        ),
    )

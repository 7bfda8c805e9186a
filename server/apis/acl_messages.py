"""Rules of access as the three APIs about them say it: numbers on the wire, checked as Kafka does."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from ...protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from ...protocol.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermissionType, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_acls import AclCreation
from ...protocol.messages.delete_acls import DeleteAclsFilter
from ...protocol.messages.describe_acls import DescribeAclsRequest

Number = TypeVar("Number", bound=IntEnum)

LONGEST_NAME = 32_767
"""As long as a string of the protocol before flexible versions: whatever is stored can be described in each of them."""


def binding_of(creation: AclCreation) -> AclBinding:
    """The rule that is to be made. Raises KafkaError INVALID_REQUEST (Kafka's AclControlManager)."""
    resource_type = _number(AclResourceType, creation.resource_type, "resourceType")
    pattern_type = _number(AclPatternType, creation.resource_pattern_type, "patternType")
    operation = _number(AclOperation, creation.operation, "operation")
    permission = _number(AclPermissionType, creation.permission_type, "permissionType")
    if resource_type is AclResourceType.ANY:
        raise _invalid("Invalid resourceType ANY")
    if pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern_type.name}")
    if operation is AclOperation.ANY:
        raise _invalid("Invalid operation ANY")
    if permission is AclPermissionType.ANY:
        raise _invalid("Invalid permissionType ANY")
    if resource_type is AclResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise _invalid("Resource name should not be empty")
    if not creation.host:
        raise _invalid("Host should not be empty")
    if any(len(text.encode()) > LONGEST_NAME for text in (creation.resource_name, creation.principal, creation.host)):
        raise _invalid(f"Names of more than {LONGEST_NAME} bytes")
    kind, colon, _ = creation.principal.partition(":")
    if not (colon and kind):
        reason = "no colon is present separating the principal type from the principal name"
        raise _invalid(f"Could not parse principal from `{creation.principal}` ({reason})")
    return AclBinding(
        ResourcePattern(resource_type, creation.resource_name, pattern_type),
        AccessControlEntry(creation.principal, creation.host, operation, permission),
    )


def filter_of(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter:
    """What rules are meant. Raises KafkaError INVALID_REQUEST."""
    return AclBindingFilter(
        _number(AclResourceType, wanted.resource_type_filter, "resourceType"),
        wanted.resource_name_filter,
        _number(AclPatternType, wanted.pattern_type_filter, "patternType"),
        wanted.principal_filter,
        wanted.host_filter,
        _number(AclOperation, wanted.operation, "operation"),
        _number(AclPermissionType, wanted.permission_type, "permissionType"),
    )


def _number(kind: type[Number], value: int, what: str) -> Number:
    try:
        return kind(value)
    except ValueError:
        raise _invalid(f"Invalid {what} UNKNOWN") from None


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)

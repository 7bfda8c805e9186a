"""Conversion of the ACLs and ACL filters in requests, with the checks of Kafka's AclControlManager."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from ...protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from ...protocol.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermissionType, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.create_acls import AclCreation
from ...protocol.messages.delete_acls import DeleteAclsFilter
from ...protocol.messages.describe_acls import DescribeAclsRequest
from ..security.cidr_block import parse_cidr_block

Number = TypeVar("Number", bound=IntEnum)

MAX_NAME_BYTES = 32_767
"""The longest string in versions that are not flexible: each stored ACL can be described in every version."""


def to_acl_binding(creation: AclCreation) -> AclBinding:
    """Return the ACL to create. Raise KafkaError INVALID_REQUEST (Kafka's AclControlManager.validateNewAcl)."""
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
        raise _invalid("Host pattern cannot be null or empty")
    _check_block(creation.host)
    if any(len(text.encode()) > MAX_NAME_BYTES for text in (creation.resource_name, creation.principal, creation.host)):
        raise _invalid(f"Names of more than {MAX_NAME_BYTES} bytes")
    kind, colon, _ = creation.principal.partition(":")
    if not (colon and kind):
        reason = "no colon is present separating the principal type from the principal name"
        raise _invalid(f"Could not parse principal from `{creation.principal}` ({reason})")
    return AclBinding(
        ResourcePattern(resource_type, creation.resource_name, pattern_type),
        AccessControlEntry(creation.principal, creation.host, operation, permission),
    )


def _check_block(host: str) -> None:
    if "/" in host:
        try:
            parse_cidr_block(host)
        except ValueError as error:
            raise _invalid(f"Invalid CIDR notation '{host}': {error}") from None


def to_acl_binding_filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter:
    """Return the filter. Raise KafkaError INVALID_REQUEST."""
    return AclBindingFilter(
        _number(AclResourceType, wanted.resource_type_filter, "resourceType"),
        wanted.resource_name_filter,
        _number(AclPatternType, wanted.pattern_type_filter, "patternType"),
        wanted.principal_filter,
        wanted.host_filter,
        _number(AclOperation, wanted.operation, "operation"),
        _number(AclPermissionType, wanted.permission_type, "permissionType"),
    )


def _number(enum: type[Number], value: int, field: str) -> Number:
    try:
        return enum(value)
    except ValueError:
        raise _invalid(f"Invalid {field} UNKNOWN") from None


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)

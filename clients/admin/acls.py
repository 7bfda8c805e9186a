"""Rules of access (KIP-11, KIP-290): listing, adding and removing them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol.acl_bindings import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from ...protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from ...protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ...protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ...protocol.messages.describe_acls import DescribeAclsRequest
from ..client import Client
from .controller_link import ControllerLink
from .outcomes import outcome, raise_error, raise_first

EVERY_RULE = AclBindingFilter()


class AclAdmin:
    """What `Admin` does with rules of access."""

    def __init__(self, client: Client, controller: ControllerLink) -> None:
        self._client = client
        self._controller = controller

    async def describe_acls(self, wanted: AclBindingFilter = EVERY_RULE) -> list[AclBinding]:
        """The rules that a filter selects. Raises KafkaError, SECURITY_DISABLED of brokers without rules."""
        response = await self._client.ask(None, DescribeAclsRequest(**_fields(wanted)))
        raise_error(response.error_code, response.error_message)
        return sorted(
            _binding(r.resource_type, r.resource_name, r.pattern_type, a) for r in response.resources for a in r.acls
        )

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add rules; those that are there already stay. Raises KafkaError for the first that is refused."""
        response = await self._controller.ask(creation_of(bindings), "results")
        raise_first({index: outcome(r.error_code, r.error_message) for index, r in enumerate(response.results)})

    async def delete_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """Remove the rules that a filter selects; these were they. Raises KafkaError."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(wanted))])
        (result,) = (await self._controller.ask(request, "filter_results")).filter_results
        raise_error(result.error_code, result.error_message)
        for rule in result.matching_acls:
            raise_error(rule.error_code, rule.error_message)
        return sorted(_binding(r.resource_type, r.resource_name, r.pattern_type, r) for r in result.matching_acls)


def creation_of(bindings: Iterable[AclBinding]) -> CreateAclsRequest:
    """What asks for these rules."""
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


def _fields(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _binding(resource_type: int, name: str, pattern_type: int, rule: Any) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResourceType(resource_type), name, AclPatternType(pattern_type)),
        AccessControlEntry(
            rule.principal, rule.host, AclOperation(rule.operation), AclPermissionType(rule.permission_type)
        ),
    )

"""The worst requests about rules of access that whoever may alter them can send, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.server.apis.handlers.create_acls import MAX_RULES

from .worst_requests import Worst

TOPIC_TYPE, LITERAL, PREFIXED, READ, ALLOW, ANY = 2, 3, 4, 2, 3, 1
SELECTIONS = 300
"""Each goes through all rules."""


def _created(rule: Callable[[int], tuple[str, str]], most: int) -> Callable[[int, Any], CreateAclsRequest]:
    def request(count: int, _: Any) -> CreateAclsRequest:
        return CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=TOPIC_TYPE,
                    resource_name=name,
                    resource_pattern_type=LITERAL if number % 2 else PREFIXED,
                    principal=principal,
                    host="*",
                    operation=READ,
                    permission_type=ALLOW,
                )
                for number in range(min(count, most))
                for name, principal in (rule(number),)
            ]
        )

    return request


def _deleted(filters: Callable[[int], list[str | None]]) -> Callable[[int, Any], DeleteAclsRequest]:
    def request(count: int, _: Any) -> DeleteAclsRequest:
        return DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=ANY,
                    resource_name_filter=None,
                    pattern_type_filter=ANY,
                    principal_filter=principal,
                    host_filter=None,
                    operation=ANY,
                    permission_type=ANY,
                )
                for principal in filters(count)
            ]
        )

    return request


def _described(_: int, __: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


K = ApiKey
NONE, TOO_MANY = ErrorCode.NONE, ErrorCode.POLICY_VIOLATION
WORST_ABOUT_RULES = (
    Worst("rules of two patterns", K.CREATE_ACLS, 1, _created(lambda n: ("t", f"User:{n}"), MAX_RULES), NONE),
    Worst("as many again", K.CREATE_ACLS, 1, _created(lambda n: ("t", f"User:a-{n}"), MAX_RULES), NONE),
    # They have nearly as many as there is room for, which each change reads and writes.
    Worst("more than fit", K.CREATE_ACLS, 1, _created(lambda n: ("t", f"User:b-{n}"), MAX_RULES), TOO_MANY),
    Worst("one more of them", K.CREATE_ACLS, 1, _created(lambda _: ("t", "User:x"), 1), NONE),
    Worst("rules of many patterns", K.CREATE_ACLS, 1, _created(lambda n: (f"t{n}", "User:a"), MAX_RULES), NONE),
    Worst("too many rules", K.CREATE_ACLS, 1, _created(lambda n: (f"u{n}", "User:a"), MAX_RULES * 10), TOO_MANY),
    Worst("all rules described", K.DESCRIBE_ACLS, 1, _described, NONE),
    Worst("nobody's rules", K.DELETE_ACLS, 1, _deleted(lambda n: [f"User:z{i}" for i in range(n)]), NONE),
    Worst("all rules deleted", K.DELETE_ACLS, 1, _deleted(lambda _: [None] * SELECTIONS), NONE),
)

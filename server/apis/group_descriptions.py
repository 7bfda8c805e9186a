"""Descriptions of consumer, share and streams groups: the parts of the three APIs that do not depend on the type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ...protocol.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ..runtime.loop_sharing import CountBudget, lookup_steps
from .authorized_operations import authorized_operations
from .request_context import RequestContext
from .response_budget import ResponseBudget


class DescribeRequest(Protocol):
    """The fields that the requests have in common."""

    group_ids: list[str]
    include_authorized_operations: bool


class DescribedGroup(Protocol):
    """The fields that the groups in the responses have in common."""

    error_code: int
    authorized_operations: int

    @property
    def members(self) -> Sequence[Any]:
        """The members of the group."""


D = TypeVar("D", bound=DescribedGroup)


async def describe_groups(
    ctx: RequestContext,
    request: DescribeRequest,
    described_group: Callable[..., D],
    describe: Callable[[str], D],
    *,
    are_served: bool,
    topics_of: Callable[[D], Iterable[str]],
    size_of: Callable[[D], int],
    topics_refused: str,
) -> list[D]:
    """Describe each group independently, in slices of the event loop; a repeated group has one result.

    Groups that do not fit in the response have the error COORDINATOR_LOAD_IN_PROGRESS: the client requests them again.
    `described_group` is the class of a group in the response. `describe` returns a group and may raise KafkaError;
    `topics_of` returns the topics that a client must be authorized to describe, and `size_of` an approximate size in
    bytes. `topics_refused` is the message for a client without this authorization.
    """
    may_describe = partial(ctx.is_authorized, AclOperation.DESCRIBE, AclResourceType.TOPIC)
    budget, turn_budget = ResponseBudget(), CountBudget()
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        if not are_served:
            group = described_group(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        elif not group_id:
            group = described_group(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        elif budget.is_exhausted:
            group = described_group(group_id=group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            try:
                group = describe(group_id)
            except KafkaError as error:
                group = described_group(group_id=group_id, error_code=error.code, error_message=error.message)
        budget.spend(size_of(group))
        if ctx.has_authorizer and not all(map(may_describe, topics_of(group))):
            group = described_group(
                group_id=group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=topics_refused
            )
        if group.error_code == ErrorCode.NONE and request.include_authorized_operations:
            group.authorized_operations = authorized_operations(ctx, AclResourceType.GROUP, group_id)
        groups.append(group)
        await turn_budget.step(lookup_steps(group_id) + len(group.members))
    return groups

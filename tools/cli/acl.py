"""`barnabas acl`: list, add and remove ACLs."""

from __future__ import annotations

from typing import Annotated

import typer

from ...protocol.acl_bindings import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
)
from ...protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    AclResourceType,
)
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import (
    Bootstrap,
    Json,
    Row,
    Yes,
    ask_first,
    print_rows,
    run,
)

app = typer.Typer(help="List, add and remove ACLs.", no_args_is_help=True, add_completion=False)

Name = str | None
Topic = Annotated[Name, typer.Option("--topic", "-t", help="Topic name; * for all.")]
Group = Annotated[Name, typer.Option("--group", "-G", help="Group id; * for all.")]
TransactionalId = Annotated[Name, typer.Option("--transactional-id", help="Transactional id; * for all.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster resource.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="Treat the name as a prefix.")]
Principal = Annotated[Name, typer.Option("--principal", help="For example User:anna, or User:* for all users.")]
Host = Annotated[Name, typer.Option("--host", help="IP address or CIDR block of the client; * for all.")]
Operations = Annotated[
    list[str] | None, typer.Option("--operation", help="Read, Write, Create, …, All; may be repeated.")
]
Deny = Annotated[bool, typer.Option("--deny", help="Deny the operations instead of allowing them.")]


@app.command("list")
def list_rules(
    *,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    principal: Principal = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List all ACLs, or the ACLs of a resource or a principal."""
    named = _named(topic, group, transactional_id, cluster=cluster)
    filters = [AclBindingFilter(kind, name, AclPatternType.MATCH, principal) for kind, name in named]
    if not filters:
        filters = [AclBindingFilter(AclResourceType.ANY, None, AclPatternType.ANY, principal)]

    async def work() -> list[AclBinding]:
        async with admin_of(bootstrap) as admin:
            return [rule for wanted in filters for rule in await admin.describe_acls(wanted)]

    print_rows(list(map(_row, run(work()))), as_json=json)


@app.command("add")
def add_rules(
    *,
    principal: Annotated[str, typer.Option("--principal", help="For example User:anna, or User:* for all users.")],
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Host = WILDCARD,
    deny: Deny = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add ACLs that allow operations on a resource, or deny them with --deny. Default operation: All.

    barnabas acl add --principal User:anna -t orders --operation Read --operation Describe
    """
    named = _named(topic, group, transactional_id, cluster=cluster)
    if not named:
        raise typer.BadParameter("no resource given: use --topic, --group, --transactional-id or --cluster")
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    rules = [
        AclBinding(
            ResourcePattern(kind, name, _pattern(kind, prefixed=prefixed)),
            AccessControlEntry(principal, host or WILDCARD, one, permission),
        )
        for kind, name in named
        for one in _operations(operation)
    ]

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            await admin.create_acls(rules)

    run(work())
    print_rows(list(map(_row, rules)))


@app.command("remove")
def remove_rules(
    *,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    principal: Principal = None,
    host: Host = None,
    operation: Operations = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Remove and print the ACLs of a resource that match the principal, the host and the operations."""
    named = _named(topic, group, transactional_id, cluster=cluster)
    if not named:
        raise typer.BadParameter("no resource given: use --topic, --group, --transactional-id or --cluster")
    filters = [
        AclBindingFilter(kind, name, _pattern(kind, prefixed=prefixed), principal, host, one)
        for kind, name in named
        for one in (_operations(operation) if operation else [AclOperation.ANY])
    ]
    whose = f"ACLs of {principal}" if principal else "all ACLs"
    ask_first(f"remove {whose} for {', '.join(name for _, name in named)}?", yes=yes)

    async def work() -> list[AclBinding]:
        async with admin_of(bootstrap) as admin:
            return [rule for wanted in filters for rule in await admin.delete_acls(wanted)]

    print_rows(list(map(_row, run(work()))), as_json=json)


def _named(topic: Name, group: Name, transactional_id: Name, *, cluster: bool) -> list[tuple[AclResourceType, str]]:
    """Return the resources of the options."""
    given = {
        AclResourceType.TOPIC: topic,
        AclResourceType.GROUP: group,
        AclResourceType.TRANSACTIONAL_ID: transactional_id,
        AclResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    return [(kind, name) for kind, name in given.items() if name is not None]


def _pattern(kind: AclResourceType, *, prefixed: bool) -> AclPatternType:
    """Reject --prefixed with the cluster, which has no name."""
    is_prefix = prefixed and kind is not AclResourceType.CLUSTER
    return AclPatternType.PREFIXED if is_prefix else AclPatternType.LITERAL


def _operations(names: list[str] | None) -> list[AclOperation]:
    """Parse Kafka's words in any case. Raises typer.BadParameter."""
    by_word = {_word(one.name): one for one in AclOperation if one is not AclOperation.ANY}
    chosen = [by_word.get(_word(name)) for name in names or ["All"]]
    if unknown := [name for name, one in zip(names or (), chosen, strict=False) if one is None]:
        raise typer.BadParameter(
            f"{unknown[0]!r}: invalid value. Expected one of {', '.join(map(_shown, by_word.values()))}"
        )
    return [one for one in chosen if one is not None]


def _word(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _shown(one: AclOperation | AclResourceType | AclPatternType | AclPermissionType) -> str:
    return one.name.title().replace("_", "")


def _row(rule: AclBinding) -> Row:
    pattern, entry = rule
    return {
        "resource": _shown(pattern.resource_type),
        "name": pattern.name,
        "pattern": _shown(pattern.pattern_type),
        "principal": entry.principal,
        "host": entry.host,
        "operation": _shown(entry.operation),
        "permission": _shown(entry.permission),
    }

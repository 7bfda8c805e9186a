"""Shell completion: topics and groups of the cluster in the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import typer

from ...clients.admin import Admin
from ...protocol.errors import KafkaError
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, begin

_SECONDS = 2.0
"""Maximum wait after the Tab key."""
_LITERAL = "_@+:,./-"
"""Characters without a meaning in bash, zsh and fish."""


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete topic names."""

    async def names(admin: Admin) -> Iterable[str]:
        return [topic.name for topic in await admin.describe_topics() if incomplete or not topic.is_internal]

    return _asked(ctx, incomplete, names)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete group ids."""

    async def names(admin: Admin) -> Iterable[str]:
        return [group.group_id for group in await admin.list_groups()]

    return _asked(ctx, incomplete, names)


def share_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of share groups."""

    async def names(admin: Admin) -> Iterable[str]:
        return [group.group_id for group in await admin.list_groups(types=["share"])]

    return _asked(ctx, incomplete, names)


def streams_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete ids of streams groups."""

    async def names(admin: Admin) -> Iterable[str]:
        return [group.group_id for group in await admin.list_groups(types=["streams"])]

    return _asked(ctx, incomplete, names)


def _asked(ctx: typer.Context, incomplete: str, names: Callable[[Admin], Awaitable[Iterable[str]]]) -> list[str]:
    """Return nothing on errors, which completion cannot show."""
    root, own = ctx.find_root().params, ctx.params
    path = own.get("command_config") or root.get("command_config")
    bootstrap = own.get("bootstrap") or DEFAULT_BOOTSTRAP

    async def ask() -> list[str]:
        async with asyncio.timeout(_SECONDS), admin_of(bootstrap) as admin:
            return sorted(name for name in await names(admin) if name.startswith(incomplete) and is_plain_word(name))

    try:
        begin(Path(path) if path else None, root.get("settings"))
        return asyncio.run(ask())
    except (KafkaError, OSError, TimeoutError, ValueError):
        return []


def is_plain_word(name: str) -> bool:
    """Whether a shell reads the name as one literal argument that is not an option.

    A completion is inserted into the command line as it is, so the name of a group must not contain a command, such as
    `$(reboot)`, or a pattern of file names.
    """
    return bool(name) and not name.startswith("-") and all(one.isalnum() or one in _LITERAL for one in name)

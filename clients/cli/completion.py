"""What a shell completes: the topics and groups of the cluster that the command line names so far."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import typer

from ...protocol.errors import KafkaError
from ..admin import Admin
from .client_settings import DEFAULT_BOOTSTRAP, admin_of, begin

_SECONDS = 2.0
"""How long somebody who pressed Tab is kept waiting."""


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin like this."""

    async def names(admin: Admin) -> Iterable[str]:
        return [topic.name for topic in await admin.describe_topics() if incomplete or not topic.is_internal]

    return _asked(ctx, incomplete, names)


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin like this."""

    async def names(admin: Admin) -> Iterable[str]:
        return [group.group_id for group in await admin.list_groups()]

    return _asked(ctx, incomplete, names)


def _asked(ctx: typer.Context, incomplete: str, names: Callable[[Admin], Awaitable[Iterable[str]]]) -> list[str]:
    """Nothing where nobody answers: this is no place for errors."""
    root, own = ctx.find_root().params, ctx.params
    path = own.get("command_config") or root.get("command_config")
    bootstrap = own.get("bootstrap") or DEFAULT_BOOTSTRAP

    async def ask() -> list[str]:
        async with asyncio.timeout(_SECONDS), admin_of(bootstrap) as admin:
            return sorted(name for name in await names(admin) if name.startswith(incomplete))

    try:
        begin(Path(path) if path else None, root.get("settings"))
        return asyncio.run(ask())
    except (KafkaError, OSError, TimeoutError, ValueError):
        return []

"""Users in `kafka-configs`: SCRAM credentials and quotas through a broker, SCRAM credentials also in ZooKeeper."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer

from ....protocol.sasl import SCRAM_HASHES
from ....protocol.sasl_server import MAX_ITERATIONS, MIN_ITERATIONS
from .. import client_settings
from ..reasons import reason
from ..session import fail, run, say
from .scram_argument import ScramLogin

_PASSWORD = re.compile(r"(?:iterations=(\d{1,5}),)?password=(.+)", re.DOTALL)
"""The value of a mechanism, as in Kafka's ScramMechanism settings: the rest is the password, with its commas."""


class UserChanges(NamedTuple):
    """The changes of one command line."""

    credentials: dict[str, ScramLogin | None]
    """Users with their passwords by mechanism; None deletes a credential."""
    quotas: dict[str, float | None]
    """Values by key; None removes a quota."""


def changes_of(user: str, added: Mapping[str, str], removed: Sequence[str]) -> UserChanges:
    """Parse `--add-config` and `--delete-config` of a user. Raises typer.BadParameter, without a password."""
    changes = UserChanges({}, {})
    for key in removed:
        if key in SCRAM_HASHES:
            changes.credentials[key] = None
        else:
            changes.quotas[key] = None
    for key, value in added.items():
        if key in SCRAM_HASHES:
            changes.credentials[key] = _login(user, key, value)
        else:
            try:
                changes.quotas[key] = float(value)
            except ValueError:
                expected = f"a number, or one of {', '.join(SCRAM_HASHES)} with a password"
                raise typer.BadParameter(f"--add-config {key}: expected {expected}") from None
    return changes


def _login(user: str, mechanism: str, value: str) -> ScramLogin:
    found = _PASSWORD.fullmatch(value)
    if found is None:
        expected = "[password=PASSWORD] or [iterations=N,password=PASSWORD]"
        raise typer.BadParameter(f"--add-config {mechanism}: expected {expected}")
    iterations = int(found[1] or MIN_ITERATIONS)
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        expected = f"iterations from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        raise typer.BadParameter(f"--add-config {mechanism}: expected {expected}")
    return ScramLogin(user, mechanism, found[2], iterations=iterations)


async def alter_user(bootstrap: str, user: str, changes: UserChanges) -> None:
    """Change the credentials and quotas of a user. Raises KafkaError."""
    from ....clients.admin import ScramMechanism

    async with client_settings.admin_of(bootstrap) as admin:
        for name, login in changes.credentials.items():
            mechanism = ScramMechanism.of(name)
            if login is None:
                await admin.delete_user_scram_credential(user, mechanism)
            else:
                assert login.password is not None, "the command line has no salted passwords"
                await admin.upsert_user_scram_credential(user, login.password, mechanism, iterations=login.iterations)
        if changes.quotas:
            await admin.alter_quotas({"user": user}, changes.quotas)


def alter_user_in_zookeeper(connect: str, user: str, changes: UserChanges) -> None:
    """Set SCRAM credentials in ZooKeeper, which brokers may need for their start. Other settings are not supported."""
    if changes.quotas:
        raise typer.BadParameter("--zookeeper: only SCRAM credentials. Set quotas with --bootstrap-server")
    # Modules are looked up by name: a tool must not depend on the server.
    host: Any = import_module("barnabas.server.runtime.host")
    users: Any = import_module("barnabas.server.metadata.initial_users")
    store_error: Any = import_module("barnabas.server.metadata.metadata_store").StoreError
    credentials = {
        mechanism: None if login is None else login.credential(secrets.token_bytes)
        for mechanism, login in changes.credentials.items()
    }

    async def change() -> None:
        loop = asyncio.get_running_loop()
        work = host.ThreadWork(loop)
        try:
            await users.change_user_in_zookeeper(connect, user, credentials, loop=loop, work=work, now_ms=host.now_ms)
        except store_error as error:
            fail(reason(error))
        finally:
            work.close()

    run(change())


async def describe_users(bootstrap: str, only: str | None) -> None:
    """Print the quotas and the mechanisms of a user or of all, in the form of Kafka's ConfigCommand."""
    async with client_settings.admin_of(bootstrap) as admin:
        for quota in await admin.describe_quotas():
            if set(quota.entity) == {"user"} and only in (None, quota.entity["user"]):
                user = quota.entity["user"]
                owner = "the default user-principal" if user is None else f"user-principal '{user}'"
                values = ", ".join(f"{key}={value}" for key, value in sorted(quota.values.items()))
                say(f"Quota configs for {owner} are {values}")
        for user, credentials in (await admin.describe_user_scram_credentials()).items():
            if only in (None, user):
                shown = ", ".join(f"{one.mechanism.mechanism_name}=iterations={one.iterations}" for one in credentials)
                say(f"SCRAM credential configs for user-principal '{user}' are {shown}")

"""`barnabas user`: users with SCRAM passwords, their quotas and ACLs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ...clients.admin import Admin, ScramMechanism
from ...clients.admin.users import DEFAULT_ITERATIONS
from ...clients.user_summaries import user_summaries
from .client_settings import DEFAULT_BOOTSTRAP, admin_of
from .session import Bootstrap, Json, Row, Yes, ask_first, fail, print_rows, run, say

app = typer.Typer(help="List, add and remove users with SCRAM passwords.", no_args_is_help=True, add_completion=False)

MAX_PASSWORD_CHARACTERS = 4096
Name = Annotated[str, typer.Argument(help="The user, without `User:`.")]
Mechanism = Annotated[str, typer.Option("--mechanism", metavar="MECHANISM", help="SCRAM-SHA-512 or SCRAM-SHA-256.")]


@app.command("list")
def list_users(*, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List users with SCRAM passwords, users with quotas, and users with ACLs."""

    async def work() -> list[Row]:
        async with admin_of(bootstrap) as admin:
            return await user_rows(admin)

    print_rows(run(work()), as_json=json)


@app.command()
def add(
    name: Name,
    *,
    mechanism: Mechanism = "SCRAM-SHA-512",
    iterations: Annotated[
        int, typer.Option("--iterations", min=DEFAULT_ITERATIONS, max=16384, help="Iterations of the password hash.")
    ] = DEFAULT_ITERATIONS,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add a user, or set a new password. The password is read from the terminal or from standard input."""
    chosen = _mechanism(mechanism)
    password = _password(name)

    async def work() -> None:
        async with admin_of(bootstrap) as admin:
            await admin.upsert_user_scram_credential(name, password, chosen, iterations=iterations)

    run(work())
    say(f"user {name} has a password for {chosen.mechanism_name}")


@app.command()
def remove(
    name: Name,
    *,
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", metavar="MECHANISM", help="Only the password for this mechanism; all by default."),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the passwords of a user. The quotas and ACLs of the user remain."""
    only = None if mechanism is None else _mechanism(mechanism)
    ask_first(f"Remove the password of user {name}?", yes=yes)

    async def work() -> list[ScramMechanism]:
        async with admin_of(bootstrap) as admin:
            if only is not None:
                await admin.delete_user_scram_credential(name, only)
                return [only]
            credentials = (await admin.describe_user_scram_credentials([name]))[name]
            for one in credentials:
                await admin.delete_user_scram_credential(name, one.mechanism)
            return [one.mechanism for one in credentials]

    removed = ", ".join(one.mechanism_name for one in run(work()))
    say(f"removed the password of user {name} for {removed}")


async def user_rows(admin: Admin) -> list[Row]:
    """Return a row for each user with a password, a quota or an ACL. Raises KafkaError."""
    return [
        {
            "user": one.name,
            "mechanisms": [credential.mechanism.mechanism_name for credential in one.credentials],
            "quotas": [f"{key}={value:g}" for key, value in sorted(one.quotas.items())],
            "acls": one.acls,
        }
        for one in await user_summaries(admin)
    ]


def _mechanism(name: str) -> ScramMechanism:
    try:
        return ScramMechanism.of(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _password(user: str) -> str:
    """Read a password without echo from the terminal, or the first line of standard input."""
    if sys.stdin.isatty():
        password: str = typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline(MAX_PASSWORD_CHARACTERS + 1).rstrip("\r\n")
    if not password:
        fail("no password given: write it to standard input", status=2)
    if len(password) > MAX_PASSWORD_CHARACTERS:
        fail(f"the password is longer than {MAX_PASSWORD_CHARACTERS} characters", status=2)
    return password

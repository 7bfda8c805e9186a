"""`barnabas service`: a systemd unit for one broker, and alert rules for Prometheus."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from .reasons import reason
from .session import fail

app = typer.Typer(add_completion=False, no_args_is_help=True)
FILES = Path(__file__).parents[1] / "service"
UNIT_NAME = "barnabas.service"
SYSTEM_USER = "barnabas"

User = Annotated[bool, typer.Option("--user/--system", help="A service of the current user, or of the machine.")]
Properties = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="server.properties of the broker (/etc/barnabas/server.properties, ~/.config/barnabas/server.properties).",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data directory (/var/lib/barnabas, ~/.local/share/barnabas)."),
]


@app.callback()
def service() -> None:
    """Run a broker as a systemd service, and watch it with Prometheus."""


@app.command("print")
def print_unit(*, user: User = True, config: Properties = None, data: Data = None) -> None:
    """Print the systemd unit."""
    typer.echo(unit_text(user=user, config=config, data=data), nl=False)


@app.command()
def install(
    *,
    user: User = True,
    config: Properties = None,
    data: Data = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing unit.")] = False,
) -> None:
    """Write the systemd unit and an empty server.properties, and print the commands that start the service."""
    unit = unit_directory(user=user) / UNIT_NAME
    properties = config or default_properties(user=user)
    control = "systemctl --user" if user else "systemctl"
    if unit.exists() and not force:
        fail(f"{unit} exists. Use --force to replace it")
    try:
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(unit_text(user=user, config=config, data=data), encoding="utf-8")
        if not properties.exists():
            properties.parent.mkdir(parents=True, exist_ok=True)
            # 0600 from the beginning: the file may contain passwords later.
            with os.fdopen(os.open(properties, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"# Settings with Kafka's names. After a change: {control} restart barnabas\n")
            if not user and shutil.which("chown") and os.geteuid() == 0:
                _give_to_service_user(properties)
    except OSError as error:
        fail(reason(error))
    typer.echo(f"wrote {unit}")
    typer.echo(f"settings: {properties}")
    if not user:
        typer.echo(f"once:  useradd --system --home-dir /var/lib/barnabas {SYSTEM_USER}")
    else:
        typer.echo("once:  loginctl enable-linger    # the service also runs while the user is not logged in")
    typer.echo(f"start: {control} daemon-reload && {control} enable --now barnabas")
    typer.echo(f"log:   journalctl {'--user ' if user else ''}--unit barnabas --follow")


@app.command()
def alerts() -> None:
    """Print alert rules for Prometheus."""
    typer.echo((FILES / "alerts.yml").read_text(encoding="utf-8"), nl=False)


def unit_text(*, user: bool, config: Path | None, data: Path | None) -> str:
    """Return the unit of a service that runs the `barnabas` of this Python environment."""
    directory = data or default_data(user=user)
    identity = sandbox = ""
    if not user:
        identity = f"User={SYSTEM_USER}\nGroup={SYSTEM_USER}\n"
        sandbox = (
            "PrivateTmp=yes\nPrivateDevices=yes\nProtectSystem=strict\nProtectHome=read-only\nProtectKernelTunables=yes\n"
            f"ProtectControlGroups=yes\nReadWritePaths={directory}\n"
        )
        if directory.parent == Path("/var/lib"):
            identity += f"StateDirectory={directory.name}\nStateDirectoryMode=0700\n"
    return (
        (FILES / UNIT_NAME)
        .read_text(encoding="utf-8")
        .format(
            command=_escaped(Path(sys.executable).parent / "barnabas"),
            properties=_escaped(config or default_properties(user=user)),
            data=_escaped(directory),
            identity=identity,
            sandbox=sandbox,
            target="default.target" if user else "multi-user.target",
        )
    )


def unit_directory(*, user: bool) -> Path:
    """Return systemd's directory for units of an administrator or of a user."""
    return _user_directory("XDG_CONFIG_HOME", ".config") / "systemd" / "user" if user else Path("/etc/systemd/system")


def default_properties(*, user: bool) -> Path:
    """Return the place of server.properties."""
    directory = _user_directory("XDG_CONFIG_HOME", ".config") if user else Path("/etc")
    return directory / "barnabas" / "server.properties"


def default_data(*, user: bool) -> Path:
    """Return the data directory."""
    return _user_directory("XDG_DATA_HOME", ".local/share") / "barnabas" if user else Path("/var/lib/barnabas")


def _user_directory(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def _escaped(path: Path) -> str:
    """Return the absolute path as a word of a unit: systemd replaces % and splits words at blanks."""
    text = str(path.absolute()).replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{text}"' if any(one.isspace() for one in text) else text


def _give_to_service_user(properties: Path) -> None:
    try:
        shutil.chown(properties, SYSTEM_USER, SYSTEM_USER)
    except LookupError:
        typer.echo(f"user {SYSTEM_USER} does not exist yet: chown {SYSTEM_USER}: {properties} afterwards")

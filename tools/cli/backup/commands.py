"""The commands `barnabas backup` and `barnabas restore`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from ..client_settings import DEFAULT_BOOTSTRAP
from ..local_broker import LocalBroker, LocalBrokerError
from ..reasons import reason
from ..session import (
    Bootstrap,
    Json,
    Row,
    Yes,
    ask_first,
    fail,
    print_json,
    print_rows,
    progress_bar,
    readable_size,
    say,
    warn,
)
from ..session import run as run_on_loop
from .manifest import BackupManifest, backup_ids, read_manifest
from .restore import restore_backup, verify_backups
from .take import delete_old_backups, take_backup
from .target import BackupError, Target, open_target

T = TypeVar("T")

TargetName = Annotated[
    str,
    typer.Argument(metavar="DIR|URL", help="Folder of the backups, or a URL for fsspec such as s3://bucket/folder."),
]
BackupId = Annotated[str | None, typer.Option("--backup", metavar="ID", help="Id of a backup (`backup list`).")]


class BackupGroup(TyperGroup):
    """A group in which `backup DIR` means `backup create DIR`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["create", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=BackupGroup,
    help="Back up a running broker to a folder or an object store. `backup DIR` is short for `backup create DIR`.",
    no_args_is_help=True,
    add_completion=False,
)
restore_app = typer.Typer(add_completion=False)


@app.command()
def create(
    target: TargetName,
    *,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, metavar="N", help="Then delete all backups but the newest N.")
    ] = None,
    yes: Yes = False,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="URL of the broker's health port, if the command cannot find it."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Back up the broker that runs on this machine. Only content that the target does not have is copied.

    The backup is the state of the broker at one moment: topics, records, committed offsets, transactions, users, ACLs
    and settings. The user of this command must be able to read the data directory.
    """

    def work() -> BackupManifest:
        if keep is not None:
            _ask_to_delete(open_target(target), keep, yes=yes)
        broker = LocalBroker(url or run_on_loop(LocalBroker.find(bootstrap)))
        with progress_bar("back up") as show:
            return take_backup(open_target(target), broker, show)

    manifest = _run(work)
    damages = [f"{path}: {file.damage}" for path, file in manifest.all_files() if file.damage is not None]
    if not json:
        say(
            f"backup {manifest.id}: {len(manifest.partitions)} partitions, {readable_size(manifest.size)}, "
            f"{readable_size(manifest.new_bytes)} new"
        )
    deleted = [] if keep is None else _run(lambda: delete_old_backups(open_target(target), keep))
    if json:
        print_json({**_row(manifest), "deleted": deleted, "damages": damages})
    else:
        for one in deleted:
            say(f"deleted backup {one}")
    for damage in damages:
        warn(f"the broker's data directory: {damage}")
    if damages:
        raise typer.Exit(1)


@app.command("list")
def list_backups(target: TargetName, *, json: Json = False) -> None:
    """List the backups in a target, the oldest first."""

    def work() -> list[Row]:
        place = open_target(target)
        rows: list[Row] = []
        for backup_id in backup_ids(place):
            try:
                rows.append(_row(read_manifest(place, backup_id)))
            except BackupError as error:
                warn(str(error))
                rows.append(dict.fromkeys(_COLUMNS) | {"backup": backup_id, "state": "damaged"})
        return rows

    print_rows(_run(work), as_json=json)


@app.command()
def verify(target: TargetName, *, backup: BackupId = None, json: Json = False) -> None:
    """Read backups back, all by default: checksums, CRCs and offsets of all batches, and the metadata store."""

    def work() -> tuple[list[str], int, list[tuple[str, str]]]:
        place = open_target(target)
        ids = backup_ids(place)
        if backup is not None and backup not in ids:
            raise BackupError(f"{place.name}: there is no backup {backup}")
        if not ids:
            raise BackupError(f"{place.name}: there is no backup")
        ids = ids if backup is None else [backup]
        with progress_bar("verify") as show:
            return ids, *verify_backups(place, ids, show)

    ids, size, problems = _run(work)
    bad = {backup_id for backup_id, _ in problems}
    if json:
        print_json(
            {
                "backups": [{"backup": one, "state": "damaged" if one in bad else "complete"} for one in ids],
                "bytes": size,
                "problems": [{"backup": backup_id, "problem": problem} for backup_id, problem in problems],
            }
        )
    else:
        for backup_id, problem in problems:
            warn(f"backup {backup_id}: {problem}")
        say(f"{len(ids) - len(bad)} of {len(ids)} backups are complete; {readable_size(size)} read")
    if problems:
        raise typer.Exit(1)


@restore_app.command("restore", no_args_is_help=True)
def restore(
    target: TargetName,
    *,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="New data directory. It must be empty, or must not exist.")
    ],
    backup: BackupId = None,
    json: Json = False,
) -> None:
    """Restore a backup, the newest by default, into a new data directory. All content is checked.

    Then start a broker on it: barnabas start --data DIR
    """

    def work() -> tuple[BackupManifest, list[str]]:
        with progress_bar("restore") as show:
            return restore_backup(open_target(target), backup, to.absolute(), show)

    manifest, warnings = _run(work)
    for one in warnings:
        warn(one)
    if json:
        print_json({**_row(manifest), "directory": str(to.absolute()), "damages": warnings})
    else:
        say(
            f"restored backup {manifest.id} to {to}: {len(manifest.partitions)} partitions, "
            f"{readable_size(manifest.size)}"
        )


def _run(work: Callable[[], T]) -> T:
    """Do the work of a command. Each error is printed as one line, also errors of the packages of object stores."""
    try:
        return work()
    except (BackupError, LocalBrokerError) as error:
        fail(str(error))
    except OSError as error:
        fail(reason(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:  # noqa: BLE001 - the errors of a protocol's package have no common base class
        fail(f"{type(error).__name__}: {error}")


def _ask_to_delete(target: Target, keep: int, *, yes: bool) -> None:
    """Require a confirmation before the backup starts, because a backup can take hours."""
    old = len(backup_ids(target)) + 1 - keep
    if old > 0:
        ask_first(f"Delete the {old} oldest backups after this one?", yes=yes)


_COLUMNS = ("backup", "time", "bytes", "new_bytes", "partitions", "cluster", "broker", "state")


def _row(manifest: BackupManifest) -> dict[str, object]:
    moment = datetime.fromtimestamp(manifest.created_ms / 1000, UTC)
    values = (
        manifest.id,
        moment.isoformat(timespec="milliseconds"),
        manifest.size,
        manifest.new_bytes,
        len(manifest.partitions),
        manifest.cluster_id,
        manifest.broker_id,
        "complete",
    )
    return dict(zip(_COLUMNS, values, strict=True))

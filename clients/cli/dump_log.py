"""`barnabas dump-log`: what the files of a partition hold, without a broker."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from .reasons import reason
from .session import fail, print_json

app = typer.Typer(add_completion=False)

_KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@app.command("dump-log")
def dump_log(
    paths: Annotated[list[Path], typer.Argument(help="Files of a partition, its folder, or a log directory with all.")],
    *,
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="A line for each record, too.")] = False,
    print_data: Annotated[bool, typer.Option("--print-data-log", help="With keys and values.")] = False,
    verify: Annotated[bool, typer.Option("--verify-index-only", help="Only what contradicts the log.")] = False,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """Print segments, indexes, snapshots and checkpoints, in the words of kafka-dump-log."""
    dump: Any = import_module("barnabas.storage.dump")
    disk = import_module("barnabas.storage.filesystem").OsFileSystem()
    problems = 0
    try:
        files = [file for path in paths for file in _files(path)]
    except OSError as error:
        fail(reason(error))
    for path in files:
        if verify and path.suffix != ".log":
            continue
        if not json:
            print(f"Dumping {path}")
        try:
            if verify:
                entries = dump.verify_indexes(disk, str(path))
            else:
                entries = dump.dump_file(disk, str(path), deep_iteration=deep_iteration, print_data=print_data)
            for entry in entries:
                problems += entry.kind == "problem"
                print_json({"file": str(path), "kind": entry.kind} | _plain(entry.columns)) if json else print(entry)
        except OSError as error:
            fail(reason(error))
        except ValueError as error:
            fail(str(error))
    if problems:
        fail(f"{problems} problems found")


def _files(path: Path) -> list[Path]:
    """The file itself, or those of a partition's folder, or of all that a log directory holds."""
    if not path.is_dir():
        return [path]
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    files = [file for folder in folders for file in sorted(p for p in folder.iterdir() if p.suffix in _KINDS)]
    return files or fail(f"{path}: no files of a partition are here")


def _plain(columns: dict[str, Any]) -> dict[str, Any]:
    return {k: v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else v for k, v in columns.items()}

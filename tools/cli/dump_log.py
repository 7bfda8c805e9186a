"""`barnabas dump-log`: the contents of a partition's files, without a broker."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from .reasons import reason
from .session import fail, print_json, say

app = typer.Typer(add_completion=False)

_KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")


@app.command("dump-log")
def dump_log(
    paths: Annotated[list[Path], typer.Argument(help="Files of a partition, its directory, or a log directory.")],
    *,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Print records in addition to batches.")
    ] = False,
    print_data: Annotated[bool, typer.Option("--print-data-log", help="Print records with keys and values.")] = False,
    decode_metadata: Annotated[
        bool, typer.Option("--cluster-metadata-decoder", help="Decode the metadata of a KRaft cluster.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify-index-only", help="Print only the inconsistencies between indexes and log.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print segments, indexes, snapshots and checkpoints, in the format of kafka-dump-log."""
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
            say(f"Dumping {path}")
        try:
            if verify:
                entries = dump.verify_indexes(disk, str(path))
            else:
                entries = dump.dump_file(
                    disk,
                    str(path),
                    deep_iteration=deep_iteration,
                    print_data=print_data,
                    decode_metadata=decode_metadata,
                )
            for entry in entries:
                problems += entry.kind == "problem"
                if json:
                    print_json({"file": str(path), "kind": entry.kind} | _plain(entry.columns))
                else:
                    say(str(entry))  # keys, values and ids in records are text of clients
        except OSError as error:
            fail(reason(error))
        except ValueError as error:
            fail(str(error))
    if problems:
        fail(f"{problems} problems found")


def _files(path: Path) -> list[Path]:
    """Return the file itself, or the files of a partition directory, or all files of a log directory."""
    if not path.is_dir():
        return [path]
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    files = [file for folder in folders for file in sorted(p for p in folder.iterdir() if p.suffix in _KINDS)]
    return files or fail(f"{path}: contains no files of a partition")


def _plain(columns: dict[str, Any]) -> dict[str, Any]:
    return {k: v.decode("utf-8", "backslashreplace") if isinstance(v, bytes) else v for k, v in columns.items()}

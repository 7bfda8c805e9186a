"""Compaction of a partition's directory from the command line, without a broker."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from .session import (
    fail,
    print_json,
    print_rows,
    progress_bar,
)


def compact_folder(folder: Path, settings: Mapping[str, str], *, hash_name: str, dry_run: bool, as_json: bool) -> None:
    """Compact `folder`, and print the result. A dry run compacts a copy next to the directory."""
    folder = folder.resolve()
    try:
        cleaner = _cleaner(settings, hash_name)
        with _copy(folder) if dry_run else _itself(folder) as place, progress_bar(f"compact {folder.name}") as show:
            report = cleaner.compact(str(place), lambda step: show(step.done / max(step.total, 1)))
    except BlockingIOError:
        fail(f"{folder.parent} is in use by a broker: use barnabas compact TOPIC")
    except Exception as error:  # noqa: BLE001 - the command ends with the reason instead of a traceback
        fail(str(error))
    row = {
        "partition": str(report.topic_partition),
        "bytes before": report.bytes_before,
        "bytes after": report.bytes_after,
        "segments before": report.segments_before,
        "segments after": report.segments_after,
        "records kept": report.passes[-1].messages_written if report.passes else None,
        "passes": len(report.passes),
        "collision rate": round(report.passes[-1].map_collision_rate, 4) if report.passes else None,
        "clean to": report.clean_offset,
        "dry run": dry_run,
    }
    if as_json:
        print_json(row)
    else:
        print_rows([row])


def _cleaner(settings: Mapping[str, str], hash_name: str) -> Any:
    """Import the storage packages, which commands of clients do not need."""
    offline: Any = import_module("barnabas.storage.cleaning.offline")
    log_to_clean: Any = import_module("barnabas.storage.cleaning.log_to_clean")
    log_config: Any = import_module("barnabas.storage.log_config")
    filesystem: Any = import_module("barnabas.storage.filesystem")
    return offline.OfflineCleaner(
        filesystem.OsFileSystem(),
        now_ms=lambda: time.time_ns() // 1_000_000,
        rng=random.Random(),
        config=log_config.LogConfig.from_props({"cleanup.policy": "compact", **settings}),
        settings=log_to_clean.CleanerSettings(hash_name=hash_name),
    )


@contextmanager
def _itself(folder: Path) -> Iterator[Path]:
    yield folder


@contextmanager
def _copy(folder: Path) -> Iterator[Path]:
    """Link the partition with its checkpoints into a separate directory, which no broker treats as a partition."""
    with tempfile.TemporaryDirectory(prefix=".dry-run.", dir=folder.parent) as name:
        place = Path(name) / folder.name
        shutil.copytree(folder, place)
        for file in folder.parent.iterdir():
            if file.is_file() and (file.name.endswith("-checkpoint") or file.name == ".kafka_cleanshutdown"):
                shutil.copy2(file, name)
        yield place

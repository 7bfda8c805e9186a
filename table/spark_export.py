"""The state of a table that Spark has begun: files and offsets of `barnabas spark export`, or of any query of the
Barnabas source into Parquet or Delta whose checkpoint is the folder `_checkpoint` in the table.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from . import host
from .offsets import TableOffsets
from .partitioning import PartitionField

SPARK_FIELDS = (PartitionField("topic"), PartitionField("timestamp", "day", "date"))
"""The partitions of `barnabas spark export`."""
_CHECKPOINT, _SINK_LOG = "_checkpoint", "_spark_metadata"
_COMPACT = ".compact"
_FOLLOWED = "followed"
"""File in the checkpoint, for which `barnabas spark export` refuses to continue: it would write records again."""


@dataclass(frozen=True)
class SparkExport:
    """The offsets after the last finished batch and its number, the id of the query, and for the file sink the files
    of finished batches by path in the folder.
    """

    offsets: TableOffsets
    batch: int
    query: str
    files: list[str]


def read_export(folder: Path) -> SparkExport | None:
    """Return the state of the table in a folder; None if Spark has not begun one. Raises ValueError.

    A batch that Spark has begun and not finished must be finished by Spark, since its files may be incomplete.
    """
    checkpoint = folder / _CHECKPOINT
    begun, finished = _numbers(checkpoint / "offsets"), _numbers(checkpoint / "commits")
    if not begun or not finished:
        return None
    last = finished[-1]
    if begun[-1] != last:
        raise ValueError(f"{folder}: batch {begun[-1]} of Spark is not finished. Run the job in Spark once more")
    lines = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    # The first line is the version, the second one the metadata, and each other one the offset of a source.
    if len(lines) != 3:
        raise ValueError(f"{checkpoint}: the query of the checkpoint has {len(lines) - 2} sources instead of one")
    query = str(json.loads((checkpoint / "metadata").read_text())["id"])
    return SparkExport(TableOffsets.of_text(lines[2]), last, query, _files(folder))


def take_over(folder: Path) -> None:
    """Prevent that Spark continues the table. Called before the follower's first commit."""
    host.replace_file(folder / _CHECKPOINT / _FOLLOWED, b"by barnabas table follow\n")


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else []


def _files(folder: Path) -> list[str]:
    """Return the files in the log of Spark's file sink. Every tenth entry (`.compact`) contains all earlier ones."""
    log = folder / _SINK_LOG
    if not log.is_dir():
        return []
    entries = {int(path.name.removesuffix(_COMPACT)): path for path in log.iterdir() if path.name[0].isdecimal()}
    compacted = [number for number, path in entries.items() if path.name.endswith(_COMPACT)]
    first = max(compacted, default=0)
    found: list[str] = []
    for number in sorted(number for number in entries if number >= first):
        for line in entries[number].read_text().splitlines()[1:]:
            entry = json.loads(line)
            path = Path(unquote(urlsplit(entry["path"]).path))
            name = path.relative_to(folder.resolve()).as_posix()
            if entry["action"] == "add":
                found.append(name)
            else:
                found.remove(name)
    return found


def retire_sink_log(folder: Path, files: Collection[str]) -> None:
    """Delete the files of failed tasks of Spark, and rename the log of its sink. Called when the manifest exists.

    As long as the folder has the log, Spark reads only the files in the log; without it, all Parquet files.
    """
    log = folder / _SINK_LOG
    if not log.is_dir():
        return
    for path in folder.rglob("*.parquet"):
        name = path.relative_to(folder).as_posix()
        if not name.startswith("_") and name not in files:
            path.unlink()
    log.rename(folder / f"_barnabas{_SINK_LOG}")

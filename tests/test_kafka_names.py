"""`docs/kafka-0.8-names.md` maps the class names of Kafka 0.8 to 0.10 to files and symbols that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kafka-0.8-names.md"

KAFKA_NAMES = """
    ByteBufferMessageSet Cleaner CleanerThread ClientQuotaManager DelayedFetch DelayedProduce FetchDataInfo
    FileMessageSet GroupCoordinator GroupMetadataManager KafkaApis KafkaController KafkaRequestHandler Log
    LogAppendInfo LogCleaner LogManager LogOffsetMetadata LogSegment MessageSet MetadataCache OffsetCheckpoint
    OffsetIndex OffsetMap Partition PartitionStateMachine QuotaManagers Replica ReplicaFetcherThread ReplicaManager
    ReplicaStateMachine RequestChannel RequestPurgatory SkimpyOffsetMap TopicDeletionManager ZkUtils appendMessages
    recordAndMaybeThrottle searchFor validateMessagesAndAssignOffsets
""".split()  # noqa: SIM905 - forty names are easier to read without quotes


def symbols_of(source: str) -> set[str]:
    """Return the names that a module defines, with `Class.member` for methods, fields and properties."""
    found = set[str]()
    for node in ast.parse(source).body:
        found |= _names_of(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for member in node.body for name in _names_of(member)}
    return found


def _names_of(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.AnnAssign(target=ast.Name() as name):
            return {name.id}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def missing(page: str, root: Path = ROOT) -> list[str]:
    """Return each `file` and `file::symbol` of a page that does not exist."""
    absent = []
    for path, symbol in sorted(set(re.findall(r"`([\w./-]+/[\w.-]*)(?:::([\w.]+))?`", page))):
        file = root / path
        if not file.exists():
            absent.append(path)
        elif symbol and symbol not in symbols_of(file.read_text()):
            absent.append(f"{path}::{symbol}")
    return sorted(set(absent))


def test_every_file_and_symbol_on_the_page_exists() -> None:
    absent = missing(PAGE.read_text())
    assert absent == [], "update docs/kafka-0.8-names.md:\n" + "\n".join(absent)


def test_every_name_that_readers_look_for_is_on_the_page() -> None:
    rows = re.findall(r"(?m)^\| ([^|]+) \|", PAGE.read_text())
    named = {part for row in rows for name in re.findall(r"`([\w.]+)`", row) for part in name.split(".")}
    assert sorted(set(KAFKA_NAMES) - named) == []


def test_missing_files_and_symbols_are_listed(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "log.py").write_text("LIMIT = 1\nclass Log:\n    size: int\n    def read(self): ...\n")
    page = (
        "`storage/log.py::Log` `storage/log.py::Log.read` `storage/log.py::Log.size` `storage/log.py::LIMIT` `storage/`"
    )
    assert missing(page, tmp_path) == []
    page = "`storage/log.py::Log.append` `storage/no.py::A` `storage/no.py::B` `storage/log.py` `storage/log.py::no`"
    assert missing(page, tmp_path) == ["storage/log.py::Log.append", "storage/log.py::no", "storage/no.py"]

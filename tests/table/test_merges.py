"""Merges of small files that other commits interrupt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.conftest import location, rows_of
from tests.table.test_follow import NUMBERS, add_rows

from barnabas.table import TableOffsets, open_table
from barnabas.table.column_renames import ColumnRename
from barnabas.table.parquet_files import TableSettings, files_of_merge
from barnabas.table.sink import TableConflictError

KINDS = ("parquet", "iceberg", "delta")


def numbers_of(to: str) -> list[int]:
    return sorted(row["n"] for row in rows_of(to))


def data_files(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if ".parquet" in path.name)


def begin_merge(sink: Any) -> None:
    """Write three small files and a part of the file that replaces them."""
    sink.load()
    for first in range(0, 30, 10):
        add_rows(sink, first)
    assert sink.maintain(lambda: True) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_continues_after_other_commits(tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    with open_table(to, TableSettings(merge_at=3)) as sink:
        begin_merge(sink)
        assert data_files(tmp_path) == 4
        merged, first = 0, 30
        while not merged:
            add_rows(sink, first)
            first += 10
            assert numbers_of(to) == list(range(first))
            merged = sink.maintain(lambda: True)
        assert merged == 3 and first == 60, "one step for each of the files, and one that finds no more rows"
        assert numbers_of(to) == list(range(first))
    if kind == "parquet":
        assert data_files(tmp_path) == 1 + 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_upsert_of_a_file_ends_its_merge(tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    with open_table(to, TableSettings(merge_at=3)) as sink:
        begin_merge(sink)
        rows = pa.record_batch([pa.array([5])], schema=NUMBERS)
        sink.upsert(iter([rows]), pa.array([5, 6]), "n")
        sink.commit(TableOffsets())
        expected = [n for n in range(30) if n != 6]
        assert numbers_of(to) == expected
        add_rows(sink, 100)
        assert sink.maintain() == 4, "a new merge, of all small files"
        assert numbers_of(to) == [*expected, *range(100, 110)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_merge_leaves_no_files(tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    with open_table(to, TableSettings(merge_at=3)) as sink:
        begin_merge(sink)
        assert data_files(tmp_path) == 4
    assert data_files(tmp_path) == 3
    assert numbers_of(to) == list(range(30))


def test_a_merge_does_not_miss_a_column_that_is_renamed(tmp_path: Path) -> None:
    to = location("iceberg", tmp_path)
    with open_table(to, TableSettings(merge_at=3)) as sink:
        begin_merge(sink)
        sink.rename([ColumnRename(("n",), "m")])
        assert sink.maintain() == 3
    assert sorted(row["m"] for row in rows_of(to)) == list(range(30))


def test_a_merge_ends_when_another_program_merges_its_files(tmp_path: Path) -> None:
    to = location("delta", tmp_path)
    with open_table(to, TableSettings(merge_at=3)) as sink:
        begin_merge(sink)
        from deltalake import DeltaTable

        DeltaTable(to.removeprefix("delta://")).optimize.compact()
        add_rows(sink, 30)  # loads the commit of the other program
        assert sink.maintain() == 0
        for first in (40, 50, 60):
            add_rows(sink, first)
            sink.maintain()
        assert numbers_of(to) == list(range(70))


@pytest.mark.parametrize("at", ["merge", "commit"])
def test_another_follower_of_a_delta_table_is_a_conflict(tmp_path: Path, at: str) -> None:
    to = location("delta", tmp_path)
    with open_table(to, TableSettings(merge_at=3)) as sink, open_table(to) as other:
        begin_merge(sink)
        other.load()
        add_rows(other, 30)
        with pytest.raises(TableConflictError):
            if at == "merge":
                sink.maintain()
            else:
                add_rows(sink, 30)
    assert numbers_of(to) == list(range(40))


def test_a_merge_has_files_up_to_the_target_size() -> None:
    assert files_of_merge([40, 30, 50, 10, 10], lambda size: size, 100) == [40, 30, 50]
    assert files_of_merge([40, 30], lambda size: size, 100) == [40, 30]

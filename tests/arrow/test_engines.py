"""Polars and DuckDB read streams, and their projections and filters reach the read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.arrow.conftest import batch, folder_of

from barnabas.arrow import RecordStream, read_folder

pl = pytest.importorskip("polars", reason="pip install 'barnabas[dev]'")
duckdb = pytest.importorskip("duckdb", reason="pip install 'barnabas[dev]'")


@pytest.fixture
def stream(tmp_path: Path) -> RecordStream:
    for partition in range(3):
        folder_of(tmp_path, (0, b"".join(batch(i, 10) for i in range(0, 100, 10))), name=f"t-{partition}")
    return read_folder(str(tmp_path), value="string")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], list[tuple[int, int, int]]]]:
    """The columns and the ranges (partition, start, end) of each read."""
    found: list[tuple[list[str], list[tuple[int, int, int]]]] = []
    batches = RecordStream._batches

    def noted(self: RecordStream, names: Any, expression: Any) -> Any:
        ranges = [(r.partition.partition, r.start, r.end) for r in self._narrowed(expression)]
        found.append((list(names), ranges))
        return batches(self, names, expression)

    monkeypatch.setattr(RecordStream, "_batches", noted)
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select count(*) from stream", [(300,)]),
        ('select max("offset") from stream where partition <> 1', [(99,)]),
        ("select count(*) from stream a join stream b on a.value = b.value", [(900,)]),
        ("select partition, count(*) from stream group by all order by all", [(0, 100), (1, 100), (2, 100)]),
        ("select count(*) from (from stream limit 5)", [(5,)]),
        ("select count(*) from stream where value = 'v7' or key = 'k8'::blob", [(6,)]),
        ('select headers[1].value::varchar from stream where "offset" = 42 and partition = 0', [("42",)]),
        ('select count(*) from stream where partition in (0, 2) and "offset" between 5 and 10', [(12,)]),
        ("select count(*) from stream where timestamp >= timestamptz '2023-11-14 22:14:50Z'", [(30,)]),
    ],
)
def test_queries_of_duckdb(stream: RecordStream, query: str, expected: list[tuple[Any, ...]]) -> None:
    assert duckdb.sql(query).fetchall() == expected


def test_duckdb_reads_only_what_it_needs(stream: RecordStream, reads: Any) -> None:
    sql = 'select value from stream where partition = 1 and "offset" >= 40 and "offset" < 43'
    assert sorted(duckdb.sql(sql).fetchall()) == [("v40",), ("v41",), ("v42",)]
    columns, ranges = reads[-1]
    assert "key" not in columns and "headers" not in columns
    assert ranges == [(1, 40, 43)]


def test_queries_of_polars(stream: RecordStream, reads: Any) -> None:
    lazy = pl.scan_pyarrow_dataset(stream)
    found = (
        lazy.filter((pl.col("partition") == 2) & pl.col("offset").is_between(3, 5)).select("key", "offset").collect()
    )
    assert found.sort("offset")["key"].to_list() == [b"k3", b"k4", b"k5"]
    columns, ranges = reads[-1]
    assert "value" not in columns and ranges == [(2, 3, 6)]
    assert lazy.select(pl.len()).collect().item() == 300
    assert lazy.head(5).collect().height == 5
    assert lazy.filter(pl.col("value").str.contains("v9")).select(pl.len()).collect().item() == 33
    assert pl.from_arrow(stream).height == 300


def test_a_table_of_parquet_is_written_from_a_stream(stream: RecordStream, tmp_path: Path) -> None:
    from pyarrow import dataset

    dataset.write_dataset(stream, tmp_path / "out", format="parquet")
    assert dataset.dataset(tmp_path / "out").count_rows() == 300

"""Polars and DuckDB read streams, and their projections and filters reach the read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import compute as pc
from tests.arrow.conftest import BEGIN_MS, batch, folder_of

from barnabas.arrow import RecordStream, read_folder

pl = pytest.importorskip("polars", reason="pip install 'barnabas[dev]'")
duckdb = pytest.importorskip("duckdb", reason="pip install 'barnabas[dev]'")
assert_frame_equal = pytest.importorskip("polars.testing").assert_frame_equal
from barnabas.arrow import scan_barnabas  # noqa: E402  # imports Polars


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

    def noted(self: RecordStream, names: Any, expression: Any, bounds: Any = None, limit: Any = None) -> Any:
        ranges = [(r.partition.partition, r.start, r.end) for r in self._narrowed(expression, bounds)]
        found.append((list(names), ranges))
        return batches(self, names, expression, bounds, limit)

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


def test_duckdb_registers_a_stream_under_a_name(stream: RecordStream, reads: Any) -> None:
    with duckdb.connect() as connection:
        connection.register("flights", stream)
        connection.execute('create view late as select * from flights where "offset" >= 90')
        assert connection.execute("select count(*), min(value) from late where partition = 0").fetchall() == [
            (10, "v90")
        ]
    assert reads[-1][1] == [(0, 90, 100)]


# scan_barnabas


def second(number: int) -> datetime:
    """The time of the record with this offset."""
    return datetime.fromtimestamp(BEGIN_MS / 1000 + number, UTC)


@pytest.mark.parametrize(
    ("predicate", "ranges"),
    [
        (pl.col("partition") == 1, [(1, 0, 100)]),
        ((pl.col("partition") != 1) & (pl.col("offset") > 90), [(0, 90, 100), (2, 90, 100)]),
        (pl.col("partition").is_in([0, 2]) & pl.col("offset").is_between(5, 10), [(0, 5, 11), (2, 5, 11)]),
        (pl.col("offset").is_in([12, 77]) & (pl.col("partition") % 2 == 1), [(1, 12, 78)]),
        (
            ((pl.col("offset") == 5) | (pl.col("offset") == 9)) & (pl.col("topic") == "t"),
            [(p, 5, 10) for p in range(3)],
        ),
        (pl.col("topic").str.starts_with("u"), []),
        ((pl.col("timestamp") >= second(50)) & (pl.col("partition") == 0), [(0, 50, 100)]),
        ((pl.col("timestamp") > pl.lit(second(50))) & (pl.col("partition") == 0), [(0, 50, 100)]),
        ((pl.lit(5) <= pl.col("offset")) & (pl.lit(7) > pl.col("offset")) & (pl.col("partition") < 1), [(0, 5, 8)]),
        (pl.col("value") == "v7", [(p, 0, 100) for p in range(3)]),
        (pl.col("offset") * 2 == 14, [(p, 0, 100) for p in range(3)]),
        (~(pl.col("offset") < 90), [(p, 90, 100) for p in range(3)]),
    ],
)
def test_predicates_of_polars_narrow_the_read(stream: RecordStream, reads: Any, predicate: Any, ranges: Any) -> None:
    found = scan_barnabas(stream).filter(predicate).collect()
    assert reads[-1][1] == ranges
    table = pl.from_arrow(stream.to_table())
    assert isinstance(table, pl.DataFrame)
    assert_frame_equal(found, table.filter(predicate), check_row_order=False)


def test_a_lazy_frame_reads_the_columns_of_its_query(stream: RecordStream, reads: Any) -> None:
    lazy = scan_barnabas(stream)
    assert lazy.collect_schema() == pl.Schema({**lazy.collect().schema})
    found = lazy.filter(pl.col("key") == b"k7").select("offset", "partition").collect()
    assert found.sort("partition").rows() == [(7, 0), (7, 1), (7, 2)]
    assert sorted(reads[-1][0]) == ["key", "offset", "partition"]
    assert lazy.select(pl.len()).collect().item() == 300
    assert lazy.group_by("partition").agg(pl.col("offset").max()).collect().height == 3
    assert lazy.collect(engine="streaming").height == 300
    joined = lazy.join(lazy, on="value").select(pl.len()).collect()
    assert joined.item() == 900


def test_a_row_limit_ends_the_read(stream: RecordStream) -> None:
    lazy = scan_barnabas(stream)
    assert lazy.head(5).collect().height == 5
    assert lazy.head(0).collect().height == 0
    assert lazy.filter(pl.col("offset") >= 50).head(7).collect().height == 7
    assert lazy.head(5).filter(pl.col("offset") >= 50).collect().height <= 5
    assert lazy.slice(10, 5).collect().height == 5
    only = scan_barnabas(stream.filter(pc.field("partition") == 1).select(["offset", "value"]))
    assert only.filter(pl.col("offset") < 3).collect().rows() == [(0, "v0"), (1, "v1"), (2, "v2")]


COMPARISONS: list[Callable[[Any, Any], Any]] = [
    operator.lt,
    operator.le,
    operator.eq,
    operator.ne,
    operator.ge,
    operator.gt,
]


def conditions() -> st.SearchStrategy[Any]:
    """Predicates of random comparisons of offsets, partitions, times and values."""
    offsets = st.builds(
        lambda compare, n: compare(pl.col("offset"), n), st.sampled_from(COMPARISONS), st.integers(-5, 105)
    )
    sides = st.builds(
        lambda compare, n: compare(n, pl.col("offset")), st.sampled_from(COMPARISONS), st.integers(-5, 105)
    )
    places = st.builds(
        lambda compare, n: compare(pl.col("partition"), n), st.sampled_from(COMPARISONS), st.integers(-1, 3)
    )
    times = st.builds(
        lambda compare, n: compare(pl.col("timestamp"), second(n)), st.sampled_from(COMPARISONS), st.integers(-5, 105)
    )
    members = st.lists(st.integers(-5, 105), max_size=3).map(lambda numbers: pl.col("offset").is_in(numbers))
    values = st.sampled_from(["v5", "v77"]).map(lambda value: pl.col("value") == value)
    leaves = st.one_of(offsets, sides, places, times, members, values)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(operator.and_, inner, inner), st.builds(operator.or_, inner, inner), inner.map(operator.inv)
        ),
        max_leaves=6,
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conditions())
def test_any_predicate_of_polars_finds_what_it_finds_in_the_whole(stream: RecordStream, predicate: Any) -> None:
    table = pl.from_arrow(stream.to_table())
    assert isinstance(table, pl.DataFrame)
    expected = table.filter(predicate).sort("partition", "offset")
    assert_frame_equal(scan_barnabas(stream).filter(predicate).collect().sort("partition", "offset"), expected)


def test_a_table_of_parquet_is_written_from_a_stream(stream: RecordStream, tmp_path: Path) -> None:
    from pyarrow import dataset

    dataset.write_dataset(stream, tmp_path / "out", format="parquet")
    assert dataset.dataset(tmp_path / "out").count_rows() == 300

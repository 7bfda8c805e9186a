"""docs/reference/benchmarks.md has every bench and every goal, and agrees with its tables and its raw results."""

import json
from pathlib import Path
from typing import Any

import pytest
from bench.bench import LIMIT, Bench
from bench.catalogue import BENCHES
from bench.plot import overview_plot
from bench.published import (
    BEGIN,
    END,
    RAW,
    Published,
    markdown,
    markdown_table,
    raw_link,
    table_in,
    write_markdown,
)
from bench.report import BenchResult, RunInfo, Spread, read_json, write_json
from tests.cases import in_one_test
from tests.foreign_tools import CHECKOUT

DOCUMENT = CHECKOUT / "docs" / "reference" / "benchmarks.md"
OVERVIEW = CHECKOUT / "docs" / "performance.svg"
UNPUBLISHED = {
    "cluster-controller-10000": "one of the two clusters took longer than a minute to make its topic",
    **dict.fromkeys(
        (
            *("share-group-heartbeats", "streams-group-heartbeats"),
            *("share-group-1k", "share-group-1k-disk"),
        ),
        "it has not been measured yet",
    ),
}
"""Benches without figures in the document, and why; the document says so, too."""


@pytest.fixture(scope="module")
def published() -> Published:
    return Published.read(DOCUMENT.read_text())


def result_of(name: str, ours: float, kafka: float) -> BenchResult:
    result = BenchResult(BENCHES[name])
    for target, speed in (("barnabas", ours), ("kafka", kafka)):
        result.add(target, {"mb_per_s": speed, "cpu_s_per_gb": 1.0})
    return result


def bound(bench: Bench, figure: str, against: str, ratio: float) -> list[str]:
    """What the table of goals says of one before it has been measured."""
    sign = "≥" if bench.figures[figure] == "higher" else "≤"
    return [bench.name, figure, against, f"{sign} {ratio:g}" + (" ×" if against != LIMIT else "")]


def test_every_bench_is_published_or_a_reason_is_given(published: Published) -> None:
    assert set(BENCHES) - set(published.sections) == set(UNPUBLISHED)
    assert set(published.sections) <= set(BENCHES), "there is no such bench any more"
    text = " ".join(DOCUMENT.read_text().split())
    for name, reason in UNPUBLISHED.items():
        assert f"`{name}` has no figures: {reason}." in text


def test_the_document_says_of_each_bench_what_the_bench_says(published: Published) -> None:
    for name, text in published.sections.items():
        about = BENCHES[name].about
        assert text.startswith(f"{about[0].upper()}{about[1:]}. Rounds: "), name


@in_one_test("name", sorted(set(BENCHES) - set(UNPUBLISHED)))
def test_every_goal_is_published(name: str, published: Published) -> None:
    bench = BENCHES[name]
    wanted = [bound(bench, goal.figure, goal.against, goal.ratio) for goal in bench.goals]
    assert [row[:4] for row in published.goals.get(name, [])] == wanted


def test_no_goal_is_published_that_nobody_has(published: Published) -> None:
    assert set(published.goals) <= {name for name, bench in BENCHES.items() if bench.goals}


@in_one_test("name", sorted(name for name in set(BENCHES) - set(UNPUBLISHED) if BENCHES[name].goals))
def test_goals_are_judged_by_the_figures_that_stand_below(name: str, published: Published) -> None:
    bench = BENCHES[name]
    header, *rows = table_in(published.sections[name])
    of_figure = {row[0].split()[0]: dict(zip(header, row, strict=True)) for row in rows}
    for goal, (*_, measured, reached) in zip(bench.goals, published.goals[name], strict=True):
        assert measured == of_figure[goal.figure]["barnabas" if goal.against == LIMIT else f"barnabas ÷ {goal.against}"]
        median = float(measured.split()[0].replace(",", ""))
        if median != goal.ratio:  # else its three digits do not tell
            is_better = (median > goal.ratio) == (bench.figures[goal.figure] == "higher")
            assert reached.split(",")[0] == ("yes" if is_better else "**no**")


def raw_of(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((DOCUMENT.parent / RAW / f"{name}.json").read_text())
    return data


def in_json(cell: str) -> dict[str, float]:
    """Return the numbers of a cell such as `1,950 (1,871–2,058)` in the form of the raw results."""
    median, _, extremes = cell.replace(",", "").rstrip(")").partition(" (")
    smallest, _, largest = extremes.partition("–")
    return {"median": float(median), "smallest": float(smallest or median), "largest": float(largest or median)}


@in_one_test("name", sorted(set(BENCHES) - set(UNPUBLISHED)))
def test_each_table_has_raw_results_with_the_run_and_the_same_figures(name: str, published: Published) -> None:
    raw = raw_of(name)
    assert raw_link(raw) in published.sections[name]
    assert raw["date"] and raw["commit"] and raw["versions"]["python"]
    assert ("kafka" in raw["versions"]) == ("kafka" in BENCHES[name].targets)
    header, *rows = table_in(published.sections[name])
    for row in rows:
        figures = raw["figures"][row[0].split()[0]]
        for column, cell in zip(header[1:], row[1:], strict=True):
            if raw["rounds"] is None:
                assert figures[column] == in_json(cell)
            else:
                found = figures[column]
                assert str(Spread(found["median"], found["smallest"], found["largest"])) == cell


def test_there_are_no_raw_results_of_unpublished_benches() -> None:
    files = {path.stem for path in (DOCUMENT.parent / RAW).glob("*.json")}
    assert files == set(BENCHES) - set(UNPUBLISHED)


def test_clusters_with_zookeeper_name_the_last_kafka_with_zookeeper(published: Published) -> None:
    for name, text in published.sections.items():
        if BENCHES[name].brokers > 1 and not BENCHES[name].kraft:
            assert "Apache Kafka 3.9." in text, name


def test_the_chart_shows_the_published_ratios(published: Published) -> None:
    assert OVERVIEW.read_text() == overview_plot(published)


def test_a_run_is_published_with_its_rounds_commit_and_versions(tmp_path: Path) -> None:
    run, document = tmp_path / "run.json", tmp_path / "benchmarks.md"
    write_json(run, [result_of("produce-1k", 100, 50)], {"seconds": 3.0})
    write_markdown(document, read_json([run], BENCHES), BENCHES)
    raw = json.loads((tmp_path / RAW / "produce-1k.json").read_text())
    assert raw["rounds"]["barnabas"] == [{"mb_per_s": 100, "cpu_s_per_gb": 1.0}]
    assert raw["figures"]["mb_per_s"]["barnabas ÷ kafka"] == {"median": 2.0, "smallest": 2.0, "largest": 2.0}
    assert raw["options"] == {"seconds": 3.0}
    assert raw_link(raw) in document.read_text()


def test_a_cluster_with_zookeeper_is_published_with_its_own_release_of_kafka() -> None:
    versions = {"kafka": "4.4.0", "kafka_with_zookeeper": "3.9.1", "python": "3.13.1"}
    run = RunInfo("2026-11-29", "abc", versions, {}, {})
    assert run.versions_of(BENCHES["produce-1k"]) == {"kafka": "4.4.0", "python": "3.13.1"}
    assert run.versions_of(BENCHES["cluster-produce-1k"]) == {"kafka": "3.9.1", "python": "3.13.1"}
    assert run.versions_of(BENCHES["kraft-produce-1k"]) == {"kafka": "4.4.0", "python": "3.13.1"}
    assert run.versions_of(BENCHES["metrics-cost"]) == {"python": "3.13.1"}


def test_tables_replace_only_their_place_in_a_document(tmp_path: Path) -> None:
    document, result = tmp_path / "performance.md", result_of("produce-1k", 100, 50)
    document.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    write_markdown(document, [result], BENCHES)
    text = document.read_text()
    assert text.startswith("# Before\n") and text.endswith("\n\nafter\n")
    assert "old" not in text and "### produce-1k" in text
    write_markdown(document, [result], BENCHES)
    assert document.read_text() == text


def test_a_document_without_a_place_becomes_the_tables(tmp_path: Path) -> None:
    document, result = tmp_path / "tables.md", result_of("produce-1k", 100, 50)
    document.write_text("old")
    write_markdown(document, [result], BENCHES)
    assert document.read_text() == markdown([result])


def test_benches_that_did_not_run_stay_in_a_document_and_all_are_in_order(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"{BEGIN}\n{END}\n")
    first, second = result_of("produce-1k", 100, 50), result_of("produce-100b", 100, 50)
    again = result_of("produce-100b", 10, 50)
    write_markdown(document, [second], BENCHES)
    write_markdown(document, [first], BENCHES)
    assert markdown([first, second]) in document.read_text()
    write_markdown(document, [again], BENCHES)
    assert markdown([first, again]) in document.read_text()
    write_markdown(document, [], [first.bench.name])
    assert markdown([first]) in document.read_text() and "produce-100b" not in document.read_text()


def test_a_document_is_read_as_it_was_written() -> None:
    before = DOCUMENT.read_text()
    place = before.partition(BEGIN)[2].partition(END)[0]
    assert Published.read(before).text(BENCHES) == place[2:-1]
    rows = [["a", "b (c)", ""], ["d", "1,000 (1–2)", "**no**"]]
    assert table_in(markdown_table(["x", "y", "z"], rows)) == [["x", "y", "z"], *rows]

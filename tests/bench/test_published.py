"""docs/performance.md has every bench and every goal, with words and ratios that agree with its own tables."""

from pathlib import Path

import pytest
from bench.bench import LIMIT, Bench
from bench.catalogue import BENCHES
from bench.published import BEGIN, END, Published, markdown, markdown_table, table_in, write_markdown
from bench.report import BenchResult
from tests.foreign_tools import CHECKOUT

DOCUMENT = CHECKOUT / "docs" / "performance.md"
UNPUBLISHED = {
    "cluster-controller-10000": "one of the two clusters took longer than a minute to make its topic",
    **dict.fromkeys(
        (
            *("share-group-heartbeats", "streams-group-heartbeats"),
            *("share-group-1k", "share-group-100b", "share-group-1k-disk"),
            *("kraft-produce-1k", "kraft-produce-100b", "kraft-latency"),
            *("kraft-idle", "kraft-failover", "kraft-restart"),
        ),
        "it is newer than the runs of this page",
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


@pytest.mark.parametrize("name", sorted(set(BENCHES) - set(UNPUBLISHED)))
def test_every_goal_is_published(name: str, published: Published) -> None:
    bench = BENCHES[name]
    wanted = [bound(bench, goal.figure, goal.against, goal.ratio) for goal in bench.goals]
    assert [row[:4] for row in published.goals.get(name, [])] == wanted


def test_no_goal_is_published_that_nobody_has(published: Published) -> None:
    assert set(published.goals) <= {name for name, bench in BENCHES.items() if bench.goals}


@pytest.mark.parametrize("name", sorted(name for name in set(BENCHES) - set(UNPUBLISHED) if BENCHES[name].goals))
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

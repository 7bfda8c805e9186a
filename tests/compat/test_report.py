"""The table of compatibility, and its place in the documentation."""

from tests.compat.report import PAGES, replace_table, table, table_of


def test_each_page_shows_a_table_with_every_client() -> None:
    for page in PAGES:
        lines = table_of(page.read_text()).splitlines()
        assert len(lines) > 15, page


def test_rows_are_ordered_and_failures_show() -> None:
    good = {"client": "kcat", "version": "1.7.1", "results": {"none": "", "gzip": "", "headers": ""}}
    bad = {"client": "Java", "version": "0.10.2.2", "results": {"none": "", "gzip": "wrong bytes", "acks": "no answer"}}
    older = {"client": "Java", "version": "0.8.2.2", "results": {"none": ""}}
    lines = table([good, bad, older]).splitlines()
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| Java", "0.8.2.2", "–"],
        ["| Java", "0.10.2.2", "–"],
        ["| kcat", "1.7.1", "–"],
    ]
    assert "none, ~~gzip~~ | **fails** |" in lines[3]
    assert "none, gzip | – | – | ✓ |" in lines[4]


def test_only_what_is_between_the_markers_changes() -> None:
    page = "before\n<!-- compatibility -->\nold\n<!-- /compatibility -->\nafter\n"
    changed = replace_table(page, "| new |\n")
    assert changed == "before\n<!-- compatibility -->\n| new |\n<!-- /compatibility -->\nafter\n"
    assert table_of(changed) == "| new |"

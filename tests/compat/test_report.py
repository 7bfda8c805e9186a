"""The table of compatibility: its layout, and that both pages show the same one."""

from tests.compat.report import PAGES, replace_table, table, table_of


def test_both_pages_show_the_same_table() -> None:
    docs, readme = (table_of(page.read_text()) for page in PAGES)
    assert docs == readme


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

"""Which feature works with which client: collected while the tests run, shown as a table in docs/compatibility.md."""

import json
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import pytest
from tests.foreign_tools import CHECKOUT

# Feature -> column of the table. Features that share a column are all shown in its cell.
COLUMNS = {
    "create": "create topics",
    "none": "codecs",
    "gzip": "codecs",
    "snappy": "codecs",
    "lz4": "codecs",
    "zstd": "codecs",
    "acks": "acks 0, 1, −1",
    "idempotent": "idempotent",
    "headers": "headers",
    "nulls": "null key and value",
    "large": "large records",
    "partitions": "30 partitions",
    "offsets": "fetch from any offset",
    "timestamps": "offsets by time",
    "delete-records": "delete records",
    "configs": "configs",
    "topics": "100 topics",
}

PROPERTY = "compat"

PAGES = (CHECKOUT / "docs" / "compatibility.md",)
BEGIN, END = "<!-- compatibility -->", "<!-- /compatibility -->"


class ClientReport:
    """The features of one client in one test. Every feature is tried; those that failed fail the test at its end."""

    def __init__(self, request: pytest.FixtureRequest, client: str, version: str) -> None:
        self.client = client
        self.version = version
        self.results: dict[str, str] = {}
        self._request = request

    def __enter__(self) -> "ClientReport":
        return self

    @contextmanager
    def feature(self, name: str) -> Iterator[None]:
        """Run one feature; what goes wrong in it is kept and does not stop the next."""
        assert name in COLUMNS, f"{name} is no feature of the table"
        try:
            yield
        except Exception as error:
            where = traceback.format_exc(limit=-3)
            self.results[name] = f"{type(error).__name__}: {error}\n{where}"
        else:
            self.results.setdefault(name, "")

    def take_lines(self, output: str, expected: Iterable[str]) -> None:
        """Results of a foreign program: a line `{"feature": ..., "ok": ..., "detail": ...}` for each of `expected`."""
        for line in output.splitlines():
            if line.startswith('{"feature"'):
                entry = json.loads(line)
                self.results[entry["feature"]] = "" if entry["ok"] else entry.get("detail") or "failed"
        for name in expected:
            self.results.setdefault(name, f"the program ended before it tried this:\n{output[-1500:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = {"client": self.client, "version": self.version, "results": self.results}
        self._request.node.user_properties.append((PROPERTY, json.dumps(entry)))
        failed = {name: detail for name, detail in self.results.items() if detail}
        if error is None and failed:
            listing = "\n".join(f"--- {name}: {detail}" for name, detail in failed.items())
            pytest.fail(f"{self.client} {self.version}: {len(failed)} feature(s) failed\n{listing}", pytrace=False)


def table(entries: Iterable[dict[str, Any]]) -> str:
    """The Markdown table: one row a client, ordered by name and version."""
    columns = list(dict.fromkeys(COLUMNS.values()))
    lines = ["| client | version | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 2)]
    for entry in sorted(entries, key=lambda each: (str(each["client"]).lower(), _version_key(str(each["version"])))):
        results = entry["results"]
        assert isinstance(results, dict)
        cells = [_cell(column, results) for column in columns]
        lines.append(f"| {entry['client']} | {entry['version']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _version_key(version: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]


def _cell(column: str, results: dict[str, str]) -> str:
    tried = [name for name, own in COLUMNS.items() if own == column and name in results]
    if not tried:
        return "–"
    failed = [name for name in tried if results[name]]
    if column == "codecs":
        return ", ".join(f"~~{name}~~" if name in failed else name for name in tried)
    return "**fails**" if failed else "✓"


def replace_table(page: str, new_table: str) -> str:
    """`page` with `new_table` between its marker lines."""
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{new_table}{END}{rest.split(END, 1)[1]}"


def table_of(page: str) -> str:
    """The table between the marker lines of `page`."""
    return page.split(BEGIN, 1)[1].split(END, 1)[0].strip()

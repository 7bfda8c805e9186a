"""How several processes share the files of tests (`--dist loadfile`): in which order, and which files stay together.

Files that take long run first, so that the processes end together. `file_seconds.json` holds the measured seconds of
each file; a run of all tests with BARNABAS_WRITE_SECONDS=1 measures them again.

BARNABAS_TESTS_END, in seconds since 1970, is the time after which no test begins: the rest is skipped, and counted as
skipped. CI sets it, since a machine can be several times slower than usual and a run that is cut off says nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

SECONDS = Path(__file__).parent / "file_seconds.json"
SHORTEST = 1.0
"""Files below this number of seconds are not in `file_seconds.json`."""
SECONDS_PER_TEST = 0.1
SECONDS_PER_HEAVY_TEST = 3.0
"""Estimates for files that are not in `file_seconds.json`."""
HEAVY = {
    "cleaning",
    "cluster",
    "compat",
    "crash",
    "hostile",
    "sim",
    "spark",
    "test_adding_an_api.py",
    "test_package.py",
}
"""Rooms and files whose tests start programs, or play whole histories. So do tests with the marker `java`."""

ONE_PROCESS = "tests/spark/"
"""One process runs the files of this room: a second Spark costs more time than it saves."""

# pytest rewrites the assertions of hundreds of files, and tests start hundreds of Python processes: without files of
# bytecode a collection takes three times as long, and each process compiles the broker again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Hypothesis does this by itself on a CI machine: a busy one takes longer than the usual 200 ms over an example.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")


def scope_of(nodeid: str) -> str:
    """Return the file of a test, or its room if one process runs the whole room."""
    return ONE_PROCESS if nodeid.startswith(ONE_PROCESS) else nodeid.split("::", 1)[0]


class RoomScheduling(LoadFileScheduling):
    """All tests of a file go to one process, and so do the tests of a room that shares something costly."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.fixture(autouse=True)
def no_decoder_of_an_earlier_registry() -> None:
    """Forget the schemas of registries: a new one may have the port of an earlier one, and both begin with schema 1."""
    for module, cached in (
        ("barnabas.clients.decoding.registry_decoder", "decoder_at"),
        ("barnabas.arrow.value_formats", "_decoder_at"),
    ):
        if module in sys.modules:
            getattr(sys.modules[module], cached).cache_clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return RoomScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files of tests by their seconds, the longest first."""
    measured: dict[str, dict[str, float]] = json.loads(SECONDS.read_text())
    guesses: defaultdict[tuple[str, str], float] = defaultdict(float)
    for item in items:
        guesses[path_of(item.nodeid), set_of(item)] += SECONDS_PER_HEAVY_TEST if is_heavy(item) else SECONDS_PER_TEST
    estimates: defaultdict[str, float] = defaultdict(float)
    for (path, name), guess in guesses.items():
        estimates[scope_of(path)] += measured[name].get(path, guess)
    items.sort(key=lambda item: (-estimates[scope_of(item.nodeid)], item.path))


def path_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def is_heavy(item: pytest.Item) -> bool:
    return not HEAVY.isdisjoint(path_of(item.nodeid).split("/")) or item.get_closest_marker("java") is not None


def set_of(item: pytest.Item) -> str:
    """Return the target of the Makefile that runs a test."""
    return "verify" if item.get_closest_marker("verify") else "test"


class SecondsRecorder:
    """The seconds of each file, written to `file_seconds.json` by the main process of pytest-xdist."""

    def __init__(self) -> None:
        self._seconds: dict[str, defaultdict[str, float]] = {"test": defaultdict(float), "verify": defaultdict(float)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = "verify" if "verify" in report.keywords else "test"
        self._seconds[name][path_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        measured: dict[str, dict[str, float]] = json.loads(SECONDS.read_text())
        for name, seconds in self._seconds.items():
            others = {path: value for path, value in measured[name].items() if path not in seconds}
            measured[name] = others | {path: round(value, 1) for path, value in seconds.items() if value >= SHORTEST}
        SECONDS.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip a test that would begin after BARNABAS_TESTS_END, before its fixtures are set up."""
    if time.time() > float(os.environ.get("BARNABAS_TESTS_END", "inf")):
        pytest.skip("the time for this run of tests is over (BARNABAS_TESTS_END)")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("BARNABAS_WRITE_SECONDS") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondsRecorder())

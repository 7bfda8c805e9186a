"""Distribution of test files over the processes of pytest-xdist (`--dist loadfile`), and a time limit for the run.

The longest files run first, so that all processes end at about the same time. `file_seconds.json` holds the measured
seconds of each file. A run of all tests with BARNABAS_WRITE_SECONDS=1 updates it.

No test begins after BARNABAS_TESTS_END (seconds since 1970): the remaining tests are reported as skipped. CI sets it,
because a machine can be several times slower than usual, and a run that CI cancels has no report.
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
MIN_SECONDS = 1.0
"""Files that take fewer seconds are not in `file_seconds.json`."""
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
"""Folders and files whose tests start programs or run long simulations. Tests with the marker `java` are heavy, too."""

ONE_PROCESS_FOLDER = "tests/spark/"
"""The folder whose files run in one process: a second Spark session costs more time than it saves."""

# pytest rewrites the assertions of hundreds of files, and tests start hundreds of Python processes. Without bytecode
# files a collection takes three times as long, and each process compiles the broker again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# As Hypothesis does on CI: on a busy machine one example can take longer than the default deadline of 200 ms.
settings.register_profile("no-deadline", settings(), deadline=None)
settings.load_profile("no-deadline")


def scope_of(nodeid: str) -> str:
    """Return the file of a test, or its folder if one process runs the whole folder."""
    return ONE_PROCESS_FOLDER if nodeid.startswith(ONE_PROCESS_FOLDER) else nodeid.split("::", 1)[0]


class FolderScheduling(LoadFileScheduling):
    """A scheduler that runs the tests of one file, or of the folder `ONE_PROCESS_FOLDER`, in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.fixture(autouse=True)
def clear_decoder_caches() -> None:
    """Clear the cached schemas: a new registry can have the port of an earlier one, and both begin with schema id 1."""
    for module, cached in (
        ("barnabas.clients.decoding.registry_decoder", "decoder_at"),
        ("barnabas.arrow.value_formats", "_decoder_at"),
    ):
        if module in sys.modules:
            getattr(sys.modules[module], cached).cache_clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return FolderScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the test files by their seconds, the longest first."""
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
    """Return the Makefile target that runs a test."""
    return "verify" if item.get_closest_marker("verify") else "test"


class SecondsRecorder:
    """A plugin of the main pytest-xdist process that writes the seconds of each file to `file_seconds.json`."""

    def __init__(self) -> None:
        self._seconds: dict[str, defaultdict[str, float]] = {"test": defaultdict(float), "verify": defaultdict(float)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = "verify" if "verify" in report.keywords else "test"
        self._seconds[name][path_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        measured: dict[str, dict[str, float]] = json.loads(SECONDS.read_text())
        for name, seconds in self._seconds.items():
            others = {path: value for path, value in measured[name].items() if path not in seconds}
            measured[name] = others | {path: round(value, 1) for path, value in seconds.items() if value >= MIN_SECONDS}
        SECONDS.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip a test that would begin after BARNABAS_TESTS_END, before its fixtures are set up."""
    if time.time() > float(os.environ.get("BARNABAS_TESTS_END", "inf")):
        pytest.skip("the time limit of this test run is reached (BARNABAS_TESTS_END)")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("BARNABAS_WRITE_SECONDS") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondsRecorder())

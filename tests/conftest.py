"""How several processes share the files of tests (`--dist loadfile`), in which order and which stay together; and how
long an example of Hypothesis may take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

HERE = Path(__file__).parent
PATIENT = {"cleaning", "compat", "crash", "hostile", "sim", "clients/spark", "clients/test_adding_an_api.py"}
"""Rooms, and a file, where a test takes seconds: whole programs are started, or whole histories played."""

ONE_PROCESS = "tests/clients/spark/"
"""The files of this room are run by one process: a second Spark costs more time than it saves."""

# Hypothesis has it so by itself on a machine of CI: a busy one takes longer over an example than the usual 200 ms.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")


class RoomScheduling(LoadFileScheduling):
    """All tests of a file go to one process, and so do those of a whole room that has something costly to share."""

    def _split_scope(self, nodeid: str) -> str:
        return ONE_PROCESS if nodeid.startswith(ONE_PROCESS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return RoomScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests take long come first, those with few tests before all, so that no process is left alone at
    the end with a file that takes minutes. Then come the others, those with most tests first.
    """
    counts = Counter(item.path for item in items)
    patient = {item.path for item in items if _is_patient(item)}

    def place(item: pytest.Item) -> tuple[bool, int, Path]:
        count = counts[item.path]
        return item.path not in patient, count if item.path in patient else -count, item.path

    items.sort(key=place)


def _is_patient(item: pytest.Item) -> bool:
    path = item.path.relative_to(HERE) if item.path.is_relative_to(HERE) else item.path
    places = {place.as_posix() for place in (path, *path.parents)}
    return not PATIENT.isdisjoint(places) or item.get_closest_marker("java") is not None

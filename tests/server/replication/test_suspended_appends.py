"""Appends that continue in a later turn of the loop, and the end of the broker before that."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.server.replication.append_request import SuspendedAppend, SuspendedAppends
from barnabas.server.runtime.write_queue import WriteQueue


class Later:
    """The work of later turns and of lanes."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def run_later(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def submit(self, _lane: str, _run: object, done: Callable[[None, None], None]) -> None:
        self.work.append(lambda: done(None, None))


def suspended(*, on_lane: bool) -> SuspendedAppend:
    append = SuspendedAppend()
    append.keep(("t", 0, memoryview(b"records")), iter(()))
    append.validation = SimpleNamespace(run=None) if on_lane else None  # type: ignore[assignment]
    return append


@pytest.mark.parametrize("is_closed", [False, True])
def test_no_append_continues_after_the_end_of_the_broker(*, is_closed: bool) -> None:
    later: Any = Later()
    appends = SuspendedAppends(later, later, WriteQueue(later))
    continued: list[Any] = []
    for number, on_lane in enumerate([False, True, False]):
        appends.resume_later(suspended(on_lane=on_lane), lambda number=number: continued.append(number))  # type: ignore[misc]
    if is_closed:
        appends.close()
    for work in later.work:
        work()
    assert continued == ([] if is_closed else [0, 1, 2])
    assert not appends.waiting

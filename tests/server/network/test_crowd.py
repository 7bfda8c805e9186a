"""Who has to go for one more, and whose turn it is before the lane of handshakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.server.network.crowd import Crowd
from barnabas.server.network.handshake_line import AHEAD, HandshakeLine


def test_who_brings_many_makes_room_for_more() -> None:
    crowd: Crowd[str] = Crowd(5)
    for name in ("anna", "ben"):
        assert crowd.add(name, f"address of {name}") is None
    gone = [crowd.add(f"many {number}", "one") for number in range(100)]
    assert gone == [None] * 3 + [f"many {number}" for number in range(97)]
    assert crowd.add("carl", "address of carl") == "many 97"
    assert list(crowd) == ["anna", "ben", "many 98", "many 99", "carl"]


def test_among_equals_the_oldest_goes() -> None:
    crowd: Crowd[int] = Crowd(3)
    assert [crowd.add(number, str(number)) for number in range(5)] == [None, None, None, 0, 1]
    crowd.forget(2)
    crowd.forget(2)
    assert crowd.add(5, "5") is None
    assert len(crowd) == 3


class HeldWork:
    """Keeps jobs until it is told to do one."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[..., None]]] = []

    def submit(self, lane: str, job: Callable[[], Any], done: Callable[..., None]) -> None:
        self.jobs.append((job, done))

    def do_one(self) -> None:
        job, done = self.jobs.pop(0)
        job()
        done(None, None)


@pytest.fixture
def work() -> HeldWork:
    return HeldWork()


def test_a_thousand_of_one_address_are_one_ahead_of_another(work: HeldWork) -> None:
    line, computed, told = HandshakeLine(cast(Any, work)), list[object](), list[object]()

    def join(one: object, address: str) -> None:
        line.join(one, address, (lambda: computed.append(one), lambda: told.append(one)))

    for number in range(1000):
        join(number, "one")
    join("anna", "another")
    assert len(work.jobs) == AHEAD
    for _ in range(AHEAD + 2):
        work.do_one()
    assert computed == told == [0, 1, 2, "anna"]
    while work.jobs:
        work.do_one()
    assert len(computed) == 1001
    assert not len(line)


def test_who_is_gone_is_not_computed(work: HeldWork) -> None:
    line, computed = HandshakeLine(cast(Any, work)), list[int]()
    for number in range(1000):
        line.join(number, str(number % 7), (lambda number=number: computed.append(number), lambda: None))
    assert [line.leave(number, str(number % 7)) for number in range(1000)] == [False] * AHEAD + [True] * (1000 - AHEAD)
    assert not len(line)
    while work.jobs:
        work.do_one()
    assert computed == [0, 1]

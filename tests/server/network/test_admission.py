"""Who has to go for one more, and whose turn it is before the lane of handshakes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from barnabas.server.network.admission import FairAdmissionQueue
from barnabas.server.network.tls import MAX_SUBMITTED_STEPS, HandshakeQueue


def test_who_brings_many_makes_room_for_more() -> None:
    queue: FairAdmissionQueue[str] = FairAdmissionQueue(5)
    for name in ("anna", "ben"):
        assert queue.add(name, f"address of {name}") is None
    gone = [queue.add(f"many {number}", "one") for number in range(100)]
    assert gone == [None] * 3 + [f"many {number}" for number in range(97)]
    assert queue.add("carl", "address of carl") == "many 97"
    assert list(queue) == ["anna", "ben", "many 98", "many 99", "carl"]


def test_among_equals_the_oldest_goes() -> None:
    queue: FairAdmissionQueue[int] = FairAdmissionQueue(3)
    assert [queue.add(number, str(number)) for number in range(5)] == [None, None, None, 0, 1]
    queue.remove(2)
    queue.remove(2)
    assert queue.add(5, "5") is None
    assert len(queue) == 3


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
    queue, computed, told = HandshakeQueue(cast(Any, work)), list[object](), list[object]()

    def join(one: object, address: str) -> None:
        queue.add(one, address, (lambda: computed.append(one), lambda: told.append(one)))

    for number in range(1000):
        join(number, "one")
    join("anna", "another")
    assert len(work.jobs) == MAX_SUBMITTED_STEPS
    for _ in range(MAX_SUBMITTED_STEPS + 2):
        work.do_one()
    assert computed == told == [0, 1, 2, "anna"]
    while work.jobs:
        work.do_one()
    assert len(computed) == 1001
    assert not len(queue)


def test_who_is_gone_is_not_computed(work: HeldWork) -> None:
    queue, computed = HandshakeQueue(cast(Any, work)), list[int]()
    for number in range(1000):
        queue.add(number, str(number % 7), (partial(computed.append, number), lambda: None))
    removed = [queue.remove(number, str(number % 7)) for number in range(1000)]
    assert removed == [False] * MAX_SUBMITTED_STEPS + [True] * (1000 - MAX_SUBMITTED_STEPS)
    assert not len(queue)
    while work.jobs:
        work.do_one()
    assert computed == [0, 1]

"""Large requests are decoded while those that are not answered leave room, and addresses take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.server.apis import large_requests
from barnabas.server.apis.large_requests import LargeRequest, LargeRequests, RequestAdmission, decoded_size
from barnabas.server.runtime.memory_budget import SHARE_OF_MEMORY

BUDGET = 1000


class Lane:
    """Does a job when the test lets it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(self, lane: str, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.jobs.append((job, done))

    def do_all(self) -> None:
        while self.jobs:
            job, done = self.jobs.pop(0)
            try:
                result = job()
            except MemoryError as error:
                done(None, error)
            else:
                done(result, None)


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(large_requests, "decoded_size", lambda _: 0)
        self.lane = Lane()
        work: Any = self.lane
        self.requests = LargeRequests(work, asyncio.get_running_loop(), BUDGET * SHARE_OF_MEMORY)
        self.decoded: list[str] = []
        self.admissions: list[RequestAdmission] = []
        self.errors: list[BaseException | None] = []

    def add(self, name: str, address: str, size: int = 400, *, is_cancellable: bool = True, fails: bool = False) -> Any:
        connection: Any = SimpleNamespace(session=SimpleNamespace(client_host=address), is_lost=False)

        def read() -> Any:
            if fails:
                raise MemoryError
            self.decoded.append(name)
            return None, None

        def done(_: Any, error: BaseException | None, admission: RequestAdmission | None) -> None:
            self.errors.append(error)
            if admission is not None:
                self.admissions.append(admission)

        self.requests.add(LargeRequest(connection, is_cancellable, read, size, done))
        return connection


async def test_requests_that_are_not_answered_leave_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for number in range(5):
        world.add(f"a{number}", "a")
    world.lane.do_all()
    assert world.decoded == ["a0", "a1"], "an address has half of the budget, and one request more"
    world.add("b0", "b")
    world.lane.do_all()
    assert world.decoded == ["a0", "a1", "b0"]
    assert world.requests.used == 1200
    world.add("c0", "c", 5000)
    world.lane.do_all()
    assert world.decoded[-1] == "c0", "one request of an address is always let in"
    while world.admissions:
        world.admissions.pop(0).release()
        await asyncio.sleep(0)
        world.lane.do_all()
    assert world.decoded == ["a0", "a1", "b0", "c0", "a2", "a3", "a4"]
    assert world.requests.used == 0


async def test_an_admission_counts_once_also_when_it_is_only_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.add("one", "a")
    world.lane.do_all()
    world.admissions[0].release()
    world.admissions[0].release()
    world.add("two", "a")
    world.lane.do_all()
    await asyncio.sleep(0)
    assert world.requests.used == 400
    world.admissions.clear()
    await asyncio.sleep(0)
    assert world.requests.used == 0


async def test_reads_of_clients_that_are_gone_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.add("first", "a")
    world.add("read", "a").is_lost = True
    world.add("change", "a", is_cancellable=False).is_lost = True
    world.lane.do_all()
    assert world.decoded == ["first", "change"]


async def test_a_request_that_cannot_be_decoded_lets_the_next_one_in(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.add("one", "a", fails=True)
    world.add("two", "a")
    world.lane.do_all()
    assert [type(error) for error in world.errors] == [MemoryError, type(None)]
    assert world.decoded == ["two"] and world.requests.used == 400


def test_the_size_of_a_decoded_request_follows_its_items() -> None:
    few = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 10)
    many = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 10_000)
    assert 100 < (decoded_size(many) - decoded_size(few)) / 9990 < 300

"""Groups of foreign clients, each member a process of its own that can be told to leave, or killed.

A member program takes `bootstrap group topic strategy session-timeout-ms`, leaves when its input ends, and prints:
`assigned 0 1` (all it has now), `revoked 0 1`, `got 0:15 0:16` (partition:offset), `done` or `done 0` (what it got
before, of all partitions or of those, is committed), `lost 0` (what it got of them is not), `# anything`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.reporting import PATIENCE_S, ReportingProcess
from tests.server_process import wait_until

PARTITIONS = 6
SESSION_MS = 6000
AT_ONCE = 3
"""Groups that play at the same time: most of the time their members wait for heartbeats and the end of sessions."""
BUILDING = threading.Lock()
"""Held while a client is compiled or installed."""

Place = tuple[int, int]
Plays: TypeAlias = dict[str, Future[None]]
"""The plays of a module's tests, by the id of the test."""


@contextmanager
def play_together(
    request: pytest.FixtureRequest,
    names: str | tuple[str, ...],
    play: Callable[[str, dict[str, Any], Path], None],
    folders: pytest.TempPathFactory,
) -> Iterator[Plays]:
    """Start `play(name, parameters, folder)` for each selected test of these names, `AT_ONCE` at a time."""
    named = (names,) if isinstance(names, str) else names
    tests = [
        one
        for one in request.session.items
        if isinstance(one, pytest.Function) and one.path == request.path and one.originalname in named
    ]
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield {
            test.nodeid: pool.submit(play, test.originalname, test.callspec.params, folders.mktemp("play"))
            for test in tests
        }
    finally:
        pool.shutdown(cancel_futures=True)


class MemberProcess(ReportingProcess):
    """A running member. What it has consumed is what it got and committed."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self.assigned: set[int] = set()
        self.revoked: list[set[int]] = []
        self.consumed: list[Place] = []
        self.uncommitted: list[Place] = []
        self.got: set[Place] = set()
        """All that it ever got, whatever became of it."""
        super().__init__(command, errors)

    def heard(self, word: str, rest: Sequence[str]) -> None:
        if word == "got":
            places = [(int(one), int(two)) for one, _, two in (each.partition(":") for each in rest)]
            self.uncommitted += places
            self.got |= set(places)
        elif word in ("done", "lost"):
            partitions = {int(each) for each in rest} or set(range(PARTITIONS))
            own = [place for place in self.uncommitted if place[0] in partitions]
            self.uncommitted = [place for place in self.uncommitted if place[0] not in partitions]
            if word == "done":
                self.consumed += own
        elif word == "assigned":
            self.assigned = {int(each) for each in rest}
        elif word == "revoked":
            self.revoked.append({int(each) for each in rest})

    def leave(self) -> None:
        """Have it leave the group and wait for its end."""
        self.end()
        self.assigned = set()
        assert not self.uncommitted

    def kill(self) -> None:
        """End it without a word to the group."""
        super().kill()
        self.assigned = set()


class Traffic:
    """Writes records to all partitions of a new topic, some every few milliseconds, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        self._bootstrap = bootstrap
        self._topic = topic
        self.written = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True})
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                producer.produce(self._topic, f"{self.written}".encode(), partition=partition)
            self.written += PARTITIONS
            producer.poll(0.02)
        assert producer.flush(30) == 0

    def stop(self) -> set[Place]:
        """No more records; returns where all of them are."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        return {(number % PARTITIONS, number // PARTITIONS) for number in range(self.written)}

    def committed(self, group: str) -> dict[int, int]:
        """The offsets that a group has committed."""
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        return {each.partition: each.offset for each in asked.result(30).topic_partitions}


def crash(member: MemberProcess, traffic: Traffic, group: str) -> None:
    """Kill a member. What it had committed without having said so counts, once no commit is under way any more."""
    member.kill()
    its_own = {partition for partition, _ in member.uncommitted}
    committed: dict[int, int] = {}
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal committed, since
        found = {place: offset for place, offset in traffic.committed(group).items() if place in its_own}
        if found != committed:
            committed, since = found, time.monotonic()
        return time.monotonic() - since > 0.5

    wait_until(is_settled, timeout_s=SESSION_MS / 1000, what="its last commit has come through")
    member.consumed += [place for place in member.uncommitted if place[1] < committed.get(place[0], 0)]


def wait_shared(*members: MemberProcess) -> None:
    """All partitions are assigned, evenly, each to one of the members, and stay so for a moment."""
    share = PARTITIONS // len(members)
    since = time.monotonic()

    def is_shared() -> bool:
        nonlocal since
        for member in members:
            member.check()
        everything = set().union(*(member.assigned for member in members))
        if len(everything) != PARTITIONS or any(len(member.assigned) != share for member in members):
            since = time.monotonic()
        return time.monotonic() - since > 0.3

    wait_until(is_shared, timeout_s=PATIENCE_S, what=f"{[each.assigned for each in members]}: shared by all")


def check_each_once(expected: set[Place], members: Sequence[MemberProcess]) -> None:
    """Wait until everything is consumed; nothing is missing, and nothing was consumed twice."""
    wait_until(
        lambda: sum(len(each.consumed) for each in members) >= len(expected),
        timeout_s=PATIENCE_S,
        what=f"{len(expected)} records are consumed ({[len(each.consumed) for each in members]})",
    )
    everything = [place for each in members for place in each.consumed]
    assert set(everything) == expected
    assert len(everything) == len(expected)

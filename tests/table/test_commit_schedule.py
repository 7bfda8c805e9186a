"""The times of commits, with a clock that only pauses and commits move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.table.conftest import location, produce, rows_of

from barnabas import Broker
from barnabas.table import FollowSettings, TableFollower, host, open_table
from barnabas.table.commit_schedule import CommitSchedule

COMMIT_S = 0.8


def test_the_next_commit_begins_earlier_by_its_expected_duration() -> None:
    schedule = CommitSchedule(2.0)
    assert schedule.next_begin() < 0
    schedule.add(100.0, 100.25, is_complete=True)
    assert schedule.next_begin() == 101.75
    schedule.add(101.75, 102.5, is_complete=True)
    assert schedule.next_begin() == 103.0
    for begin in (103.0, 105.0, 107.0, 109.0):  # the longest of the last five
        schedule.add(begin, begin + 0.25, is_complete=True)
        assert schedule.next_begin() == begin + 1.25
    schedule.add(111.0, 111.25, is_complete=True)
    assert schedule.next_begin() == 112.75


def test_a_slow_commit_does_not_cause_many_small_ones() -> None:
    schedule = CommitSchedule(2.0)
    schedule.add(100.0, 107.0, is_complete=True)
    schedule.add(107.0, 107.1, is_complete=True)
    assert schedule.next_begin() == 108.0


def test_the_rest_of_an_incomplete_commit_is_overdue() -> None:
    schedule = CommitSchedule(2.0)
    schedule.add(100.0, 100.5, is_complete=True)
    schedule.add(101.5, 102.0, is_complete=False)
    assert schedule.next_begin() < 102.0


class Clock:
    """A clock that stands still, except in pauses and for the duration of commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(host, "monotonic", lambda: self.now)
        monkeypatch.setattr(host, "pause", self.advance)

    def advance(self, seconds: float) -> None:
        self.now += seconds


def test_commits_end_one_interval_after_their_oldest_record(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ends = Clock(monkeypatch), list[float]()
    produce(broker, topic, [{"value": b"v", "partition": 0}])
    with open_table(location("parquet", tmp_path)) as sink:
        commit = sink.commit

        def commit_slowly(offsets: Any) -> Any:
            # These records arrive just after the begin of this commit.
            produce(broker, topic, [{"value": b"v", "partition": i} for i in range(2)])
            clock.advance(COMMIT_S)
            ends.append(clock.now)
            return commit(offsets)

        monkeypatch.setattr(sink, "commit", commit_slowly)
        settings = FollowSettings(broker.bootstrap, [topic], interval_s=2.0)
        TableFollower(sink, settings, is_stopping=lambda: len(ends) == 5).run()
    begins = [end - COMMIT_S for end in ends]
    assert begins[0] == 0
    assert [end - begin for begin, end in zip(begins, ends[1:], strict=False)] == pytest.approx([2.0] * 4)
    assert len(rows_of(location("parquet", tmp_path))) == 1 + 2 * 4


def test_the_rest_of_a_commit_of_limited_size_does_not_wait(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, commits = Clock(monkeypatch), list[Any]()
    produce(broker, topic, [{"value": bytes(1000), "partition": i % 2} for i in range(60)])
    with open_table(location("parquet", tmp_path)) as sink:
        commit = sink.commit

        def count_commit(offsets: Any) -> Any:
            commits.append(offsets)
            return commit(offsets)

        monkeypatch.setattr(sink, "commit", count_commit)
        settings = FollowSettings(broker.bootstrap, [topic], interval_s=2.0, most_bytes=20_000)
        follower = TableFollower(sink, settings, is_stopping=lambda: follower.metrics.rows == 60)
        follower.run()
    assert len(commits) == 2 and clock.now == 0

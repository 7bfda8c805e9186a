"""The observations of the members of a group and of observers, checked as they arrive. Times are virtual seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PARTITIONS = 6
LONGEST_SESSION_S = 10.0
SLACK_S = 2.0
"""The tolerance for an observer that sends a request every second over a slow network."""


class Known(NamedTuple):
    """The facts at the time of a request, which the response must not contradict."""

    life: int
    """The number of the broker's start at the time of the request."""
    joined: int
    """The highest generation that a member has joined since this start of the broker."""
    synced: int
    """The highest generation of which a member has an assignment, which persists over restarts of the broker."""
    is_fenced: bool
    """Whether another process has replaced the static member since this start of the broker."""


def plan(generation: int, members: Sequence[str]) -> dict[str, bytes]:
    """Return a round-robin assignment that contains its generation."""
    return {
        name: json.dumps(
            {"generation": generation, "partitions": list(range(index, PARTITIONS, len(members)))}
        ).encode()
        for index, name in enumerate(members)
    }


class Share(NamedTuple):
    """A member's part of an assignment."""

    generation: int
    partitions: list[int]

    @classmethod
    def read(cls, assignment: bytes) -> Share:
        return cls(**json.loads(assignment))


@dataclass
class History:
    """The history of one group: owners of partitions, committed offsets, and requests of members."""

    life: int = 0
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """The member (or its instance id) that owns each generation and partition."""
    committed: list[int] = field(default_factory=lambda: [-1] * PARTITIONS)
    """The highest offset that was acknowledged or fetched. No later fetch may return a lower offset."""
    generations: set[tuple[int, int]] = field(default_factory=set)
    """The joined generations (start of the broker, generation), whose number is the number of rebalances."""
    _joined: int = 0
    _synced: int = 0
    _fenced: dict[str, int] = field(default_factory=dict)
    _heard: dict[str, float] = field(default_factory=dict)
    _stable_since: dict[tuple[int, int], float] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    """Ids of static members that another process may have replaced."""

    def begin_life(self, life: int) -> None:
        """Note a start of the broker, which may repeat generations of which no member has an assignment."""
        self.life, self._joined = life, self._synced

    def known(self, member_id: str = "") -> Known:
        return Known(self.life, self._joined, self._synced, self._fenced.get(member_id) == self.life)

    # -- responses -------------------------------------------------------------------------------------------------

    def joined(self, known: Known, generation: int, instance_id: str | None, others: set[str], member_id: str) -> None:
        """Check a successful JoinGroup.

        `others` are the member ids of other processes with the same instance id at the time of the request.
        """
        assert generation >= known.synced, f"generation {generation} was joined after {known.synced}"
        if known.life != self.life:
            return
        self.generations.add((self.life, generation))
        self._joined = max(self._joined, generation)
        if instance_id is not None:
            self._fenced.update(dict.fromkeys(others - {member_id}, self.life))

    def accepted(self, known: Known, generation: int, what: str) -> None:
        """Check a request of a member of `generation` that the broker accepted."""
        assert generation >= known.synced, f"{what} of generation {generation} was accepted after {known.synced}"
        if known.life == self.life:
            assert generation >= known.joined, f"{what} of generation {generation} was accepted in {known.joined}"
            assert not known.is_fenced, f"{what} of a replaced process was accepted"

    def owns(self, known: Known, generation: int, name: str, share: Share) -> None:
        """Check a successful SyncGroup, which returned an assignment."""
        self.accepted(known, generation, "a sync")
        assert share.generation == generation, f"generation {generation} received the assignment of {share.generation}"
        self._synced = max(self._synced, generation)
        self._joined = max(self._joined, generation)
        for partition in share.partitions:
            owner = self.owners.setdefault((generation, partition), name)
            assert owner == name, f"generation {generation}: {partition} has the owners {owner} and {name}"

    def heard(self, name: str, now: float) -> None:
        """Note that a process has sent a request."""
        self._heard[name] = now

    def saw(self, before: Sequence[int], offsets: Sequence[int]) -> None:
        """Check fetched offsets; `before` is the value of `committed` at the time of the request."""
        for partition, offset in enumerate(offsets):
            assert offset >= before[partition], f"{partition} decreased from {before[partition]} to {offset}"
            self.committed[partition] = max(self.committed[partition], offset)

    def described(self, known: Known, shares: dict[str, Share], now: float) -> None:
        """Check the description of a stable group: every partition has one owner, and every owner sends requests."""
        generations = {share.generation for share in shares.values()}
        assert len(generations) == 1, f"the group has assignments of the generations {generations}"
        generation = generations.pop()
        dealt = sorted(partition for share in shares.values() for partition in share.partitions)
        assert dealt == list(range(PARTITIONS)), f"generation {generation} is stable with partitions {dealt}"
        if known.life != self.life:
            return
        stable_since = self._stable_since.setdefault((self.life, generation), now)
        for name in shares:
            silent = now - max(self._heard.get(name, 0.0), stable_since)
            assert silent <= LONGEST_SESSION_S + SLACK_S, f"{name} is a member {silent:.1f} s after its last request"


class Ledger:
    """The possible offsets of a group without members, which an operator commits and deletes."""

    def __init__(self) -> None:
        self.value = -1
        """The offset of the last commit request, -1 after a deletion request."""
        self._possible = {-1}

    def asked(self, value: int) -> None:
        """Note a request to commit `value`, or with -1 to delete the offset. Either state is possible afterwards."""
        self._possible.add(value)
        self.value = value

    def acknowledged(self) -> None:
        """Note a response without an error. Only the state after the request is possible afterwards."""
        self._possible = {self.value}

    def saw(self, value: int) -> None:
        assert value in self._possible, f"the offset is {value}, expected one of {sorted(self._possible)}"

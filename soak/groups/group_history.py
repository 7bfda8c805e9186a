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
    """The facts known when a request was sent, which its response must not contradict."""

    life: int
    """Which life of the broker it was sent to."""
    joined: int
    """The newest generation that somebody has joined in this life."""
    synced: int
    """The newest generation that somebody has an assignment of; it outlives the broker."""
    is_fenced: bool
    """Whether another process has the static member's place, by this life's word."""


def plan(generation: int, members: Sequence[str]) -> dict[str, bytes]:
    """An assignment that says what it is for: partitions dealt out in turn."""
    return {
        name: json.dumps(
            {"generation": generation, "partitions": list(range(index, PARTITIONS, len(members)))}
        ).encode()
        for index, name in enumerate(members)
    }


class Share(NamedTuple):
    """A member's part of a plan."""

    generation: int
    partitions: list[int]

    @classmethod
    def read(cls, assignment: bytes) -> Share:
        return cls(**json.loads(assignment))


@dataclass
class History:
    """One group: who owned what when, what was committed, who was heard of."""

    life: int = 0
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """(generation, partition) -> member, by its instance id if it has one."""
    committed: list[int] = field(default_factory=lambda: [-1] * PARTITIONS)
    """Acknowledged or seen: nobody may ever find less."""
    generations: set[tuple[int, int]] = field(default_factory=set)
    """(life, generation) of all that somebody has joined: how many rebalances there were."""
    _joined: int = 0
    _synced: int = 0
    _fenced: dict[str, int] = field(default_factory=dict)
    _heard: dict[str, float] = field(default_factory=dict)
    _stable_since: dict[tuple[int, int], float] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    """Ids of static members whose place somebody else has asked for."""

    def begin_life(self, life: int) -> None:
        """The broker has been started: generations that nobody has an assignment of may come again."""
        self.life, self._joined = life, self._synced

    def known(self, member_id: str = "") -> Known:
        return Known(self.life, self._joined, self._synced, self._fenced.get(member_id) == self.life)

    # -- answers ---------------------------------------------------------------------------------------------------

    def joined(self, known: Known, generation: int, instance_id: str | None, others: set[str], member_id: str) -> None:
        """A JoinGroup went well; `others` are the ids under which other processes had the place when it was sent."""
        assert generation >= known.synced, f"generation {generation} came after {known.synced}"
        if known.life != self.life:
            return
        self.generations.add((self.life, generation))
        self._joined = max(self._joined, generation)
        if instance_id is not None:
            self._fenced.update(dict.fromkeys(others - {member_id}, self.life))

    def accepted(self, known: Known, generation: int, what: str) -> None:
        """A request of a member of `generation` was taken."""
        assert generation >= known.synced, f"{what} of generation {generation} taken after {known.synced} had begun"
        if known.life == self.life:
            assert generation >= known.joined, f"{what} of generation {generation} taken in {known.joined}"
            assert not known.is_fenced, f"{what} taken of a process that had been replaced"

    def owns(self, known: Known, generation: int, name: str, share: Share) -> None:
        """A SyncGroup went well."""
        self.accepted(known, generation, "a sync")
        assert share.generation == generation, f"generation {generation} was given the plan of {share.generation}"
        self._synced = max(self._synced, generation)
        self._joined = max(self._joined, generation)
        for partition in share.partitions:
            owner = self.owners.setdefault((generation, partition), name)
            assert owner == name, f"generation {generation}: {partition} is {owner}'s and {name}'s"

    def heard(self, name: str, now: float) -> None:
        """A process has given a sign of life."""
        self._heard[name] = now

    def saw(self, before: Sequence[int], offsets: Sequence[int]) -> None:
        """Offsets were fetched; `before` is what `committed` was when they were asked for."""
        for partition, offset in enumerate(offsets):
            assert offset >= before[partition], f"{partition} went back from {before[partition]} to {offset}"
            self.committed[partition] = max(self.committed[partition], offset)

    def described(self, known: Known, shares: dict[str, Share], now: float) -> None:
        """A group was described as stable: every partition has one owner, and every owner gives signs of life."""
        generations = {share.generation for share in shares.values()}
        assert len(generations) == 1, f"a group of generations {generations}"
        generation = generations.pop()
        dealt = sorted(partition for share in shares.values() for partition in share.partitions)
        assert dealt == list(range(PARTITIONS)), f"generation {generation} is stable with partitions {dealt}"
        if known.life != self.life:
            return
        stable_since = self._stable_since.setdefault((self.life, generation), now)
        for name in shares:
            silent = now - max(self._heard.get(name, 0.0), stable_since)
            assert silent <= LONGEST_SESSION_S + SLACK_S, f"{name} is a member after {silent:.1f} s of silence"


class Ledger:
    """The offset of a group without members, which an operator commits and deletes; every outcome has to add up."""

    def __init__(self) -> None:
        self.value = -1
        """The offset that the last request was to commit; -1 for none."""
        self._possible = {-1}

    def asked(self, value: int) -> None:
        """A commit of `value`, or with -1 a deletion, was sent: from now on either may be found."""
        self._possible.add(value)
        self.value = value

    def acknowledged(self) -> None:
        """It was answered without an error: nothing else may be found."""
        self._possible = {self.value}

    def saw(self, value: int) -> None:
        assert value in self._possible, f"an offset of {value} where {sorted(self._possible)} may be"

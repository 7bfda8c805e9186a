"""Takes the offsets of topics that are gone out of all groups: they mean nothing to later topics of the same names.

There may be a million of them in thousands of groups, so that this is long work. What a group commits from the removal
on stays: before that, whatever is still to go of the group goes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...runtime.turns import TOMBSTONES, raise_error, steps_of
from ..coordinator_log import ignore

if TYPE_CHECKING:
    from ...runtime.turns import LongWork, Steps
    from .group_port import GroupPort
    from .offset_commits import OffsetCommits
    from .offsets import Place


class RemovedTopics:
    """Which groups have not been looked through for offsets of which topics. Loop-thread only."""

    def __init__(self, offsets: OffsetCommits, long_work: LongWork, find: Callable[[str], GroupPort | None]) -> None:
        """`find` gives a group that is served here."""
        self._offsets = offsets
        self._long_work = long_work
        self._find = find
        self._is_running = False
        self._topics: dict[str, frozenset[str]] = {}
        """What each group is to be looked through for."""
        self._places: dict[str, list[Place]] = {}
        """What has been found in a group and is still there."""

    def begin(self, topics: Iterable[str], group_ids: Iterable[str]) -> None:
        """These topics are gone, and these are all groups that may have offsets of them."""
        gone = frozenset(topics)
        waiting = dict.fromkeys(group_ids, gone)
        together: dict[frozenset[str], frozenset[str]] = {}
        for group_id, former in self._topics.items():
            if former not in together:
                together[former] = former | gone  # most groups have been waiting for the same ones
            waiting[group_id] = together[former]
        self._topics = waiting
        if not self._is_running:
            self._is_running = True
            self._long_work.run(self._steps(), self._ended)

    def settle(self, group_id: str) -> None:
        """A group is about to commit offsets, perhaps of a new topic of the same name: what is to go goes first."""
        while group_id in self._topics or group_id in self._places:
            self._go_on(group_id)

    def _steps(self) -> Steps[None]:
        while waiting := self._places or self._topics:
            self._go_on(next(reversed(waiting)))
            yield

    def _ended(self, result: None, error: Exception | None) -> None:
        self._is_running = False
        raise_error(result, error)

    def _go_on(self, group_id: str) -> None:
        """Look through a group, or write down some of what was found there.

        An append may have others answered, who commit at once: what is to go is noted before.
        """
        topics, places = self._topics.pop(group_id, None), self._places.pop(group_id, [])
        group = self._find(group_id)
        if group is None or group.is_dead:
            return
        if topics is not None:
            places += group.offsets.places_of(topics)
        at_once = max(1, TOMBSTONES // steps_of(group_id))
        some = places[-at_once:]
        del places[-at_once:]
        if places:
            self._places[group_id] = places
        if some:
            self._offsets.remove(group, some, ignore)

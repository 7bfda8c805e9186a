"""Who becomes leader of a partition, and with which replicas in sync."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome: a leader and the ISR that it starts with."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False
    """The leader was not in sync: the records that it lacks are lost."""


def elect(
    replicas: tuple[int, ...], isr: tuple[int, ...], live: Collection[int], *, allow_unclean: bool
) -> Election | None:
    """Chooses the first replica, in order of assignment, that is live and in sync; None if nobody may lead.

    With `allow_unclean` the first live replica leads rather than nobody, and is alone in sync from then on.
    """
    in_sync = tuple(broker for broker in isr if broker in live)
    for broker in replicas:
        if broker in in_sync:
            return Election(broker, in_sync)
    if allow_unclean:
        for broker in replicas:
            if broker in live:
                return Election(broker, (broker,), is_unclean=True)
    return None


def elect_preferred(replicas: tuple[int, ...], isr: tuple[int, ...], live: Collection[int]) -> Election | None:
    """Chooses the preferred leader, the first of the assignment, if it is live and in sync."""
    preferred = replicas[0]
    if preferred in live and preferred in isr:
        return Election(preferred, tuple(broker for broker in isr if broker in live))
    return None

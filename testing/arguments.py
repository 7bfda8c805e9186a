"""Validation of a test's arguments before the start, with errors in terms of the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from ..server.config.keys.catalogue import BROKER_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS
from ..server.config.startup_warnings import is_unknown
from ..server.controller.admin_manager import TopicCreation

Setting: TypeAlias = str | int | float | bool | list[str] | tuple[str, ...] | None
"""A value in Python. None is the default of the key."""
Topics: TypeAlias = Iterable[str] | Mapping[str, int]


def partition_counts(topics: Topics) -> dict[str, int]:
    """Return topics with their numbers of partitions. Raises TypeError, ValueError."""
    if isinstance(topics, str | bytes):
        raise TypeError(
            f"topics={topics!r} is a single name; a list of names is topics=[{topics!r}], with partitions topics={{"
            f"{topics!r}: 3}}"
        )
    if not isinstance(topics, Mapping):
        topics = dict.fromkeys(topics, 1)
    for name, count in topics.items():
        if not isinstance(name, str):
            raise TypeError(f"topics: {name!r} is not a valid topic name")
        if whole_number(name, count) < 1:
            raise ValueError(f"topic {name!r}: expected at least one partition, not {count}")
    return dict(topics)


def whole_number(topic: str, count: int) -> int:
    """Validate a number of partitions. Raises TypeError."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"topic {topic!r}: {count!r} is not a valid number of partitions")
    return count


def properties(settings: Mapping[str, Setting], *, of_topic: bool = False) -> dict[str, str | None]:
    """Return settings as text, as in `server.properties` or of a topic; None selects the default.

    Raises ValueError for an unknown name, with a similar name, and TypeError for an invalid value.
    """
    for name in settings:
        if (name not in TOPIC_KEYS) if of_topic else is_unknown(str(name)):
            raise ValueError(_unknown(str(name), of_topic))
    return {name: _text(name, value) for name, value in settings.items()}


def topic_creation(
    name: str, partitions: int, replication_factor: int, settings: Mapping[str, Setting]
) -> TopicCreation:
    """Return a topic for the controller. Raises ValueError and TypeError for settings, as `properties`."""
    config = {key: value for key, value in properties(settings, of_topic=True).items() if value is not None}
    return TopicCreation(name, num_partitions=partitions, replication_factor=replication_factor, config=config)


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(str(one) for one in value)
    raise TypeError(f"{name}: {value!r} is a {type(value).__name__}; expected text, a number, a bool, a list or None")


def _unknown(name: str, of_topic: bool) -> str:
    """Return the error of an unknown setting, with a similar name."""
    known = list(TOPIC_KEYS if of_topic else BROKER_KEYS)
    kind, others = ("topic", BROKER_KEYS) if of_topic else ("broker", TOPIC_KEYS)
    start = f"unknown setting of a {kind}: {name!r}"
    if name in others:
        if of_topic:
            return f"{start}: it is a setting of the broker, Broker(config={{{name!r}: …}})"
        same = f"; for all topics it is {TOPIC_SYNONYMS[name]!r}" if name in TOPIC_SYNONYMS else ""
        return f"{start}: it is a setting of a topic, create_topic(…, config={{{name!r}: …}}){same}"
    near = get_close_matches(name.lower().replace("_", "."), known, n=1, cutoff=0.6)
    return f"{start}; did you mean {near[0]!r}?" if near else start

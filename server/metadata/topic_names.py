"""Kafka's Topic: valid topic names and the internal topics."""

from __future__ import annotations

import re

from ...protocol.errors import ErrorCode, KafkaError

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def is_internal(name: str) -> bool:
    """Whether clients may not produce to the topic."""
    return name in INTERNAL_TOPICS


def is_legal(name: str) -> bool:
    """Whether a topic may have the name."""
    return name not in (".", "..") and len(name) <= MAX_NAME_LENGTH and _LEGAL.match(name) is not None


def check_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION, with the reason, if no topic may have the name."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif _LEGAL.match(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def has_collision_chars(name: str) -> bool:
    """Return whether another name can have the same collision key."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return a key that is equal for colliding names: metric names do not distinguish `.` and `_`."""
    return name.replace(".", "_")

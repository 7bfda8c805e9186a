"""Kafka's text form of a UUID: 22 characters of URL-safe base64 without padding."""

from __future__ import annotations

import base64
from collections.abc import Callable
from uuid import UUID


def uuid_text(value: UUID) -> str:
    """Return the 22 characters of a topic, directory or cluster id."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """Return the UUID for 22 characters of base64. Raises ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def new_uuid(random_bytes: Callable[[int], bytes]) -> UUID:
    """Return a random (version 4) UUID whose text does not begin with a dash: it can be a command-line argument."""
    while True:
        value = UUID(bytes=random_bytes(16), version=4)
        if not uuid_text(value).startswith("-"):
            return value

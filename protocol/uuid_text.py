"""How Kafka writes a UUID for people: 22 characters of URL-safe base64 without padding."""

from __future__ import annotations

import base64
from uuid import UUID


def uuid_text(value: UUID) -> str:
    """The 22 characters of a topic, directory or cluster id."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """The UUID that 22 characters stand for. Raises ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))

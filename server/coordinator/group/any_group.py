"""A group of either protocol, for callers that have to know which of the two it is (see `GroupPort` for all others)."""

from __future__ import annotations

from .consumer.group import ConsumerGroup
from .group import Group

AnyGroup = Group | ConsumerGroup

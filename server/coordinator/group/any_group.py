"""A group of either protocol: offsets, deletion and listings make no difference between them."""

from __future__ import annotations

from .consumer.group import ConsumerGroup
from .group import Group

AnyGroup = Group | ConsumerGroup

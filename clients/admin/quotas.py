"""Quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

QuotaEntity = Mapping[str, str | None]
"""`user`, `client-id` or `ip` -> a name; None is the default for entities without a quota of their own."""


class QuotaDescription(NamedTuple):
    """An entity with its quotas by key, such as `producer_byte_rate` (bytes per second)."""

    entity: QuotaEntity
    values: dict[str, float]

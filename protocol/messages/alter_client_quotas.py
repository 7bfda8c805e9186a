"""AlterClientQuotas (key 49): change client quotas.

Versions 0-1, flexible from 1.
"""

from __future__ import annotations

from ..schema import boolean, float64, int16, int32, message, string, wire


@message
class EntityData:
    entity_type: str = wire(string, "0+")
    entity_name: str | None = wire(string, "0+", null="0+")


@message
class OpData:
    key: str = wire(string, "0+")
    value: float = wire(float64, "0+")
    remove: bool = wire(boolean, "0+")


@message
class EntryData:
    entity: list[EntityData] = wire([EntityData], "0+")
    ops: list[OpData] = wire([OpData], "0+")


@message(versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[EntryData] = wire([EntryData], "0+")
    validate_only: bool = wire(boolean, "0+")


@message
class ResponseEntryData:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    entity: list[EntityData] = wire([EntityData], "0+")


@message(versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = wire(int32, "0+")
    entries: list[ResponseEntryData] = wire([ResponseEntryData], "0+")

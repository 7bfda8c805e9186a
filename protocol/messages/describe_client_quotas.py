"""DescribeClientQuotas (key 48): read client quotas.

Versions 0-1, flexible from 1.
"""

from __future__ import annotations

from ..schema import boolean, float64, int8, int16, int32, message, string, wire


@message
class ComponentData:
    entity_type: str = wire(string, "0+")
    match_type: int = wire(int8, "0+")
    match: str | None = wire(string, "0+", null="0+")


@message(versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = wire([ComponentData], "0+")
    strict: bool = wire(boolean, "0+")


@message
class EntityData:
    entity_type: str = wire(string, "0+")
    entity_name: str | None = wire(string, "0+", null="0+")


@message
class ValueData:
    key: str = wire(string, "0+")
    value: float = wire(float64, "0+")


@message
class EntryData:
    entity: list[EntityData] = wire([EntityData], "0+")
    values: list[ValueData] = wire([ValueData], "0+")


@message(versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    entries: list[EntryData] | None = wire([EntryData], "0+", null="0+")

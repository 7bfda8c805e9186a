"""UpdateFeatures (key 57): change finalized feature levels.

Versions 0-2, flexible from 0.
   1  validate_only and upgrade type replace allow_downgrade (KIP-778)
   2  per-feature results dropped when the whole update fails
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, message, string, wire


@message
class FeatureUpdateKey:
    feature: str = wire(string, "0+")
    max_version_level: int = wire(int16, "0+")
    allow_downgrade: bool = wire(boolean, "0")
    upgrade_type: int = wire(int8, "1+", default=1)


@message(versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = wire(int32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = wire([FeatureUpdateKey], "0+")
    validate_only: bool = wire(boolean, "1+")


@message
class UpdatableFeatureResult:
    feature: str = wire(string, "0-1")
    error_code: int = wire(int16, "0-1")
    error_message: str | None = wire(string, "0-1", null="0-1")


@message(versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    results: list[UpdatableFeatureResult] = wire([UpdatableFeatureResult], "0-1", ignorable=True)

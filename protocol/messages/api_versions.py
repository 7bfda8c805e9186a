"""ApiVersions (key 18): which requests, in which versions, this broker serves.

Versions 0-5, flexible from 3.
   0  an unknown request version is answered with a v0 body, UNSUPPORTED_VERSION (35) and (2.4+) the single
      ApiVersions range
   1  response adds throttle_time_ms
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  flexible body, response header v0; client software name/version; feature tags
   4  supported feature min version may be 0 (KAFKA-17011)
   5  the cluster id and the node id that the client expects; may return REBOOTSTRAP_REQUIRED (KIP-1242)
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, int64, message, string, wire


@message(versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = wire(string, "3+", ignorable=True)
    client_software_version: str = wire(string, "3+", ignorable=True)
    cluster_id: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)
    node_id: int = wire(int32, "5+", default=-1, ignorable=True)


@message
class ApiVersion:
    api_key: int = wire(int16, "0+")
    min_version: int = wire(int16, "0+")
    max_version: int = wire(int16, "0+")


@message
class SupportedFeatureKey:
    name: str = wire(string, "3+")
    min_version: int = wire(int16, "3+")
    max_version: int = wire(int16, "3+")


@message
class FinalizedFeatureKey:
    name: str = wire(string, "3+")
    max_version_level: int = wire(int16, "3+")
    min_version_level: int = wire(int16, "3+")


@message(versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: int = wire(int16, "0+")
    api_keys: list[ApiVersion] = wire([ApiVersion], "0+")
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire([SupportedFeatureKey], "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = wire(int64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire([FinalizedFeatureKey], "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = wire(boolean, "3+", tag=3, ignorable=True)

"""BrokerRegistration (key 62): a broker registers with the active controller (KIP-631).

Versions 0-4, flexible from 0.
   1  migration from ZooKeeper (KIP-866)
   2  log directories (KIP-858)
   3  broker epoch before a clean shutdown (KIP-966)
   4  features whose lowest level is 0
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int16, int32, int64, message, string, uint16, uuid, wire


@message
class Listener:
    name: str = wire(string, "0+")
    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")
    security_protocol: int = wire(int16, "0+")


@message
class Feature:
    name: str = wire(string, "0+")
    min_supported_version: int = wire(int16, "0+")
    max_supported_version: int = wire(int16, "0+")


@message(versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: int = wire(int32, "0+")
    cluster_id: str = wire(string, "0+")
    incarnation_id: UUID = wire(uuid, "0+")
    listeners: list[Listener] = wire([Listener], "0+")
    features: list[Feature] = wire([Feature], "0+")
    rack: str | None = wire(string, "0+", null="0+")
    is_migrating_zk_broker: bool = wire(boolean, "1+")
    log_dirs: list[UUID] = wire([uuid], "2+", ignorable=True)
    previous_broker_epoch: int = wire(int64, "3+", default=-1, ignorable=True)


@message(versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    broker_epoch: int = wire(int64, "0+", default=-1)

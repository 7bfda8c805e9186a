"""The registration of a broker or a controller in a KRaft cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ...protocol.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from .metadata_error import MetadataError


class ListenerEndpoint(NamedTuple):
    """The address of a listener. `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 and 3 with SASL."""

    name: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    """The lowest and the highest supported level of a feature."""

    min: int
    max: int


class BrokerRegistration(NamedTuple):
    """A broker (Kafka's BrokerRegistration). Cordoned directories of None: the broker did not report them."""

    id: int
    epoch: int
    incarnation_id: UUID
    listeners: Mapping[str, ListenerEndpoint]
    supported_features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    directories: tuple[UUID, ...]
    cordoned_directories: tuple[UUID, ...] | None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """Return the registration in a record."""
        return cls(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            _listeners(record.end_points),
            _supported_features(record.features),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            record.is_migrating_zk_broker,
            tuple(record.log_dirs),
            None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def merge(self, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """Return the registration after a change. Raises MetadataError."""
        cordoned = record.cordoned_log_dirs
        return self._replace(
            fenced=_changed(self.fenced, record.fenced),
            in_controlled_shutdown=_changed(self.in_controlled_shutdown, record.in_controlled_shutdown),
            directories=tuple(record.log_dirs) or self.directories,
            cordoned_directories=self.cordoned_directories if cordoned is None else tuple(cordoned),
        )

    def to_record(self, version: int) -> RegisterBrokerRecord:
        """Return the registration as a record of a version, without the values that the version cannot carry."""
        cordoned = self.cordoned_directories if version >= 4 else None
        return RegisterBrokerRecord(
            broker_id=self.id,
            is_migrating_zk_broker=self.is_migrating_zk_broker and version >= 2,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in self.listeners.values()
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in self.supported_features.items()
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories) if version >= 3 else [],
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )


class ControllerRegistration(NamedTuple):
    """A controller (Kafka's ControllerRegistration)."""

    id: int
    incarnation_id: UUID
    zk_migration_ready: bool
    listeners: Mapping[str, ListenerEndpoint]
    supported_features: Mapping[str, VersionRange]

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        """Return the registration in a record."""
        return cls(
            record.controller_id,
            record.incarnation_id,
            record.zk_migration_ready,
            _listeners(record.end_points),
            _supported_features(record.features),
        )

    def to_record(self) -> RegisterControllerRecord:
        """Return the registration as a record."""
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[
                ControllerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in self.listeners.values()
            ],
            features=[
                ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in self.supported_features.items()
            ],
        )


def _listeners(endpoints: Sequence[BrokerEndpoint] | Sequence[ControllerEndpoint]) -> dict[str, ListenerEndpoint]:
    return {one.name: ListenerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in endpoints}


def _supported_features(features: Sequence[BrokerFeature] | Sequence[ControllerFeature]) -> dict[str, VersionRange]:
    return {one.name: VersionRange(one.min_supported_version, one.max_supported_version) for one in features}


def _changed(before: bool, change: int) -> bool:
    if change not in (-1, 0, 1):
        raise MetadataError(f"unknown change {change} of a broker's registration")
    return change > 0 if change else before

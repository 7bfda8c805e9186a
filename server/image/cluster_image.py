"""Brokers and controllers of a KRaft cluster, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from ..runtime.loop_sharing import CountBudget
from .broker_registration import BrokerRegistration, ControllerRegistration
from .map_changes import difference, with_changes
from .metadata_error import MetadataError

REGISTER_BROKER_VERSIONS = ((30, 4), (17, 3), (8, 2), (0, 1))
"""The first metadata.version of each version of RegisterBrokerRecord, newest first: 4.3-IV0, 3.7-IV2, 3.4-IV0."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The registered brokers and controllers by id."""

    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)

    def write(self, metadata_version: int) -> Iterator[tuple[Any, int]]:
        """Yield the records of all registrations, with their versions."""
        version = next(number for first, number in REGISTER_BROKER_VERSIONS if metadata_version >= first)
        for broker in self.brokers.values():
            yield broker.to_record(version), version
        for controller in self.controllers.values():
            yield controller.to_record(), 0


class ClusterDelta:
    """The changes of registrations, None for a removed one. `image` has the registrations before them."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        self.changed_controllers: dict[int, ControllerRegistration | None] = {}

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return the registration of a broker after the changes."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.brokers.get(broker_id)

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        """Set a broker's registration."""
        self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        """Remove a broker's registration."""
        self.changed_brokers[record.broker_id] = None

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        """Fence a broker. Raises MetadataError for an unknown one."""
        self.changed_brokers[record.id] = self._known_broker(record.id, record.epoch)._replace(fenced=True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        """Unfence a broker. Raises MetadataError for an unknown one."""
        self.changed_brokers[record.id] = self._known_broker(record.id, record.epoch)._replace(fenced=False)

    def replay_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Change a broker's registration. Raises MetadataError for an unknown one."""
        broker = self._known_broker(record.broker_id, record.broker_epoch)
        changed = broker.merge(record)
        if changed != broker:
            self.changed_brokers[record.broker_id] = changed

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        """Set a controller's registration."""
        self.changed_controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        """Remove a controller's registration."""
        self.changed_controllers[record.controller_id] = None

    def _known_broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.broker(broker_id)
        if broker is None:
            raise MetadataError(f"change of broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise MetadataError(f"change of broker {broker_id} with epoch {epoch}; its epoch is {broker.epoch}")
        return broker

    def apply(self) -> ClusterImage:
        """Return the registrations after the changes."""
        return ClusterImage(
            with_changes(self.image.brokers, self.changed_brokers),
            with_changes(self.image.controllers, self.changed_controllers),
        )

    @classmethod
    async def between(cls, before: ClusterImage, after: ClusterImage, budget: CountBudget) -> ClusterDelta | None:
        """Return the changes that make `after` of `before`; None without any."""
        delta = cls(before)
        delta.changed_brokers = await difference(before.brokers, after.brokers, budget)
        delta.changed_controllers = await difference(before.controllers, after.controllers, budget)
        return delta if delta.changed_brokers or delta.changed_controllers else None

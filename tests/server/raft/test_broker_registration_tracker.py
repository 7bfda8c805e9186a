"""Registrations of a broker that are out of date."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from barnabas.protocol import metadata_records as r
from barnabas.server.image.metadata_batch_loader import Manifest
from barnabas.server.image.metadata_delta import MetadataDelta
from barnabas.server.image.metadata_image import EMPTY_IMAGE
from barnabas.server.image.metadata_provenance import MetadataProvenance
from barnabas.server.raft.broker_registration_tracker import BrokerRegistrationTracker


async def test_a_broker_registers_again_when_the_cluster_learns_of_log_directories() -> None:
    sent: list[int] = []
    tracker, image = BrokerRegistrationTracker(2, lambda: sent.append(2)), EMPTY_IMAGE

    async def publish(*records: Any) -> int:
        nonlocal image
        delta, manifest = MetadataDelta(image), Manifest(MetadataProvenance(1, 1, 1), False, 1, 1)
        for record in records:
            delta.replay(record)
        image = await delta.apply(MetadataProvenance(1, 1, 1))
        await tracker.on_metadata_update(delta, image, manifest)
        return len(sent)

    def register(broker_id: int, *directories: UUID) -> r.RegisterBrokerRecord:
        return r.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=1, log_dirs=list(directories))

    level = r.FeatureLevelRecord(name="metadata.version", feature_level=16)
    assert await publish(level, register(2)) == 0
    assert await publish(register(3)) == 0
    level.feature_level = 17
    assert await publish(level) == 1
    assert await publish(register(3)) == 1, "the registration of another broker"
    assert await publish(register(2, UUID(int=1 << 100))) == 1
    level.feature_level = 18
    assert await publish(level) == 1

"""The metadata of a standalone broker as records of a KRaft cluster: the inverse of `KraftAdoption`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...common.uuid_text import new_uuid
from ...protocol.config_resources import ConfigResourceType
from ...protocol.metadata_records import (
    AccessControlEntryRecord,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ...protocol.sasl_server import ScramCredential
from ...protocol.topic_partition import TopicPartition
from ..config.named_configs import NAMED_KINDS
from ..metadata import znodes
from ..metadata.acl_store import AclStore
from ..metadata.cluster_features import FEATURES
from ..metadata.config_store import ConfigStore
from ..metadata.metadata_store import NoNodeError
from ..metadata.producer_id_manager import LAST_PRODUCER_ID
from ..metadata.scram_store import MECHANISMS
from ..metadata.token_store import TokenStore
from ..metadata.topic_store import TopicStore
from ..quotas.stored_quotas import entity_at, stored_quotas
from .image_topics import UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from ..metadata.metadata_store import MetadataStore
    from ..metadata.znodes import TopicRegistration

NO_LEADER = -1
REMOVED_TOPIC_KEYS = ("message.downconversion.enable", "message.format.version")
"""Settings of topics that have no effect since Kafka 4, which does not have them."""
FORMER_TIMESTAMP_LIMIT = "message.timestamp.difference.max.ms"
TIMESTAMP_LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
MIN_SEGMENT_BYTES = 1 << 20
"""Kafka's lowest `segment.bytes`."""


class UnreadableMetadataError(Exception):
    """A part of the metadata cannot be read. The message contains its name."""


class StandaloneMetadata:
    """Reads the metadata store of a standalone broker that does not run."""

    def __init__(
        self, store: MetadataStore, *, broker_id: int, broker_epoch: int, token_bytes: Callable[[int], bytes]
    ) -> None:
        """`broker_epoch` is the epoch in the markers of the last clean stop, -1 without them."""
        self._store = store
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._token_bytes = token_bytes
        self._topics = TopicStore(store, token_bytes=token_bytes)
        self._configs = ConfigStore(store, now_ms=lambda: 0)
        self.changed_settings: list[str] = []
        """The settings of topics that Kafka does not accept, each with its change."""

    async def records(self, directories: Mapping[TopicPartition, UUID], log_dirs: list[UUID]) -> AsyncIterator[Any]:
        """Yield the records of all metadata except features, whose levels the format of the controllers determines.

        `directories` has the id of the log directory of each partition, `log_dirs` the ids of all. Raises
        UnreadableMetadataError, StoreError.
        """
        yield self._registration(log_dirs)
        found = await self._topics.find_topics()
        if found.unreadable:
            raise UnreadableMetadataError(f"the topics {', '.join(sorted(found.unreadable))} cannot be read")
        for topic in found.topics:
            if await self._store.exists(znodes.deletion_path(topic.name)) is None:
                yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
                async for record in self._partitions(topic, directories):
                    yield record
                config = self._accepted_by_kafka(topic.name, await self._configs.topic_config(topic.name))
                for setting in _settings(ConfigResourceType.TOPIC, topic.name, config):
                    yield setting
        for broker_id in (None, self._broker_id):
            name = "" if broker_id is None else str(broker_id)
            for setting in _settings(ConfigResourceType.BROKER, name, await self._configs.broker_config(broker_id)):
                yield setting
        for kind, named in NAMED_KINDS.items():
            for name, config in (await self._configs.named_configs(named.entity_type)).items():
                for setting in _settings(kind, name, config):
                    yield setting
        async for quota in self._quotas():
            yield quota
        async for credential in self._scram_credentials():
            yield credential
        acls = AclStore(self._store, now_ms=lambda: 0)
        await acls.prepare()
        for pattern, entries in (await acls.load()).items():
            for entry in entries:
                yield AccessControlEntryRecord(
                    id=new_uuid(self._token_bytes),
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
        tokens = TokenStore(self._store, now_ms=lambda: 0)
        await tokens.prepare()
        async for token in tokens.all():
            yield DelegationTokenRecord(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_ms,
                max_timestamp=token.max_ms,
                expiration_timestamp=token.expiry_ms,
                token_id=token.token_id,
            )
        if (next_id := await self._next_producer_id()) > 0:
            yield ProducerIdsRecord(broker_id=self._broker_id, broker_epoch=-1, next_producer_id=next_id)

    def _accepted_by_kafka(self, topic: str, config: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a topic as Kafka 4 accepts them.

        With others its controllers would refuse each later change of the topic's settings, and its brokers would not
        start.
        """
        accepted = dict(config)
        for key in REMOVED_TOPIC_KEYS:
            if (value := accepted.pop(key, None)) is not None:
                self.changed_settings.append(f"{topic}: {key}={value} removed")
        if (limit := accepted.pop(FORMER_TIMESTAMP_LIMIT, None)) is not None:
            accepted = dict.fromkeys(TIMESTAMP_LIMITS, limit) | accepted
            limits = " and ".join(TIMESTAMP_LIMITS)
            self.changed_settings.append(f"{topic}: {FORMER_TIMESTAMP_LIMIT}={limit} changed to {limits}")
        if (size := accepted.get("segment.bytes")) is not None and int(size) < MIN_SEGMENT_BYTES:
            accepted["segment.bytes"] = str(MIN_SEGMENT_BYTES)
            self.changed_settings.append(f"{topic}: segment.bytes={size} changed to {MIN_SEGMENT_BYTES}")
        return accepted

    def _registration(self, log_dirs: list[UUID]) -> RegisterBrokerRecord:
        """Return the registration of the standalone broker, fenced.

        A broker whose first registration has no predecessor counts as stopped uncleanly, and leaves all ISRs.
        """
        return RegisterBrokerRecord(
            broker_id=self._broker_id,
            incarnation_id=new_uuid(self._token_bytes),
            broker_epoch=self._broker_epoch,
            features=[
                BrokerFeature(name=name, min_supported_version=one.lowest, max_supported_version=one.highest)
                for name, one in sorted(FEATURES.items())
            ],
            fenced=True,
            log_dirs=sorted(log_dirs),
        )

    async def _partitions(
        self, topic: TopicRegistration, directories: Mapping[TopicPartition, UUID]
    ) -> AsyncIterator[PartitionRecord]:
        states = await self._topics.partition_states(topic)
        for index in sorted(topic.assignment):
            state = states.get(index)
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=[self._broker_id],
                isr=[self._broker_id],
                # The controller elects the broker, with the next leader epoch, as soon as it is unfenced.
                leader=NO_LEADER,
                leader_epoch=0 if state is None else state.leader_epoch,
                partition_epoch=0 if state is None else state.partition_epoch,
                directories=[directories.get(TopicPartition(topic.name, index), UNASSIGNED_DIRECTORY)],
            )

    async def _quotas(self) -> AsyncIterator[ClientQuotaRecord]:
        async for entity, quotas in stored_quotas(self._configs):
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
            for key, value in quotas.items():
                yield ClientQuotaRecord(entity=parts, key=key, value=value)

    async def _scram_credentials(self) -> AsyncIterator[UserScramCredentialRecord]:
        async for entity_type, path, config in self._configs.client_configs():
            for number, mechanism in enumerate(MECHANISMS, 1):
                if entity_type != "users" or not (text := config.get(mechanism)):
                    continue
                user = entity_at(entity_type, path).get("user")
                try:
                    credential = ScramCredential.of_text(text)
                except ValueError as error:
                    raise UnreadableMetadataError(f"the {mechanism} credential of user {user}: {error}") from error
                if user is not None:
                    yield UserScramCredentialRecord(name=user, mechanism=number, **credential._asdict())

    async def _next_producer_id(self) -> int:
        try:
            data, _ = await self._store.get(znodes.PRODUCER_ID_BLOCK)
        except NoNodeError:
            return 0
        return min(znodes.decode_producer_id_block(data)[1] + 1, LAST_PRODUCER_ID) if data else 0


def _settings(kind: ConfigResourceType, name: str, config: Mapping[str, str]) -> Iterator[ConfigRecord]:
    for key, value in config.items():
        yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

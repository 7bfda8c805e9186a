"""Changes of the metadata of a KRaft cluster between two offsets of the metadata log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...protocol import metadata_records as records
from ..runtime.loop_sharing import CountBudget
from .acls_image import AclsDelta
from .client_quotas_image import ClientQuotasDelta
from .cluster_image import ClusterDelta
from .configurations_image import ConfigurationsDelta
from .delegation_token_image import DelegationTokenDelta
from .features_image import FeaturesDelta
from .metadata_error import MetadataError
from .metadata_image import MetadataImage
from .metadata_provenance import MetadataProvenance
from .producer_ids_image import ProducerIdsDelta
from .scram_image import ScramDelta
from .topics_image import TopicsDelta


class MetadataDelta:
    """The changes of each part of the metadata, None for an unchanged part (Kafka's MetadataDelta).

    `image` has the metadata before the changes and does not change: each changed part is copied once.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.features: FeaturesDelta | None = None
        self.cluster: ClusterDelta | None = None
        self.topics: TopicsDelta | None = None
        self.configs: ConfigurationsDelta | None = None
        self.client_quotas: ClientQuotasDelta | None = None
        self.producer_ids: ProducerIdsDelta | None = None
        self.acls: AclsDelta | None = None
        self.scram: ScramDelta | None = None
        self.delegation_tokens: DelegationTokenDelta | None = None

    def replay(self, record: Any) -> None:
        """Apply a record. Raises MetadataError for a record that contradicts the metadata before it.

        Records of metadata transactions are for MetadataBatchLoader.
        """
        handler = _HANDLERS.get(type(record))
        if handler is None:
            raise MetadataError(f"unexpected {type(record).__name__} in the metadata log")
        handler(self, record)

    def _get_or_create_features(self) -> FeaturesDelta:
        if self.features is None:
            self.features = FeaturesDelta(self.image.features)
        return self.features

    def _get_or_create_cluster(self) -> ClusterDelta:
        if self.cluster is None:
            self.cluster = ClusterDelta(self.image.cluster)
        return self.cluster

    def _get_or_create_topics(self) -> TopicsDelta:
        if self.topics is None:
            self.topics = TopicsDelta(self.image.topics)
        return self.topics

    def _get_or_create_configs(self) -> ConfigurationsDelta:
        if self.configs is None:
            self.configs = ConfigurationsDelta(self.image.configs)
        return self.configs

    def _get_or_create_client_quotas(self) -> ClientQuotasDelta:
        if self.client_quotas is None:
            self.client_quotas = ClientQuotasDelta(self.image.client_quotas)
        return self.client_quotas

    def _get_or_create_producer_ids(self) -> ProducerIdsDelta:
        if self.producer_ids is None:
            self.producer_ids = ProducerIdsDelta(self.image.producer_ids)
        return self.producer_ids

    def _get_or_create_acls(self) -> AclsDelta:
        if self.acls is None:
            self.acls = AclsDelta(self.image.acls)
        return self.acls

    def _get_or_create_scram(self) -> ScramDelta:
        if self.scram is None:
            self.scram = ScramDelta(self.image.scram)
        return self.scram

    def _get_or_create_delegation_tokens(self) -> DelegationTokenDelta:
        if self.delegation_tokens is None:
            self.delegation_tokens = DelegationTokenDelta(self.image.delegation_tokens)
        return self.delegation_tokens

    def _replay_remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self._get_or_create_topics().replay_remove(record)
        # The settings of a topic have no records of their own deletion.
        self._get_or_create_configs().delete_topic(name)

    async def apply(self, provenance: MetadataProvenance) -> MetadataImage:
        """Return the metadata after the changes. Each changed part is copied once, unchanged parts are shared.

        The loop serves other requests in between.
        """
        before = self.image
        return replace(
            before,
            provenance=provenance,
            features=before.features if self.features is None else self.features.apply(),
            cluster=before.cluster if self.cluster is None else self.cluster.apply(),
            topics=before.topics if self.topics is None else await self.topics.apply(CountBudget()),
            configs=before.configs if self.configs is None else self.configs.apply(),
            client_quotas=before.client_quotas if self.client_quotas is None else self.client_quotas.apply(),
            producer_ids=before.producer_ids if self.producer_ids is None else self.producer_ids.apply(),
            acls=before.acls if self.acls is None else self.acls.apply(),
            scram=before.scram if self.scram is None else self.scram.apply(),
            delegation_tokens=(
                before.delegation_tokens if self.delegation_tokens is None else self.delegation_tokens.apply()
            ),
        )

    @classmethod
    async def between(cls, before: MetadataImage, after: MetadataImage) -> MetadataDelta:
        """Return the changes that make `after` of `before`. The loop serves other requests in between.

        Raises MetadataError if partitions of a topic are missing in `after`.
        """
        budget = CountBudget()
        delta = cls(before)
        delta.features = await FeaturesDelta.between(before.features, after.features, budget)
        delta.cluster = await ClusterDelta.between(before.cluster, after.cluster, budget)
        delta.topics = await TopicsDelta.between(before.topics, after.topics, budget)
        delta.configs = await ConfigurationsDelta.between(before.configs, after.configs, budget)
        delta.client_quotas = await ClientQuotasDelta.between(before.client_quotas, after.client_quotas, budget)
        delta.producer_ids = ProducerIdsDelta.between(before.producer_ids, after.producer_ids)
        delta.acls = await AclsDelta.between(before.acls, after.acls, budget)
        delta.scram = await ScramDelta.between(before.scram, after.scram, budget)
        delta.delegation_tokens = await DelegationTokenDelta.between(
            before.delegation_tokens, after.delegation_tokens, budget
        )
        return delta


def _ignore(delta: MetadataDelta, record: Any) -> None:
    """Skip a record without effect: a NoOpRecord, or the state of a migration that ended before Kafka 4.0."""


_HANDLERS: dict[type, Callable[[MetadataDelta, Any], None]] = {
    records.RegisterBrokerRecord: lambda d, record: d._get_or_create_cluster().replay_register_broker(record),
    records.UnregisterBrokerRecord: lambda d, record: d._get_or_create_cluster().replay_unregister_broker(record),
    records.FenceBrokerRecord: lambda d, record: d._get_or_create_cluster().replay_fence_broker(record),
    records.UnfenceBrokerRecord: lambda d, record: d._get_or_create_cluster().replay_unfence_broker(record),
    records.BrokerRegistrationChangeRecord: (
        lambda d, record: d._get_or_create_cluster().replay_registration_change(record)
    ),
    records.RegisterControllerRecord: lambda d, record: d._get_or_create_cluster().replay_register_controller(record),
    records.UnregisterControllerRecord: (
        lambda d, record: d._get_or_create_cluster().replay_unregister_controller(record)
    ),
    records.TopicRecord: lambda d, record: d._get_or_create_topics().replay_topic(record),
    records.PartitionRecord: lambda d, record: d._get_or_create_topics().replay_partition(record),
    records.PartitionChangeRecord: lambda d, record: d._get_or_create_topics().replay_change(record),
    records.ClearElrRecord: lambda d, record: d._get_or_create_topics().replay_clear_elr(record),
    records.RemoveTopicRecord: MetadataDelta._replay_remove_topic,
    records.ConfigRecord: lambda d, record: d._get_or_create_configs().replay(record),
    records.ClientQuotaRecord: lambda d, record: d._get_or_create_client_quotas().replay(record),
    records.ProducerIdsRecord: lambda d, record: d._get_or_create_producer_ids().replay(record),
    records.AccessControlEntryRecord: lambda d, record: d._get_or_create_acls().replay(record),
    records.RemoveAccessControlEntryRecord: lambda d, record: d._get_or_create_acls().replay_remove(record),
    records.UserScramCredentialRecord: lambda d, record: d._get_or_create_scram().replay(record),
    records.RemoveUserScramCredentialRecord: lambda d, record: d._get_or_create_scram().replay_remove(record),
    records.DelegationTokenRecord: lambda d, record: d._get_or_create_delegation_tokens().replay(record),
    records.RemoveDelegationTokenRecord: lambda d, record: d._get_or_create_delegation_tokens().replay_remove(record),
    records.FeatureLevelRecord: lambda d, record: d._get_or_create_features().replay(record),
    records.NoOpRecord: _ignore,
    records.ZkMigrationStateRecord: _ignore,
}

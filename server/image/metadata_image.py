"""All metadata of a KRaft cluster at one offset of the metadata log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .acls_image import AclsImage
from .client_quotas_image import ClientQuotasImage
from .cluster_image import ClusterImage
from .configurations_image import ConfigurationsImage
from .delegation_token_image import DelegationTokenImage
from .features_image import FeaturesImage
from .metadata_provenance import MetadataProvenance
from .producer_ids_image import ProducerIdsImage
from .scram_image import ScramImage
from .topics_image import TopicsImage

MINIMUM_METADATA_VERSION = 7
"""3.3-IV3, the lowest `metadata.version` of Kafka 4. Kafka takes a log without any level for one of this level."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The metadata as immutable values (Kafka's MetadataImage). Parts that a delta does not change are shared."""

    provenance: MetadataProvenance = field(default_factory=MetadataProvenance)
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigurationsImage = field(default_factory=ConfigurationsImage)
    client_quotas: ClientQuotasImage = field(default_factory=ClientQuotasImage)
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    delegation_tokens: DelegationTokenImage = field(default_factory=DelegationTokenImage)

    def write(self) -> Iterator[tuple[Any, int]]:
        """Yield the records of all metadata, as in a snapshot, with their versions at this `metadata.version`.

        The versions without a field drop its value, as in Kafka.
        """
        metadata_version = self.features.metadata_version or MINIMUM_METADATA_VERSION
        yield from self.features.write(metadata_version)
        yield from self.cluster.write(metadata_version)
        yield from self.topics.write(metadata_version)
        yield from self.configs.write()
        yield from self.client_quotas.write()
        yield from self.producer_ids.write()
        yield from self.acls.write()
        yield from self.scram.write()
        yield from self.delegation_tokens.write()


EMPTY_IMAGE = MetadataImage()
"""The metadata before the first record."""

"""The stores through which a broker reads and writes the metadata of its cluster.

All reads of the metadata tree pass through a store of this room; handlers and coordinators read `MetadataCache` and
`DynamicConfig`, which are filled from here. A KRaft broker will fill them from a metadata image instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cluster_store import ClusterStore
from .config_store import ConfigStore
from .metadata_store import MetadataStore
from .topic_store import TopicStore


@dataclass(frozen=True, slots=True)
class MetadataStores:
    """A session with the metadata tree and the parts of the tree."""

    store: MetadataStore
    cluster: ClusterStore
    topics: TopicStore
    configs: ConfigStore

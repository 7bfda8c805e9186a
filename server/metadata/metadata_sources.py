"""The metadata of a cluster as a broker reads it at its start."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...storage.found_logs import FindStrays
    from .acl_store import AclStore
    from .cluster_features import Features
    from .config_store import ConfigStore
    from .metadata_stores import MetadataStores
    from .token_store import TokenStore


@dataclass(frozen=True, slots=True)
class MetadataSources:
    """The stores that a broker reads before it builds its parts: of the metadata tree, or of a KRaft metadata image."""

    broker_id: int
    cluster_id: str
    stores: MetadataStores | None
    """The metadata tree; None in a KRaft cluster."""
    config_store: ConfigStore
    acl_store: AclStore | None
    """None in a KRaft cluster, whose ACLs are published from the image."""
    token_store: TokenStore
    features: Features
    find_strays: FindStrays
    """Finds the folders in the log directories that are not partitions of the cluster."""
    known_topics: Collection[str]
    """The names of all topics."""

    @property
    def tree(self) -> MetadataStores:
        """The metadata tree. Not in a KRaft cluster."""
        assert self.stores is not None, "a KRaft cluster has no metadata tree"
        return self.stores

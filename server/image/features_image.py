"""Finalized features of a KRaft cluster, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...protocol.metadata_records import FeatureLevelRecord
from ..runtime.loop_sharing import CountBudget
from .map_changes import difference, with_changes
from .metadata_error import MetadataError

METADATA_VERSION = "metadata.version"
MIN_VERSION, MAX_VERSION = 7, 33
"""3.3-IV3 and 4.4-IV2: records of other levels may have another meaning. The broker registers with the same range."""


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """The finalized level of each feature, including `metadata.version`."""

    finalized_versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int | None:
        """Return the level of `metadata.version`; None before the first record."""
        return self.finalized_versions.get(METADATA_VERSION)

    def write(self, metadata_version: int) -> Iterator[tuple[Any, int]]:
        """Yield the records of all features, with their versions. `metadata.version` is first, as Kafka requires."""
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version), 0
        for name, level in self.finalized_versions.items():
            if name != METADATA_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=level), 0


class FeaturesDelta:
    """The changes of features, None for a removed one. `image` has the features before them."""

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changes: dict[str, int | None] = {}

    def replay(self, record: FeatureLevelRecord) -> None:
        """Set or remove a feature. Raises MetadataError for a `metadata.version` of which the records are not known."""
        if record.name == METADATA_VERSION and not MIN_VERSION <= record.feature_level <= MAX_VERSION:
            raise MetadataError(
                f"metadata.version {record.feature_level}: Barnabas supports {MIN_VERSION} to {MAX_VERSION}"
            )
        self.changes[record.name] = record.feature_level or None

    def apply(self) -> FeaturesImage:
        """Return the features after the changes."""
        return FeaturesImage(with_changes(self.image.finalized_versions, self.changes))

    @classmethod
    async def between(cls, before: FeaturesImage, after: FeaturesImage, budget: CountBudget) -> FeaturesDelta | None:
        """Return the changes that make `after` of `before`; None without any."""
        delta = cls(before)
        delta.changes = await difference(before.finalized_versions, after.finalized_versions, budget)
        return delta if delta.changes else None

"""The finalized features of a KRaft cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .published_image import PublishedImage

METADATA_VERSION = "metadata.version"


class ImageFeatures:
    """The levels in effect by the published image. Used on the loop's thread only."""

    def __init__(self, published: PublishedImage) -> None:
        self._published = published

    @property
    def epoch(self) -> int:
        """The offset of the published image, as in Kafka."""
        return self._published.image.provenance.last_contained_offset

    def level(self, name: str) -> int:
        """Return the level of a feature, 0 if it is not in effect."""
        features = self._published.image.features
        if name == METADATA_VERSION:
            return features.metadata_version or 0
        return features.finalized_versions.get(name, 0)

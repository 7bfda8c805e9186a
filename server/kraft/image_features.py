"""The finalized features of a KRaft cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..metadata.cluster_features import OnFeatureChange
    from .published_image import PublishedImage

METADATA_VERSION = "metadata.version"


class ImageFeatures:
    """The levels in effect by the published image. Used on the loop's thread only."""

    def __init__(self, published: PublishedImage) -> None:
        self._published = published
        self._callbacks: list[OnFeatureChange] = []

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

    def on_change(self, callback: OnFeatureChange) -> None:
        """Call `callback` after each change of levels."""
        self._callbacks.append(callback)

    async def changed(self) -> None:
        """Have the parts of the broker follow a change. The publisher of the metadata calls it."""
        for callback in self._callbacks:
            await callback()

"""The metadata image that a broker has applied."""

from __future__ import annotations

from ..image.metadata_image import EMPTY_IMAGE, MetadataImage


class PublishedImage:
    """The image up to which the publishers of the broker have applied the metadata.

    The stores of a KRaft broker read it. The image of the MetadataLoader may be newer: its changes are published next.
    """

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE

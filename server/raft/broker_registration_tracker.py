"""The publisher that sends an outdated registration of a broker again (Kafka: BrokerRegistrationTracker)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger

if TYPE_CHECKING:
    from ..image.metadata_batch_loader import Manifest
    from ..image.metadata_delta import MetadataDelta
    from ..image.metadata_image import MetadataImage

logger = room_logger("raft")

SINCE_DIRECTORIES = 17
"""metadata.version 3.7-IV2, the first level at which registrations contain log directories."""


class BrokerRegistrationTracker:
    """Compares the registration of a broker with the metadata. It belongs to the broker, and runs on its loop.

    A broker that was registered at an older metadata.version has no log directories in its registration: the controller
    would ignore their failures until a restart.
    """

    name = "BrokerRegistrationTracker"

    def __init__(self, broker_id: int, resend_registration: Callable[[], None]) -> None:
        """`resend_registration` is that of the `BrokerLifecycleManager`."""
        self._broker_id = broker_id
        self._resend_registration = resend_registration

    async def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, _: Manifest) -> None:
        """Register again if a feature level or the registration has changed, and its directories are missing."""
        is_changed = delta.features is not None or (
            delta.cluster is not None and self._broker_id in delta.cluster.changed_brokers
        )
        registration = image.cluster.brokers.get(self._broker_id)
        if not is_changed or registration is None:
            return
        if (image.features.metadata_version or 0) >= SINCE_DIRECTORIES and not registration.directories:
            logger.info("the registration of broker %d has no log directories and is sent again", self._broker_id)
            self._resend_registration()

"""What brokers know a producer by."""

from __future__ import annotations

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Producer id and epoch, as InitProducerId gave them or as bumped since: sequences count per both and partition."""

    producer_id: int
    epoch: int

"""The identity of a producer at the brokers."""

from __future__ import annotations

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Producer id and epoch, from InitProducerId or bumped since: sequences count per both and partition."""

    producer_id: int
    epoch: int

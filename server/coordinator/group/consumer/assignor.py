"""The assignors there are (`group.consumer.assignors`, KIP-848's `group.remote.assignor`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from .assignment import Assignment
from .range_assignor import assign_ranges
from .subscriber import PartitionCounts, Subscriber
from .uniform_assignor import assign_uniformly

Assign = Callable[[Sequence[Subscriber], PartitionCounts], dict[str, Assignment]]

ASSIGNORS: Mapping[str, Assign] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""By the names that clients ask for. Kafka's own class names in the setting mean the same."""

_CLASSES = MappingProxyType(
    {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
)


def offered(setting: Sequence[str]) -> list[str]:
    """The names in the setting that there are, in its order: the first is the default."""
    names = [_CLASSES.get(name, name) for name in setting]
    return [name for name in names if name in ASSIGNORS] or ["uniform"]

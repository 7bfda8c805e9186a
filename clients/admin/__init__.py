"""The admin client, by what it administers."""

from .admin import Admin
from .brokers import ClusterDescription, LogDirDescription
from .configs import ConfigChange, ConfigEntry, ConfigResource
from .group_descriptions import GroupDescription, GroupMember
from .groups import GroupListing, PartitionLag
from .outcomes import Outcome, raise_first
from .records import HIGH_WATERMARK
from .topics import BROKER_DEFAULT, NewTopic

__all__ = [
    "BROKER_DEFAULT",
    "HIGH_WATERMARK",
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDirDescription",
    "NewTopic",
    "Outcome",
    "PartitionLag",
    "raise_first",
]

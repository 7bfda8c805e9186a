"""The admin client and the types of its parameters and results."""

from .admin import HIGH_WATERMARK, Admin
from .brokers import ClusterDescription, LogDirDescription, QuorumInfo, QuorumReplica
from .configs import ConfigChange, ConfigEntry, ConfigResource
from .features import FeatureLevel, FeatureUpgradeType
from .group_descriptions import GroupDescription, GroupMember
from .groups import GroupListing, PartitionLag
from .outcomes import Outcome, raise_first
from .reassignments import ElectionType, PartitionReassignment, spread_replicas
from .share_groups import ShareGroupDescription, ShareMemberDescription, SharePartitionOffset
from .streams_groups import (
    InternalTopic,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsSubtopology,
    StreamsTask,
    StreamsTasks,
    StreamsTopologyDescription,
    TopologyDescriptionStatus,
    TopologyNode,
    TopologyNodeType,
)
from .topics import BROKER_DEFAULT, NewTopic
from .users import ScramCredentialInfo, ScramMechanism

__all__ = [
    "BROKER_DEFAULT",
    "HIGH_WATERMARK",
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ElectionType",
    "FeatureLevel",
    "FeatureUpgradeType",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "InternalTopic",
    "LogDirDescription",
    "NewTopic",
    "Outcome",
    "PartitionLag",
    "PartitionReassignment",
    "QuorumInfo",
    "QuorumReplica",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "StreamsGroupDescription",
    "StreamsMemberDescription",
    "StreamsSubtopology",
    "StreamsTask",
    "StreamsTasks",
    "StreamsTopologyDescription",
    "TopologyDescriptionStatus",
    "TopologyNode",
    "TopologyNodeType",
    "raise_first",
    "spread_replicas",
]

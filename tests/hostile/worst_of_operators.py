"""The worst requests of an operator that are within what one request may ask for: none of it is refused.

The most partitions that a request may ask for are only looked at here, as thousands of files take a while; fewer are
made.
"""

from __future__ import annotations

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_client_quotas as quotas
from barnabas.protocol.messages import alter_configs as altered
from barnabas.protocol.messages import create_topics as created
from barnabas.protocol.messages import incremental_alter_configs as edited
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.server.apis.handlers.alter_user_scram_credentials import MAX_CHANGES
from barnabas.server.config.config_admin_manager import MAX_SETTINGS
from barnabas.server.controller.admin_manager import MAX_PARTITIONS_PER_REQUEST

from .worst_requests import BROKER_ID, NEW_PARTITIONS, TOPIC, WIDE, WIDE_PARTITIONS, Known, Worst

MADE, GROWN = "made", "grown"
"""Topics that are not there before they are made, and that has one partition before it is given more."""
GROUPS = [f"{number:x}" for number in range(1000)]
"""Who have committed something, and are deleted."""
NEW_ENTITIES = 2000
"""Each is a write of its own to the metadata store, a millisecond or two."""
BROKER = ConfigResourceType.BROKER
K = ApiKey
NONE = ErrorCode.NONE


def _topic_of_assignments(_: int, __: Known) -> created.CreateTopicsRequest:
    assigned = [
        created.CreatableReplicaAssignment(partition_index=number, broker_ids=[BROKER_ID])
        for number in range(MAX_PARTITIONS_PER_REQUEST)
    ]
    topic = created.CreatableTopic(name="n", num_partitions=-1, replication_factor=-1, assignments=assigned)
    return created.CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=True)


def _partitions_of_assignments(_: int, __: Known) -> CreatePartitionsRequest:
    assigned = [CreatePartitionsAssignment(broker_ids=[BROKER_ID])] * (MAX_PARTITIONS_PER_REQUEST - 1)
    topic = CreatePartitionsTopic(name=TOPIC, count=MAX_PARTITIONS_PER_REQUEST, assignments=assigned)
    return CreatePartitionsRequest(timeout_ms=60_000, validate_only=True, topics=[topic])


def _topic_made(_: int, __: Known) -> created.CreateTopicsRequest:
    topic = created.CreatableTopic(name=MADE, num_partitions=NEW_PARTITIONS, replication_factor=1)
    return created.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def _topic_deleted(_: int, __: Known) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[MADE], timeout_ms=60_000)


def _feature(_: int, __: Known) -> UpdateFeaturesRequest:
    """The one that an operator can choose a level for."""
    return UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)]
    )


def _partitions_made(_: int, __: Known) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=GROWN, count=1 + NEW_PARTITIONS, assignments=None)
    return CreatePartitionsRequest(timeout_ms=60_000, topics=[topic])


def _replaced(_: int, __: Known) -> altered.AlterConfigsRequest:
    configs = [altered.AlterableConfig(name=f"plugin.{number}", value="x" * 900) for number in range(MAX_SETTINGS)]
    resource = altered.AlterConfigsResource(resource_type=BROKER, resource_name=str(BROKER_ID), configs=configs)
    return altered.AlterConfigsRequest(resources=[resource])


def _edited(_: int, __: Known) -> edited.IncrementalAlterConfigsRequest:
    configs = [
        edited.AlterableConfig(name=f"plugin.{number}", config_operation=ConfigOperation.SET, value="y" * 900)
        for number in range(MAX_SETTINGS)
    ]
    resource = edited.AlterConfigsResource(resource_type=BROKER, resource_name=str(BROKER_ID), configs=configs)
    return edited.IncrementalAlterConfigsRequest(resources=[resource])


def _described(_: int, __: Known) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=BROKER, resource_name=str(BROKER_ID))],
        include_synonyms=True,
        include_documentation=True,
    )


def _users(_: int, __: Known) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=f"{number:x}", mechanism=1, iterations=4096, salt=bytes(200), salted_password=bytes(200)
            )
            for number in range(MAX_CHANGES)
        ]
    )


def _entities(count: int, _: Known) -> quotas.AlterClientQuotasRequest:
    return quotas.AlterClientQuotasRequest(
        entries=[
            quotas.EntryData(
                entity=[quotas.EntityData(entity_type="user", entity_name=f"{number:x}")],
                ops=[quotas.OpData(key="producer_byte_rate", value=1e9)],
            )
            for number in range(min(count, NEW_ENTITIES))
        ]
    )


def _moves(count: int, known: Known) -> AlterReplicaLogDirsRequest:
    partitions = [number % WIDE_PARTITIONS for number in range(count)]
    topics = [AlterReplicaLogDirTopic(name=WIDE, partitions=partitions)]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=known.folder, topics=topics)])


WORST_OF_OPERATORS = (
    Worst("most assignments, looked at", K.CREATE_TOPICS, 5, _topic_of_assignments, NONE),
    Worst("a topic of new partitions", K.CREATE_TOPICS, 5, _topic_made, NONE),
    Worst("most assignments, looked at", K.CREATE_PARTITIONS, 1, _partitions_of_assignments, NONE),
    Worst("new partitions", K.CREATE_PARTITIONS, 1, _partitions_made, NONE),
    Worst("a topic of many partitions", K.DELETE_TOPICS, 5, _topic_deleted, NONE),
    Worst("a feature", K.UPDATE_FEATURES, 1, _feature, NONE),
    Worst("groups", K.DELETE_GROUPS, 1, lambda *_: DeleteGroupsRequest(groups_names=GROUPS), NONE),
    Worst("most settings of a broker", K.ALTER_CONFIGS, 1, _replaced, NONE),
    Worst("most settings of a broker", K.INCREMENTAL_ALTER_CONFIGS, 0, _edited, NONE),
    Worst("a broker with most settings", K.DESCRIBE_CONFIGS, 4, _described, NONE),
    Worst("most users", K.ALTER_USER_SCRAM_CREDENTIALS, 0, _users, NONE),
    Worst(
        "all", K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, lambda *_: DescribeUserScramCredentialsRequest(users=None), NONE
    ),
    Worst("new entities", K.ALTER_CLIENT_QUOTAS, 1, _entities, NONE),
    Worst("all", K.DESCRIBE_CLIENT_QUOTAS, 1, lambda *_: DescribeClientQuotasRequest(components=[]), NONE),
    Worst("the same partitions to one folder", K.ALTER_REPLICA_LOG_DIRS, 1, _moves, NONE),
    Worst("all", K.DESCRIBE_LOG_DIRS, 1, lambda *_: DescribeLogDirsRequest(topics=None), NONE),
)

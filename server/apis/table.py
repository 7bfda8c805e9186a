"""The table of APIs: served versions, handlers and ACL checks. ApiVersions responses are built from it.

A new API is a message file, a handler file and a row here (docs/adding-an-api.md).
"""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.acls import AclOperation, AclResourceType
from ...protocol.apis import ApiKey

_O, _T = AclOperation, AclResourceType
READ, WRITE, CREATE, DELETE = _O.READ, _O.WRITE, _O.CREATE, _O.DELETE
ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS
CLUSTER_ACTION = _O.CLUSTER_ACTION
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = _T.TOPIC, _T.GROUP, _T.CLUSTER, _T.TRANSACTIONAL_ID
BY_TYPE = None
"""The type of the resources is a field of the request."""


class AclCheck(NamedTuple):
    """An operation on resources of a request, for which the client needs an ACL."""

    operation: AclOperation
    resource_type: AclResourceType | None
    field: str = ""
    """The field with the name of a resource, or with a list of named items; empty for the cluster."""
    or_cluster: AclOperation | None = None
    """An operation on the cluster that is sufficient for every resource."""
    or_operation: AclOperation | None = None
    """An operation on the resource that is sufficient, too."""


class Api(NamedTuple):
    """One served API. Each version from `lowest` to `highest` is served completely."""

    handler: str
    """A module in `handlers`."""
    lowest: int
    highest: int
    acl_checks: tuple[AclCheck, ...] = ()
    """Checked in this order before the handler runs, without the checks of fields that a version does not have."""
    is_queued: bool = False
    """Whether requests wait in a queue: the event loop decodes and handles a single one per turn. For APIs
    that thousands of clients use at the same moment, in a rebalance: each request takes up to 0.1 ms, and requests of
    other APIs are handled in between."""


SERVED: dict[ApiKey, Api] = {
    ApiKey.PRODUCE: Api(
        "produce", 0, 13, (AclCheck(WRITE, TRANSACTIONAL_ID, "transactional_id"), AclCheck(WRITE, TOPIC, "topic_data"))
    ),
    ApiKey.FETCH: Api("fetch", 0, 18),  # its handler checks the partitions of the session
    ApiKey.LIST_OFFSETS: Api("list_offsets", 0, 11, (AclCheck(DESCRIBE, TOPIC, "topics"),)),
    ApiKey.METADATA: Api("metadata", 0, 13, (AclCheck(DESCRIBE, TOPIC, "topics"),)),
    ApiKey.OFFSET_COMMIT: Api(
        "offset_commit", 0, 10, (AclCheck(READ, GROUP, "group_id"), AclCheck(READ, TOPIC, "topics"))
    ),
    ApiKey.OFFSET_FETCH: Api(
        "offset_fetch",
        0,
        10,
        (
            AclCheck(DESCRIBE, GROUP, "group_id"),
            AclCheck(DESCRIBE, TOPIC, "topics"),
            AclCheck(DESCRIBE, GROUP, "groups"),
        ),
    ),
    ApiKey.FIND_COORDINATOR: Api(
        "find_coordinator", 0, 6, (AclCheck(DESCRIBE, BY_TYPE, "key"), AclCheck(DESCRIBE, BY_TYPE, "coordinator_keys"))
    ),
    ApiKey.JOIN_GROUP: Api("join_group", 0, 9, (AclCheck(READ, GROUP, "group_id"),), is_queued=True),
    ApiKey.HEARTBEAT: Api("heartbeat", 0, 4, (AclCheck(READ, GROUP, "group_id"),), is_queued=True),
    ApiKey.LEAVE_GROUP: Api("leave_group", 0, 5, (AclCheck(READ, GROUP, "group_id"),), is_queued=True),
    ApiKey.SYNC_GROUP: Api("sync_group", 0, 5, (AclCheck(READ, GROUP, "group_id"),), is_queued=True),
    ApiKey.DESCRIBE_GROUPS: Api("describe_groups", 0, 6, (AclCheck(DESCRIBE, GROUP, "groups"),)),
    ApiKey.LIST_GROUPS: Api("list_groups", 0, 5),  # its handler omits groups without the ACL
    ApiKey.SASL_HANDSHAKE: Api("sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Api("api_versions", 0, 5),
    ApiKey.CREATE_TOPICS: Api("create_topics", 0, 7, (AclCheck(CREATE, TOPIC, "topics", or_cluster=CREATE),)),
    ApiKey.DELETE_TOPICS: Api(
        "delete_topics", 0, 6, (AclCheck(DELETE, TOPIC, "topics"), AclCheck(DELETE, TOPIC, "topic_names"))
    ),
    ApiKey.DELETE_RECORDS: Api("delete_records", 0, 2, (AclCheck(DELETE, TOPIC, "topics"),)),
    ApiKey.INIT_PRODUCER_ID: Api("init_producer_id", 0, 5, (AclCheck(WRITE, TRANSACTIONAL_ID, "transactional_id"),)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(
        "add_partitions_to_txn",
        0,
        5,
        (
            AclCheck(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
            AclCheck(CLUSTER_ACTION, CLUSTER, "transactions"),
        ),
    ),  # its handler checks the topics: none is attempted if a topic is denied
    ApiKey.ADD_OFFSETS_TO_TXN: Api(
        "add_offsets_to_txn",
        0,
        4,
        (AclCheck(WRITE, TRANSACTIONAL_ID, "transactional_id"), AclCheck(READ, GROUP, "group_id")),
    ),
    ApiKey.END_TXN: Api("end_txn", 0, 5, (AclCheck(WRITE, TRANSACTIONAL_ID, "transactional_id"),)),
    ApiKey.WRITE_TXN_MARKERS: Api("write_txn_markers", 0, 2, (AclCheck(ALTER, CLUSTER, or_operation=CLUSTER_ACTION),)),
    ApiKey.TXN_OFFSET_COMMIT: Api(
        "txn_offset_commit",
        0,
        6,
        (
            AclCheck(WRITE, TRANSACTIONAL_ID, "transactional_id"),
            AclCheck(READ, GROUP, "group_id"),
            AclCheck(READ, TOPIC, "topics"),
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(
        "offset_for_leader_epoch", 0, 4, (AclCheck(DESCRIBE, TOPIC, "topics", or_cluster=CLUSTER_ACTION),)
    ),
    ApiKey.DESCRIBE_ACLS: Api("describe_acls", 0, 3, (AclCheck(DESCRIBE, CLUSTER),)),
    ApiKey.CREATE_ACLS: Api("create_acls", 0, 3, (AclCheck(ALTER, CLUSTER),)),
    ApiKey.DELETE_ACLS: Api("delete_acls", 0, 3, (AclCheck(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_CONFIGS: Api("describe_configs", 0, 4, (AclCheck(DESCRIBE_CONFIGS, BY_TYPE, "resources"),)),
    ApiKey.ALTER_CONFIGS: Api("alter_configs", 0, 2, (AclCheck(ALTER_CONFIGS, BY_TYPE, "resources"),)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api("alter_replica_log_dirs", 0, 2, (AclCheck(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_LOG_DIRS: Api("describe_log_dirs", 0, 5, (AclCheck(DESCRIBE, CLUSTER),)),
    ApiKey.SASL_AUTHENTICATE: Api("sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Api("create_partitions", 0, 3, (AclCheck(ALTER, TOPIC, "topics"),)),
    # Their handlers check the owner of the token: no ACL is needed for a user's own tokens.
    ApiKey.CREATE_DELEGATION_TOKEN: Api("create_delegation_token", 0, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Api("renew_delegation_token", 0, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api("expire_delegation_token", 0, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api("describe_delegation_token", 0, 3),
    ApiKey.DELETE_GROUPS: Api("delete_groups", 0, 3, (AclCheck(DELETE, GROUP, "groups_names"),)),
    ApiKey.ELECT_LEADERS: Api("elect_leaders", 0, 2, (AclCheck(ALTER, CLUSTER),)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
        "incremental_alter_configs", 0, 1, (AclCheck(ALTER_CONFIGS, BY_TYPE, "resources"),)
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api("alter_partition_reassignments", 0, 1, (AclCheck(ALTER, CLUSTER),)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api("list_partition_reassignments", 0, 0, (AclCheck(DESCRIBE, CLUSTER),)),
    ApiKey.OFFSET_DELETE: Api(
        "offset_delete", 0, 0, (AclCheck(DELETE, GROUP, "group_id"), AclCheck(READ, TOPIC, "topics"))
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api("describe_client_quotas", 0, 1, (AclCheck(DESCRIBE_CONFIGS, CLUSTER),)),
    ApiKey.ALTER_CLIENT_QUOTAS: Api("alter_client_quotas", 0, 1, (AclCheck(ALTER_CONFIGS, CLUSTER),)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api(
        "describe_user_scram_credentials", 0, 0, (AclCheck(DESCRIBE, CLUSTER),)
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api("alter_user_scram_credentials", 0, 0, (AclCheck(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_CLUSTER: Api("describe_cluster", 0, 2),  # no ACL is needed for the addresses of brokers
    ApiKey.UPDATE_FEATURES: Api("update_features", 0, 2, (AclCheck(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_PRODUCERS: Api("describe_producers", 0, 0, (AclCheck(READ, TOPIC, "topics"),)),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(
        "describe_transactions", 0, 0, (AclCheck(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"),)
    ),
    ApiKey.LIST_TRANSACTIONS: Api("list_transactions", 0, 2),  # its handler checks each transactional id
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(
        "consumer_group_heartbeat",
        0,
        1,
        (AclCheck(READ, GROUP, "group_id"), AclCheck(DESCRIBE, TOPIC, "subscribed_topic_names")),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api("consumer_group_describe", 0, 1, (AclCheck(DESCRIBE, GROUP, "group_ids"),)),
    ApiKey.SHARE_FETCH: Api("share_fetch", 1, 2, (AclCheck(READ, GROUP, "group_id"),)),
    ApiKey.SHARE_ACKNOWLEDGE: Api("share_acknowledge", 1, 2, (AclCheck(READ, GROUP, "group_id"),)),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Api(
        "streams_group_heartbeat", 0, 1, (AclCheck(READ, GROUP, "group_id"),)
    ),  # its handler checks the topics of the topology
    ApiKey.STREAMS_GROUP_DESCRIBE: Api("streams_group_describe", 0, 1, (AclCheck(DESCRIBE, GROUP, "group_ids"),)),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Api(
        "streams_group_topology_description_update", 0, 0, (AclCheck(READ, GROUP, "group_id"),)
    ),
    # Between brokers; Kafka's brokers list these APIs to clients, too.
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Api(
        "initialize_share_group_state", 0, 0, (AclCheck(CLUSTER_ACTION, CLUSTER),)
    ),
    ApiKey.READ_SHARE_GROUP_STATE: Api("read_share_group_state", 0, 0, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.WRITE_SHARE_GROUP_STATE: Api("write_share_group_state", 0, 1, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.DELETE_SHARE_GROUP_STATE: Api("delete_share_group_state", 0, 0, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Api(
        "read_share_group_state_summary", 0, 1, (AclCheck(CLUSTER_ACTION, CLUSTER),)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Api("list_config_resources", 0, 1, (AclCheck(DESCRIBE_CONFIGS, CLUSTER),)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api("describe_topic_partitions", 0, 0, (AclCheck(DESCRIBE, TOPIC, "topics"),)),
    ApiKey.SHARE_GROUP_HEARTBEAT: Api(
        "share_group_heartbeat",
        1,
        1,
        (AclCheck(READ, GROUP, "group_id"), AclCheck(DESCRIBE, TOPIC, "subscribed_topic_names")),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Api("share_group_describe", 1, 1, (AclCheck(DESCRIBE, GROUP, "group_ids"),)),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api(
        "describe_share_group_offsets", 0, 1, (AclCheck(DESCRIBE, GROUP, "groups"),)
    ),  # its handler checks the topics
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Api(
        "alter_share_group_offsets", 0, 0, (AclCheck(READ, GROUP, "group_id"), AclCheck(READ, TOPIC, "topics"))
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Api(
        "delete_share_group_offsets", 0, 0, (AclCheck(DELETE, GROUP, "group_id"), AclCheck(READ, TOPIC, "topics"))
    ),
}

BETWEEN_BROKERS: dict[ApiKey, Api] = {
    ApiKey.LEADER_AND_ISR: Api("leader_and_isr", 0, 7, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.STOP_REPLICA: Api("stop_replica", 0, 4, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.UPDATE_METADATA: Api("update_metadata", 0, 8, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.CONTROLLED_SHUTDOWN: Api("controlled_shutdown", 0, 3, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.ALTER_PARTITION: Api("alter_partition", 0, 3, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.ALLOCATE_PRODUCER_IDS: Api("allocate_producer_ids", 0, 0, (AclCheck(CLUSTER_ACTION, CLUSTER),)),
}
"""Requests between the brokers of a cluster. A single broker does not serve them."""

TELEMETRY: dict[ApiKey, Api] = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api("get_telemetry_subscriptions", 0, 0),
    ApiKey.PUSH_TELEMETRY: Api("push_telemetry", 0, 0),
}
"""Metrics of clients (KIP-714): served only if the broker exports them, as in Kafka."""

FORWARDED: dict[ApiKey, Api] = {
    **{
        key: SERVED[key]._replace(handler="forward", lowest=lowest, acl_checks=())
        for key, lowest in {
            # The lowest versions of Kafka 4, whose controllers refuse older requests (KIP-896).
            ApiKey.CREATE_TOPICS: 2,
            ApiKey.DELETE_TOPICS: 1,
            ApiKey.CREATE_ACLS: 1,
            ApiKey.DELETE_ACLS: 1,
            ApiKey.CREATE_PARTITIONS: 0,
            ApiKey.ELECT_LEADERS: 0,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
            ApiKey.ALTER_CLIENT_QUOTAS: 0,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
            ApiKey.UPDATE_FEATURES: 0,
        }.items()
    },
    ApiKey.ALTER_CONFIGS: Api("forward_alter_configs", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api("forward_alter_configs", 0, 1),
    ApiKey.CREATE_DELEGATION_TOKEN: Api("forward_delegation_token", 1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Api("forward_delegation_token", 1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api("forward_delegation_token", 1, 2),
    ApiKey.DESCRIBE_QUORUM: Api("forward", 0, 2),
    ApiKey.UNREGISTER_BROKER: Api("forward", 0, 0),
    ApiKey.ADD_RAFT_VOTER: Api("forward", 0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Api("forward", 0, 0),
    ApiKey.UNREGISTER_CONTROLLER: Api("forward", 0, 0),
}
"""Requests that a broker of a KRaft cluster forwards to the controller, which checks the client's ACLs (KIP-590)."""

SERVED_IN_CLUSTERS = SERVED | BETWEEN_BROKERS
SERVED_IN_KRAFT = (
    SERVED
    | FORWARDED
    | {
        # Without the versions for offsets in ZooKeeper.
        ApiKey.OFFSET_COMMIT: SERVED[ApiKey.OFFSET_COMMIT]._replace(lowest=2),
        ApiKey.OFFSET_FETCH: SERVED[ApiKey.OFFSET_FETCH]._replace(lowest=1),
    }
)
ALL = SERVED_IN_CLUSTERS | TELEMETRY

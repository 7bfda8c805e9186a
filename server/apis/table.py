"""The table of APIs: what is served in which versions, by which handler, and what a client must be allowed to do.

An API is added by a message file, a handler file and a line here. ApiVersions answers from this table.
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
"""The request says itself of what type its resources are."""


class Right(NamedTuple):
    """An operation on what a request touches."""

    operation: AclOperation
    resource_type: AclResourceType | None
    field: str = ""
    """The request's field that names one resource, or a list whose items do; empty for the cluster."""
    or_cluster: AclOperation | None = None
    """Who may do this to the cluster may do it to any."""
    or_operation: AclOperation | None = None
    """Whoever may do this to it may do the other, too."""


class Api(NamedTuple):
    """One API as it is served. Every version from `lowest` to `highest` works in full."""

    handler: str
    """A module in `handlers`."""
    lowest: int
    highest: int
    rights: tuple[Right, ...] = ()
    """Checked in this order before the handler runs; fields that a version does not have are passed over."""
    in_turn: bool = False
    """What thousands of clients ask for at the same moment, each with up to a tenth of a millisecond's work: one of
    these in each turn of the loop, decoding included, and everybody else is served in between."""


SERVED: dict[ApiKey, Api] = {
    ApiKey.PRODUCE: Api(
        "produce", 0, 13, (Right(WRITE, TRANSACTIONAL_ID, "transactional_id"), Right(WRITE, TOPIC, "topic_data"))
    ),
    ApiKey.FETCH: Api("fetch", 0, 18),  # its handler asks, for all that the session is about
    ApiKey.LIST_OFFSETS: Api("list_offsets", 0, 11, (Right(DESCRIBE, TOPIC, "topics"),)),
    ApiKey.METADATA: Api("metadata", 0, 13, (Right(DESCRIBE, TOPIC, "topics"),)),
    ApiKey.OFFSET_COMMIT: Api("offset_commit", 0, 10, (Right(READ, GROUP, "group_id"), Right(READ, TOPIC, "topics"))),
    ApiKey.OFFSET_FETCH: Api(
        "offset_fetch",
        0,
        10,
        (Right(DESCRIBE, GROUP, "group_id"), Right(DESCRIBE, TOPIC, "topics"), Right(DESCRIBE, GROUP, "groups")),
    ),
    ApiKey.FIND_COORDINATOR: Api(
        "find_coordinator", 0, 6, (Right(DESCRIBE, BY_TYPE, "key"), Right(DESCRIBE, BY_TYPE, "coordinator_keys"))
    ),
    ApiKey.JOIN_GROUP: Api("join_group", 0, 9, (Right(READ, GROUP, "group_id"),), in_turn=True),
    ApiKey.HEARTBEAT: Api("heartbeat", 0, 4, (Right(READ, GROUP, "group_id"),), in_turn=True),
    ApiKey.LEAVE_GROUP: Api("leave_group", 0, 5, (Right(READ, GROUP, "group_id"),), in_turn=True),
    ApiKey.SYNC_GROUP: Api("sync_group", 0, 5, (Right(READ, GROUP, "group_id"),), in_turn=True),
    ApiKey.DESCRIBE_GROUPS: Api("describe_groups", 0, 6, (Right(DESCRIBE, GROUP, "groups"),)),
    ApiKey.LIST_GROUPS: Api("list_groups", 0, 5),  # its handler leaves out what may not be seen
    ApiKey.SASL_HANDSHAKE: Api("sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Api("api_versions", 0, 4),
    ApiKey.CREATE_TOPICS: Api("create_topics", 0, 7, (Right(CREATE, TOPIC, "topics", or_cluster=CREATE),)),
    ApiKey.DELETE_TOPICS: Api(
        "delete_topics", 0, 6, (Right(DELETE, TOPIC, "topics"), Right(DELETE, TOPIC, "topic_names"))
    ),
    ApiKey.DELETE_RECORDS: Api("delete_records", 0, 2, (Right(DELETE, TOPIC, "topics"),)),
    ApiKey.INIT_PRODUCER_ID: Api("init_producer_id", 0, 5, (Right(WRITE, TRANSACTIONAL_ID, "transactional_id"),)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(
        "add_partitions_to_txn",
        0,
        5,
        (
            Right(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
            Right(CLUSTER_ACTION, CLUSTER, "transactions"),
        ),
    ),  # its handler asks for the topics: where one is refused, the others are not attempted
    ApiKey.ADD_OFFSETS_TO_TXN: Api(
        "add_offsets_to_txn", 0, 4, (Right(WRITE, TRANSACTIONAL_ID, "transactional_id"), Right(READ, GROUP, "group_id"))
    ),
    ApiKey.END_TXN: Api("end_txn", 0, 5, (Right(WRITE, TRANSACTIONAL_ID, "transactional_id"),)),
    ApiKey.WRITE_TXN_MARKERS: Api("write_txn_markers", 0, 1, (Right(ALTER, CLUSTER, or_operation=CLUSTER_ACTION),)),
    ApiKey.TXN_OFFSET_COMMIT: Api(
        "txn_offset_commit",
        0,
        5,
        (
            Right(WRITE, TRANSACTIONAL_ID, "transactional_id"),
            Right(READ, GROUP, "group_id"),
            Right(READ, TOPIC, "topics"),
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(
        "offset_for_leader_epoch", 0, 4, (Right(DESCRIBE, TOPIC, "topics", or_cluster=CLUSTER_ACTION),)
    ),
    ApiKey.DESCRIBE_ACLS: Api("describe_acls", 0, 3, (Right(DESCRIBE, CLUSTER),)),
    ApiKey.CREATE_ACLS: Api("create_acls", 0, 3, (Right(ALTER, CLUSTER),)),
    ApiKey.DELETE_ACLS: Api("delete_acls", 0, 3, (Right(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_CONFIGS: Api("describe_configs", 0, 4, (Right(DESCRIBE_CONFIGS, BY_TYPE, "resources"),)),
    ApiKey.ALTER_CONFIGS: Api("alter_configs", 0, 2, (Right(ALTER_CONFIGS, BY_TYPE, "resources"),)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api("alter_replica_log_dirs", 0, 2, (Right(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_LOG_DIRS: Api("describe_log_dirs", 0, 5, (Right(DESCRIBE, CLUSTER),)),
    ApiKey.SASL_AUTHENTICATE: Api("sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Api("create_partitions", 0, 3, (Right(ALTER, TOPIC, "topics"),)),
    # Who may ask of which token their handlers know: a user's own tokens need no right.
    ApiKey.CREATE_DELEGATION_TOKEN: Api("create_delegation_token", 0, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Api("renew_delegation_token", 0, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api("expire_delegation_token", 0, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api("describe_delegation_token", 0, 3),
    ApiKey.DELETE_GROUPS: Api("delete_groups", 0, 2, (Right(DELETE, GROUP, "groups_names"),)),
    ApiKey.ELECT_LEADERS: Api("elect_leaders", 0, 2, (Right(ALTER, CLUSTER),)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
        "incremental_alter_configs", 0, 1, (Right(ALTER_CONFIGS, BY_TYPE, "resources"),)
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api("alter_partition_reassignments", 0, 1, (Right(ALTER, CLUSTER),)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api("list_partition_reassignments", 0, 0, (Right(DESCRIBE, CLUSTER),)),
    ApiKey.OFFSET_DELETE: Api("offset_delete", 0, 0, (Right(DELETE, GROUP, "group_id"), Right(READ, TOPIC, "topics"))),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api("describe_client_quotas", 0, 1, (Right(DESCRIBE_CONFIGS, CLUSTER),)),
    ApiKey.ALTER_CLIENT_QUOTAS: Api("alter_client_quotas", 0, 1, (Right(ALTER_CONFIGS, CLUSTER),)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api("describe_user_scram_credentials", 0, 0, (Right(DESCRIBE, CLUSTER),)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api("alter_user_scram_credentials", 0, 0, (Right(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_CLUSTER: Api("describe_cluster", 0, 2),  # who is connected may know where else to connect
    ApiKey.UPDATE_FEATURES: Api("update_features", 0, 2, (Right(ALTER, CLUSTER),)),
    ApiKey.DESCRIBE_PRODUCERS: Api("describe_producers", 0, 0, (Right(READ, TOPIC, "topics"),)),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(
        "describe_transactions", 0, 0, (Right(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"),)
    ),
    ApiKey.LIST_TRANSACTIONS: Api("list_transactions", 0, 2),  # its handler asks, for each that it would tell of
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(
        "consumer_group_heartbeat",
        0,
        1,
        (Right(READ, GROUP, "group_id"), Right(DESCRIBE, TOPIC, "subscribed_topic_names")),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api("consumer_group_describe", 0, 1, (Right(DESCRIBE, GROUP, "group_ids"),)),
    ApiKey.LIST_CONFIG_RESOURCES: Api("list_config_resources", 0, 1, (Right(DESCRIBE_CONFIGS, CLUSTER),)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api("describe_topic_partitions", 0, 0, (Right(DESCRIBE, TOPIC, "topics"),)),
}

BETWEEN_BROKERS: dict[ApiKey, Api] = {
    ApiKey.LEADER_AND_ISR: Api("leader_and_isr", 0, 7, (Right(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.STOP_REPLICA: Api("stop_replica", 0, 4, (Right(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.UPDATE_METADATA: Api("update_metadata", 0, 8, (Right(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.CONTROLLED_SHUTDOWN: Api("controlled_shutdown", 0, 3, (Right(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.ALTER_PARTITION: Api("alter_partition", 0, 3, (Right(CLUSTER_ACTION, CLUSTER),)),
    ApiKey.ALLOCATE_PRODUCER_IDS: Api("allocate_producer_ids", 0, 0, (Right(CLUSTER_ACTION, CLUSTER),)),
}
"""What the brokers of a cluster ask of each other; a broker alone does not serve it."""

TELEMETRY: dict[ApiKey, Api] = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api("get_telemetry_subscriptions", 0, 0),
    ApiKey.PUSH_TELEMETRY: Api("push_telemetry", 0, 0),
}
"""Metrics of clients; served only where somebody can read them, as Kafka does."""

SERVED_IN_CLUSTERS = SERVED | BETWEEN_BROKERS
ALL = SERVED_IN_CLUSTERS | TELEMETRY

"""Every metric as data: its name, its description, and Kafka's MBean.

Names and labels are the result of the rules for Kafka of Prometheus' JMX exporter for the MBeans. The names of group
metrics are kafka_exporter's, since Kafka's broker does not have them. Metrics of Barnabas only begin with `barnabas_`.
"""

from __future__ import annotations

from typing import NamedTuple

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


class Metric(NamedTuple):
    """One metric family."""

    kind: str
    """Prometheus' type: counter (its samples end in `_total`), gauge, summary."""
    source: str
    """The MBean and its attribute, or the project with this name."""
    says: str


def _server(name: str, attribute: str, kind: str = "BrokerTopicMetrics") -> str:
    return f"kafka.server:type={kind},name={name} {attribute}"


_COUNT, _VALUE = "Count", "Value"
_TOPIC = "kafka_server_brokertopicmetrics"
_REQUEST = "kafka_network_requestmetrics"
_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
_LOG = "kafka_log_log"
_COORDINATOR = "kafka_server_group_coordinator_metrics"
_SHARE = "kafka_server_share_coordinator_metrics"
_SHARE_GROUPS = "kafka_server_sharegroupmetrics"
_SHARE_PARTITIONS = "kafka_server_sharepartitionmetrics"

METRICS: dict[str, Metric] = {
    f"{_TOPIC}_messagesin": Metric("counter", _server("MessagesInPerSec", _COUNT), "records received from producers"),
    f"{_TOPIC}_bytesin": Metric(
        "counter", _server("BytesInPerSec", _COUNT), "bytes of batches received from producers"
    ),
    f"{_TOPIC}_bytesout": Metric("counter", _server("BytesOutPerSec", _COUNT), "bytes of batches sent to consumers"),
    f"{_TOPIC}_totalproducerequests": Metric(
        "counter", _server("TotalProduceRequestsPerSec", _COUNT), "Produce requests"
    ),
    f"{_TOPIC}_totalfetchrequests": Metric("counter", _server("TotalFetchRequestsPerSec", _COUNT), "Fetch requests"),
    f"{_REQUEST}_requests": Metric(
        "counter", "kafka.network:type=RequestMetrics,name=RequestsPerSec Count", "requests, by API and version"
    ),
    f"{_REQUEST}_totaltimems": Metric(
        "summary",
        "kafka.network:type=RequestMetrics,name=TotalTimeMs",
        "time from the start of the handler to the sent response",
    ),
    f"{_REQUEST}_localtimems": Metric(
        "summary", "kafka.network:type=RequestMetrics,name=LocalTimeMs", "time in the handler"
    ),
    f"{_REQUEST}_remotetimems": Metric(
        "summary", "kafka.network:type=RequestMetrics,name=RemoteTimeMs", "waiting time: for records, the disk, members"
    ),
    f"{_REQUEST}_responsesendtimems": Metric(
        "summary",
        "kafka.network:type=RequestMetrics,name=ResponseSendTimeMs",
        "time to encode and send the response",
    ),
    f"{_REQUEST}_errors": Metric(
        "counter",
        "kafka.network:type=RequestMetrics,name=ErrorsPerSec Count",
        "errors in responses, by API and error; a response may have one per partition",
    ),
    "kafka_server_socket_server_metrics_failed_authentication": Metric(
        "counter",
        "kafka.server:type=socket-server-metrics failed-authentication-total",
        "failed authentications and TLS handshakes, by listener",
    ),
    "kafka_server_socket_server_metrics_connection_count": Metric(
        "gauge", "kafka.server:type=socket-server-metrics connection-count", "open connections, by listener"
    ),
    "kafka_server_delayedoperationpurgatory_purgatorysize": Metric(
        "gauge",
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize Value",
        "requests that wait in a purgatory, by delayed operation",
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": Metric(
        "gauge", "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions Value", "fetch sessions"
    ),
    f"{_REPLICAS}_partitioncount": Metric(
        "gauge", _server("PartitionCount", _VALUE, "ReplicaManager"), "replicas on this broker"
    ),
    f"{_REPLICAS}_leadercount": Metric(
        "gauge", _server("LeaderCount", _VALUE, "ReplicaManager"), "partitions led by this broker"
    ),
    f"{_REPLICAS}_underreplicatedpartitions": Metric(
        "gauge",
        _server("UnderReplicatedPartitions", _VALUE, "ReplicaManager"),
        "partitions led by this broker with a replica that is not in sync",
    ),
    f"{_REPLICAS}_underminisrpartitioncount": Metric(
        "gauge",
        _server("UnderMinIsrPartitionCount", _VALUE, "ReplicaManager"),
        "partitions led by this broker with fewer in-sync replicas than min.insync.replicas",
    ),
    f"{_REPLICAS}_offlinereplicacount": Metric(
        "gauge", _server("OfflineReplicaCount", _VALUE, "ReplicaManager"), "replicas in failed log directories"
    ),
    f"{_CONTROLLER}_activecontrollercount": Metric(
        "gauge",
        "kafka.controller:type=KafkaController,name=ActiveControllerCount Value",
        "1 if this broker is the controller",
    ),
    f"{_CONTROLLER}_globaltopiccount": Metric(
        "gauge", "kafka.controller:type=KafkaController,name=GlobalTopicCount Value", "topics of the cluster"
    ),
    f"{_CONTROLLER}_globalpartitioncount": Metric(
        "gauge", "kafka.controller:type=KafkaController,name=GlobalPartitionCount Value", "partitions of the cluster"
    ),
    f"{_CONTROLLER}_offlinepartitionscount": Metric(
        "gauge",
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount Value",
        "partitions without a leader",
    ),
    f"{_LOG}_size": Metric("gauge", "kafka.log:type=Log,name=Size Value", "bytes of a log"),
    f"{_LOG}_logstartoffset": Metric("gauge", "kafka.log:type=Log,name=LogStartOffset Value", "log start offset"),
    f"{_LOG}_logendoffset": Metric("gauge", "kafka.log:type=Log,name=LogEndOffset Value", "log end offset"),
    f"{_LOG}_numlogsegments": Metric("gauge", "kafka.log:type=Log,name=NumLogSegments Value", "segments of a log"),
    f"{_REPLICAS}_partitionswithlatetransactionscount": Metric(
        "gauge",
        _server("PartitionsWithLateTransactionsCount", _VALUE, "ReplicaManager"),
        "partitions led by this broker whose oldest open transaction has had no record for longer than "
        "transaction.max.timeout.ms and five minutes",
    ),
    "kafka_log_logmanager_offlinelogdirectorycount": Metric(
        "gauge", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount Value", "failed log directories"
    ),
    "kafka_log_logflushstats_logflushrateandtimems": Metric(
        "summary", "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", "time of a flush to disk"
    ),
    "kafka_log_logcleaner_cleaner_recopy_percent": Metric(
        "gauge",
        "kafka.log:type=LogCleaner,name=cleaner-recopy-percent Value",
        "percentage of the read bytes that the cleaner wrote back",
    ),
    "kafka_log_logcleaner_max_buffer_utilization_percent": Metric(
        "gauge",
        "kafka.log:type=LogCleaner,name=max-buffer-utilization-percent Value",
        "utilization of the cleaner's offset map in the last pass, in percent",
    ),
    "kafka_log_logcleaner_max_clean_time_secs": Metric(
        "gauge",
        "kafka.log:type=LogCleaner,name=max-clean-time-secs Value",
        "duration of the longest of the last passes of the cleaner threads",
    ),
    "kafka_log_logcleaner_max_compaction_delay_secs": Metric(
        "gauge",
        "kafka.log:type=LogCleaner,name=max-compaction-delay-secs Value",
        "delay of the cleaner beyond max.compaction.lag.ms",
    ),
    "kafka_log_logcleaner_deadthreadcount": Metric(
        "gauge", "kafka.log:type=LogCleaner,name=DeadThreadCount Value", "1 if the cleaner has ended unexpectedly"
    ),
    "kafka_log_logcleanermanager_max_dirty_percent": Metric(
        "gauge", "kafka.log:type=LogCleanerManager,name=max-dirty-percent Value", "dirty percentage of the dirtiest log"
    ),
    "kafka_log_logcleanermanager_time_since_last_run_ms": Metric(
        "gauge",
        "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms Value",
        "time since the cleaner last searched for dirty logs",
    ),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": Metric(
        "gauge",
        "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count Value",
        "logs that the cleaner skips after an error",
    ),
    "kafka_log_logcleanermanager_uncleanable_bytes": Metric(
        "gauge", "kafka.log:type=LogCleanerManager,name=uncleanable-bytes Value", "bytes of the skipped logs"
    ),
    f"{_GROUPS}_numgroups": Metric(
        "gauge", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups Value", "groups of this coordinator"
    ),
    f"{_GROUPS}_numoffsets": Metric(
        "gauge",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets Value",
        "committed offsets of these groups",
    ),
    f"{_COORDINATOR}_group_count": Metric(
        "gauge",
        "kafka.server:type=group-coordinator-metrics group-count",
        "groups of this coordinator, by protocol",
    ),
    f"{_COORDINATOR}_share_group_count": Metric(
        "gauge",
        "kafka.server:type=group-coordinator-metrics share-group-count",
        "share groups of this coordinator, by state",
    ),
    f"{_COORDINATOR}_share_group_rebalance_count": Metric(
        "counter",
        "kafka.server:type=group-coordinator-metrics share-group-rebalance-count",
        "increments of the epochs of share groups by heartbeats",
    ),
    f"{_SHARE}_write": Metric(
        "counter", "kafka.server:type=share-coordinator-metrics write-total", "writes of the state of a share-partition"
    ),
    f"{_SHARE}_write_latency_avg": Metric(
        "gauge",
        "kafka.server:type=share-coordinator-metrics write-latency-avg",
        "average duration in milliseconds of the last 1000 write requests, with the commit",
    ),
    f"{_SHARE}_write_latency_max": Metric(
        "gauge",
        "kafka.server:type=share-coordinator-metrics write-latency-max",
        "longest duration in milliseconds of the last 1000 write requests",
    ),
    f"{_SHARE}_last_pruned_offset": Metric(
        "gauge",
        "kafka.server:type=share-coordinator-metrics last-pruned-offset",
        "offset of `__share_group_state` before which redundant records were deleted",
    ),
    f"{_SHARE}_num_partitions": Metric(
        "gauge",
        "kafka.server:type=share-coordinator-metrics num-partitions",
        "partitions of `__share_group_state` that this broker leads, by state",
    ),
    "kafka_consumergroup_members": Metric("gauge", "kafka_exporter", "members of a group"),
    "kafka_consumergroup_current_offset": Metric("gauge", "kafka_exporter", "committed offset of a group"),
    "kafka_consumergroup_lag": Metric(
        "gauge", "kafka_exporter", "lag of a group in offsets, for replicas on this broker"
    ),
    "kafka_consumergroup_lag_sum": Metric(
        "gauge", "kafka_exporter", "lag of a group in a topic, if all its partitions are on this broker"
    ),
    "kafka_server_sharesessioncache_sharesessionscount": Metric(
        "gauge", "kafka.server:type=ShareSessionCache,name=ShareSessionsCount Value", "share sessions"
    ),
    "kafka_server_sharesessioncache_sharepartitionscount": Metric(
        "gauge",
        "kafka.server:type=ShareSessionCache,name=SharePartitionsCount Value",
        "partitions of all share sessions",
    ),
    "kafka_server_sharesessioncache_sharesessionevictions": Metric(
        "counter",
        "kafka.server:type=ShareSessionCache,name=ShareSessionEvictionsPerSec Count",
        "share sessions that ended with their connection or were evicted",
    ),
    f"{_TOPIC}_totalsharefetchrequests": Metric(
        "counter", _server("TotalShareFetchRequestsPerSec", _COUNT), "share fetches"
    ),
    f"{_TOPIC}_failedsharefetchrequests": Metric(
        "counter",
        _server("FailedShareFetchRequestsPerSec", _COUNT),
        "share fetches with an error in at least one partition",
    ),
    f"{_TOPIC}_totalshareacknowledgementrequests": Metric(
        "counter",
        _server("TotalShareAcknowledgementRequestsPerSec", _COUNT),
        "requests that acknowledge records of share groups",
    ),
    f"{_TOPIC}_failedshareacknowledgementrequests": Metric(
        "counter",
        _server("FailedShareAcknowledgementRequestsPerSec", _COUNT),
        "requests that acknowledge records, with an error in at least one partition",
    ),
    f"{_SHARE_GROUPS}_recordacknowledgements": Metric(
        "counter",
        _server("RecordAcknowledgementsPerSec", _COUNT, "ShareGroupMetrics"),
        "records acknowledged by members of share groups, by type",
    ),
    f"{_SHARE_GROUPS}_partitionloadtimems": Metric(
        "summary",
        "kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs",
        "time to read the state of a share-partition",
    ),
    f"{_SHARE_GROUPS}_topicpartitionsacquiretimems": Metric(
        "summary",
        "kafka.server:type=ShareGroupMetrics,name=TopicPartitionsAcquireTimeMs",
        "time of a share fetch until its partitions are selected, the wait for records included, by group",
    ),
    f"{_SHARE_GROUPS}_topicpartitionsfetchratio": Metric(
        "summary",
        "kafka.server:type=ShareGroupMetrics,name=TopicPartitionsFetchRatio",
        "per cent of the partitions of a share fetch that had acquirable records, by group",
    ),
    "kafka_server_delayedsharefetchmetrics_expires": Metric(
        "counter",
        _server("ExpiresPerSec", _COUNT, "DelayedShareFetchMetrics"),
        "share fetches whose wait for records has expired",
    ),
    f"{_SHARE_PARTITIONS}_inflightbatchmessagecount": Metric(
        "summary",
        "kafka.server:type=SharePartitionMetrics,name=InFlightBatchMessageCount",
        "number of records of a batch at its first acquisition",
    ),
    f"{_SHARE_GROUPS}_deadletterqueuerecordcount": Metric(
        "counter",
        _server("DeadLetterQueueRecordCount", _COUNT, "ShareGroupMetrics"),
        "records written to a dead-letter queue, by group",
    ),
    f"{_SHARE_GROUPS}_deadletterqueuetotalproducerequests": Metric(
        "counter",
        _server("DeadLetterQueueTotalProduceRequestsPerSec", _COUNT, "ShareGroupMetrics"),
        "attempts to write to a dead-letter queue, by group",
    ),
    f"{_SHARE_GROUPS}_deadletterqueuefailedproducerequests": Metric(
        "counter",
        _server("DeadLetterQueueFailedProduceRequestsPerSec", _COUNT, "ShareGroupMetrics"),
        "failed attempts to write to a dead-letter queue, by group",
    ),
    f"{_SHARE_PARTITIONS}_inflightmessagecount": Metric(
        "gauge",
        _server("InFlightMessageCount", _VALUE, "SharePartitionMetrics"),
        "offsets in flight of a share-partition",
    ),
    f"{_SHARE_PARTITIONS}_inflightbatchcount": Metric(
        "gauge",
        _server("InFlightBatchCount", _VALUE, "SharePartitionMetrics"),
        "batches in flight of a share-partition",
    ),
    f"{_SHARE_PARTITIONS}_acquisitionlocktimeout": Metric(
        "counter",
        _server("AcquisitionLockTimeoutPerSec", _COUNT, "SharePartitionMetrics"),
        "records whose acquisition locks have expired",
    ),
    "barnabas_share_group_lag": Metric(
        "gauge",
        "Barnabas",
        "lag of a share group in offsets, for share-partitions whose coordinator and a replica are on this broker",
    ),
    "barnabas_share_acquired_records": Metric("counter", "Barnabas", "records that members of share groups acquired"),
    "barnabas_share_redelivered_records": Metric(
        "counter", "Barnabas", "records that members of share groups acquired after an earlier delivery"
    ),
    "barnabas_log_directory_free_bytes": Metric(
        "gauge", "Barnabas", "free bytes of the disk of a log directory, or of the directory of the metadata store"
    ),
    "barnabas_log_directory_total_bytes": Metric(
        "gauge", "Barnabas", "size in bytes of the disk of a log directory, or of the directory of the metadata store"
    ),
    "barnabas_log_directory_full": Metric(
        "gauge", "Barnabas", "1 if writes to a log directory fail for lack of space, otherwise 0"
    ),
    "barnabas_certificate_expiry_seconds": Metric(
        "gauge", "Barnabas", "seconds until the certificate of a listener expires, negative after that"
    ),
    "barnabas_failed_authentications": Metric(
        "counter", "Barnabas", "failed authentications by listener and SASL mechanism; TLS for handshakes"
    ),
    "barnabas_oldest_open_transaction_seconds": Metric(
        "gauge", "Barnabas", "age of the oldest open transaction that this broker coordinates, 0 without one"
    ),
    "barnabas_throttled_requests": Metric(
        "counter", "Barnabas", "requests and connections that were throttled, by the type of the quota"
    ),
    "barnabas_throttle_time_seconds": Metric(
        "counter", "Barnabas", "sum of the throttle times of requests and connections, by the type of the quota"
    ),
    "barnabas_loop_lag_seconds": Metric("summary", "Barnabas", "delay of scheduled callbacks of the event loop"),
    "barnabas_protocol_errors": Metric("counter", "Barnabas", "connections closed because of invalid bytes"),
    "barnabas_failed_requests": Metric("counter", "Barnabas", "requests that failed with an unexpected exception"),
    "barnabas_info": Metric(
        "gauge", "Barnabas", "constant 1; the labels have the version, the broker id and the cluster id"
    ),
}

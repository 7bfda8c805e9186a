"""Every metric as data: its name, what it is, and the MBean behind it in Kafka.

Names and labels are those that the rules for Kafka of Prometheus' JMX exporter make of the MBeans; those of groups are
kafka_exporter's, as Kafka's broker does not know them. What is ours alone begins with `barnabas_`.
"""

from __future__ import annotations

from typing import NamedTuple

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


class Metric(NamedTuple):
    """One family."""

    kind: str
    """Prometheus' type: counter (its samples end in `_total`), gauge, summary."""
    source: str
    """The MBean and its attribute, or whose the name is."""
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

METRICS: dict[str, Metric] = {
    f"{_TOPIC}_messagesin": Metric("counter", _server("MessagesInPerSec", _COUNT), "records of producers"),
    f"{_TOPIC}_bytesin": Metric("counter", _server("BytesInPerSec", _COUNT), "bytes of batches of producers"),
    f"{_TOPIC}_bytesout": Metric("counter", _server("BytesOutPerSec", _COUNT), "bytes of batches sent to readers"),
    f"{_TOPIC}_totalproducerequests": Metric(
        "counter", _server("TotalProduceRequestsPerSec", _COUNT), "Produce requests"
    ),
    f"{_TOPIC}_totalfetchrequests": Metric("counter", _server("TotalFetchRequestsPerSec", _COUNT), "Fetch requests"),
    f"{_REQUEST}_requests": Metric(
        "counter", "kafka.network:type=RequestMetrics,name=RequestsPerSec Count", "requests, by API and version"
    ),
    f"{_REQUEST}_totaltimems": Metric(
        "summary", "kafka.network:type=RequestMetrics,name=TotalTimeMs", "from the handler's begin to the answer sent"
    ),
    f"{_REQUEST}_localtimems": Metric(
        "summary", "kafka.network:type=RequestMetrics,name=LocalTimeMs", "in the handler"
    ),
    f"{_REQUEST}_remotetimems": Metric(
        "summary", "kafka.network:type=RequestMetrics,name=RemoteTimeMs", "waiting: for records, the disk, members"
    ),
    f"{_REQUEST}_responsesendtimems": Metric(
        "summary",
        "kafka.network:type=RequestMetrics,name=ResponseSendTimeMs",
        "encoding the answer and handing it over",
    ),
    "kafka_server_socket_server_metrics_connection_count": Metric(
        "gauge", "kafka.server:type=socket-server-metrics connection-count", "open connections, by listener"
    ),
    "kafka_server_delayedoperationpurgatory_purgatorysize": Metric(
        "gauge",
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize Value",
        "requests that wait, by what they want",
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": Metric(
        "gauge", "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions Value", "fetch sessions"
    ),
    f"{_REPLICAS}_partitioncount": Metric(
        "gauge", _server("PartitionCount", _VALUE, "ReplicaManager"), "replicas here"
    ),
    f"{_REPLICAS}_leadercount": Metric("gauge", _server("LeaderCount", _VALUE, "ReplicaManager"), "of them led here"),
    f"{_REPLICAS}_underreplicatedpartitions": Metric(
        "gauge",
        _server("UnderReplicatedPartitions", _VALUE, "ReplicaManager"),
        "led here, and a replica is not in sync",
    ),
    f"{_REPLICAS}_underminisrpartitioncount": Metric(
        "gauge", _server("UnderMinIsrPartitionCount", _VALUE, "ReplicaManager"), "led here with too few in sync"
    ),
    f"{_REPLICAS}_offlinereplicacount": Metric(
        "gauge", _server("OfflineReplicaCount", _VALUE, "ReplicaManager"), "here, in a directory that has failed"
    ),
    f"{_CONTROLLER}_activecontrollercount": Metric(
        "gauge", "kafka.controller:type=KafkaController,name=ActiveControllerCount Value", "1 if this is the controller"
    ),
    f"{_CONTROLLER}_globaltopiccount": Metric(
        "gauge", "kafka.controller:type=KafkaController,name=GlobalTopicCount Value", "topics of the cluster"
    ),
    f"{_CONTROLLER}_globalpartitioncount": Metric(
        "gauge", "kafka.controller:type=KafkaController,name=GlobalPartitionCount Value", "partitions of the cluster"
    ),
    f"{_CONTROLLER}_offlinepartitionscount": Metric(
        "gauge", "kafka.controller:type=KafkaController,name=OfflinePartitionsCount Value", "without a leader"
    ),
    f"{_LOG}_size": Metric("gauge", "kafka.log:type=Log,name=Size Value", "bytes of a log"),
    f"{_LOG}_logstartoffset": Metric("gauge", "kafka.log:type=Log,name=LogStartOffset Value", "its first offset"),
    f"{_LOG}_logendoffset": Metric("gauge", "kafka.log:type=Log,name=LogEndOffset Value", "its next offset"),
    f"{_LOG}_numlogsegments": Metric("gauge", "kafka.log:type=Log,name=NumLogSegments Value", "its segments"),
    "kafka_log_logmanager_offlinelogdirectorycount": Metric(
        "gauge", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount Value", "directories that have failed"
    ),
    "kafka_log_logflushstats_logflushrateandtimems": Metric(
        "summary", "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", "group flushes to the disk"
    ),
    "kafka_log_logcleaner_cleaner_recopy_percent": Metric(
        "gauge", "kafka.log:type=LogCleaner,name=cleaner-recopy-percent Value", "of what it read the cleaner wrote back"
    ),
    "kafka_log_logcleaner_max_buffer_utilization_percent": Metric(
        "gauge", "kafka.log:type=LogCleaner,name=max-buffer-utilization-percent Value", "how full its map was"
    ),
    "kafka_log_logcleaner_max_clean_time_secs": Metric(
        "gauge", "kafka.log:type=LogCleaner,name=max-clean-time-secs Value", "its longest last pass"
    ),
    "kafka_log_logcleaner_max_compaction_delay_secs": Metric(
        "gauge", "kafka.log:type=LogCleaner,name=max-compaction-delay-secs Value", "by how much it was late"
    ),
    "kafka_log_logcleaner_deadthreadcount": Metric(
        "gauge", "kafka.log:type=LogCleaner,name=DeadThreadCount Value", "1 if it has ended and should not have"
    ),
    "kafka_log_logcleanermanager_max_dirty_percent": Metric(
        "gauge", "kafka.log:type=LogCleanerManager,name=max-dirty-percent Value", "dirt of the dirtiest log"
    ),
    "kafka_log_logcleanermanager_time_since_last_run_ms": Metric(
        "gauge", "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms Value", "since it last looked for dirt"
    ),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": Metric(
        "gauge", "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count Value", "logs it leaves alone"
    ),
    "kafka_log_logcleanermanager_uncleanable_bytes": Metric(
        "gauge", "kafka.log:type=LogCleanerManager,name=uncleanable-bytes Value", "bytes of those"
    ),
    f"{_GROUPS}_numgroups": Metric(
        "gauge", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups Value", "groups coordinated here"
    ),
    f"{_GROUPS}_numoffsets": Metric(
        "gauge", "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets Value", "offsets they committed"
    ),
    "kafka_consumergroup_members": Metric("gauge", "kafka_exporter", "members of a group"),
    "kafka_consumergroup_current_offset": Metric("gauge", "kafka_exporter", "what a group has committed"),
    "kafka_consumergroup_lag": Metric("gauge", "kafka_exporter", "how many offsets it has before it, of replicas here"),
    "kafka_consumergroup_lag_sum": Metric("gauge", "kafka_exporter", "the same in a whole topic, if all of it is here"),
    "barnabas_loop_lag_seconds": Metric("summary", "ours", "how late the event loop comes to what is due"),
    "barnabas_protocol_errors": Metric("counter", "ours", "connections closed because of bytes that are no request"),
    "barnabas_failed_requests": Metric("counter", "ours", "requests that failed inside the broker"),
    "barnabas_info": Metric("gauge", "ours", "1; labels tell version, broker and cluster"),
}

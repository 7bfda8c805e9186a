"""All metrics of a broker, read in slices from the state of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ... import __version__
from ..cleaning.cleaner_status import CleanerStatus
from ..coordinator.group.group import GroupType
from ..coordinator.group.share.share_group import ShareGroup, ShareGroupState
from ..coordinator.transaction.transaction_metadata import TransactionState
from ..metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from ..quotas.request_quota_usage import CONNECTION, CONTROLLER_MUTATION, FETCH, PRODUCE, REQUEST
from ..runtime.loop_sharing import CountBudget
from ..security.sasl_listener import UNSUPPORTED
from ..share.record_state import AcknowledgementType
from ..share.share_group_metrics import DeadLetterCounts, Histogram, ShareFetchHistograms
from .catalogue import QUANTILES
from .request_meters import GONE, RequestMeters, Times
from .tables import Table

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ...storage.log import Log
    from ..broker_state import BrokerState
    from ..coordinator.group.group import Group
    from ..network.socket_server import SocketServer

SAMPLES_PER_TURN = 50
"""Samples of metrics that are read: quantiles of some histograms, or some logs."""

TRANSACTIONS_PER_STEP = 20
"""Transactional ids whose states are read in one step."""
MILLISECONDS = 1000
LATE_TRANSACTION_BUFFER_MS = 300_000
"""The time for which a transaction may be open beyond the longest timeout (Kafka's LATE_TRANSACTION_BUFFER_MS)."""
TLS = "TLS"
"""The mechanism of failed handshakes in metrics."""
QUOTAS = (PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION, CONNECTION)
TOPIC_METRICS = "kafka_server_brokertopicmetrics_"
MAX_GROUP_SERIES = 50_000
"""Groups and committed offsets with their own samples, groups with members first, and share-partitions with their own
samples: clients can create very many, and each takes hundreds of bytes while the samples are rendered. The totals count
all of them."""


class TopicAppendTotals:
    """Messages and bytes that producers appended to each topic since the start, which never decrease.

    The counters of logs restart when a log is moved or created again. Used on the loop's thread only.
    """

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.all_messages = 0
        self.all_bytes = 0
        self._seen: dict[TopicPartition, tuple[Log, int, int]] = {}

    def update(self, logs: Mapping[TopicPartition, Log]) -> Iterator[None]:
        """Add the appends since the last call, one log per step. The totals of all topics keep deleted topics."""
        seen = {}
        for topic_partition in list(logs):
            log = logs.get(topic_partition)
            if log is None:
                continue
            now = self._seen.get(topic_partition)
            before = now[1:] if now is not None and now[0] is log else (0, 0)
            messages, size = log.appended_records - before[0], log.appended_bytes - before[1]
            if now is None or messages or size or now[0] is not log:
                topic = topic_partition.topic
                self.messages[topic] += messages
                self.bytes[topic] += size
                self.all_messages += messages
                self.all_bytes += size
                now = log, log.appended_records, log.appended_bytes
            seen[topic_partition] = now
            yield
        self._seen = seen
        present = {topic_partition.topic for topic_partition in logs}
        for topic in self.messages.keys() - present:
            del self.messages[topic], self.bytes[topic]


class Sample(NamedTuple):
    """One number; its name is the family's name followed by `part`."""

    family: str
    part: str
    labels: Mapping[str, str]
    value: float


class GroupTables(NamedTuple):
    """The samples per group."""

    members: Table
    commits: Table
    lags: Table
    lag_sums: Table

    @classmethod
    def empty(cls) -> GroupTables:
        place = ("consumergroup", "topic", "partition")
        return cls(
            Table(place[:1], "kafka_consumergroup_members"),
            Table(place, "kafka_consumergroup_current_offset"),
            Table(place, "kafka_consumergroup_lag"),
            Table(place[:2], "kafka_consumergroup_lag_sum"),
        )


class Reading(NamedTuple):
    """The result of one read."""

    samples: list[Sample]
    tables: list[Table]

    def total(self, family: str) -> int:
        """Return the sum of a table over its rows. Raises KeyError."""
        for table in self.tables:
            if family in table.families:
                return table.column(family)[table.rows.index(())]
        raise KeyError(family)


class Readings:
    """Reads the metrics of a broker. Used on the loop's thread only."""

    def __init__(self, state: BrokerState, requests: RequestMeters, flushes: Times, loop_lag: Times) -> None:
        self._state = state
        self._requests = requests
        self._flushes = flushes
        self._loop_lag = loop_lag
        self._logs = TopicAppendTotals()

    async def take(self, sockets: SocketServer, failures: int) -> Reading:
        """Return all metrics. The loop serves other requests in between, so that they are not of one instant."""
        samples, budget = list[Sample](), CountBudget(SAMPLES_PER_TURN)
        topics, sent, logs, groups = _topic_table(), _sent_table(), _log_table(), GroupTables.empty()
        share_lags = Table(("group", "topic", "partition"), "barnabas_share_group_lag")
        for sample in chain(
            self._logs.update(self._state.log_manager.logs),
            self._of_broker(sockets, failures),
            self._of_topics(topics, sent),
            self._of_requests(),
            self._of_partitions(),
            self._of_logs(logs),
            self._of_cleaner(),
            self._of_transactions(),
            self._of_groups(groups),
            self._of_share_coordinator(),
            self._of_share_groups(),
            self._of_share_lags(share_lags),
        ):
            if sample is not None:
                samples.append(sample)
            await budget.step()
        return Reading(samples, [topics, sent, logs, *groups, share_lags])

    def _of_broker(self, sockets: SocketServer, failures: int) -> Iterator[Sample]:
        state = self._state
        labels = {"version": __version__, "broker_id": str(state.broker_id), "cluster_id": state.cluster_id}
        yield Sample("barnabas_info", "", labels, 1)
        yield Sample("barnabas_protocol_errors", "_total", {}, sockets.protocol_errors)
        yield Sample("barnabas_failed_requests", "_total", {}, failures)
        yield from _summary("barnabas_loop_lag_seconds", {}, self._loop_lag, 1)
        yield from _summary("kafka_log_logflushstats_logflushrateandtimems", {}, self._flushes, MILLISECONDS)
        for name, count in sockets.connections_by_listener.items():
            labels = {"listener": name, "networkProcessor": "0"}
            yield Sample("kafka_server_socket_server_metrics_connection_count", "", labels, count)
        for name, security in state.security.listener_security.items():
            counts: dict[str, int] = {}
            if security.tls is not None:
                counts[TLS] = security.tls.failures
                seconds = security.tls.seconds_until_expiry
                yield Sample("barnabas_certificate_expiry_seconds", "", {"listener": name}, seconds)
            if security.sasl is not None:
                counts |= dict.fromkeys((*security.sasl.mechanisms, UNSUPPORTED), 0) | security.sasl.failures
            for mechanism, count in counts.items():
                labels = {"listener": name, "mechanism": mechanism}
                yield Sample("barnabas_failed_authentications", "_total", labels, count)
            if counts:
                labels = {"listener": name, "networkProcessor": "0"}
                family = "kafka_server_socket_server_metrics_failed_authentication"
                yield Sample(family, "_total", labels, sum(counts.values()))
        for quota in QUOTAS:
            labels = {"quota": quota}
            throttled, seconds = state.quotas.throttled_requests[quota], state.quotas.throttle_seconds[quota]
            yield Sample("barnabas_throttled_requests", "_total", labels, throttled)
            yield Sample("barnabas_throttle_time_seconds", "_total", labels, seconds)
        # A copy: the loop runs between the samples, and a directory that fails is removed.
        for directory, space in list(state.disk_space.space.items()):
            labels = {"log_directory": directory}
            yield Sample("barnabas_log_directory_free_bytes", "", labels, space.free_bytes)
            yield Sample("barnabas_log_directory_total_bytes", "", labels, space.total_bytes)
            yield Sample("barnabas_log_directory_full", "", labels, int(directory in state.disk_space.full))
        for kind, count in state.replica_manager.delayed_operations.items():
            labels = {"delayedOperation": kind}
            yield Sample("kafka_server_delayedoperationpurgatory_purgatorysize", "", labels, count)
        yield Sample("kafka_server_fetchsessioncache_numincrementalfetchsessions", "", {}, len(state.fetch_sessions))

    def _of_topics(self, topics: Table, sent: Table) -> Iterator[Sample | None]:
        logs, out = self._logs, self._requests.bytes_out
        here = {name for name in out if self._state.metadata.topic(name) is not None}
        for gone in out.keys() - here - {GONE}:
            out[GONE] += out.pop(gone)
        for api in ("Produce", "Fetch"):
            count = sum(number for (one, _), number in self._requests.requests.items() if one == api)
            yield Sample(f"{TOPIC_METRICS}total{api.lower()}requests", "_total", {}, count)
        topics.add((), logs.all_messages, logs.all_bytes)
        for topic, count in list(logs.messages.items()):
            topics.add((topic,), count, logs.bytes[topic])
            yield None
        sent.add((), out.total())
        for topic in here:
            sent.add((topic,), out[topic])
            yield None

    def _of_requests(self) -> Iterator[Sample]:
        name, counts = "kafka_network_requestmetrics_", Counter[str]()
        for (api, version), number in self._requests.requests.items():
            counts[api] += number
            yield Sample(f"{name}requests", "_total", {"request": api, "version": str(version)}, number)
        for api, error, number in self._requests.errors:
            yield Sample(f"{name}errors", "_total", {"request": api, "error": error}, number)
        for api, times in list(self._requests.times.items()):
            labels = {"request": api}
            for phase, of_phase in (
                ("totaltimems", times.total),
                ("localtimems", times.local),
                ("remotetimems", times.remote),
                ("responsesendtimems", times.send),
            ):
                yield from _summary(f"{name}{phase}", labels, of_phase, MILLISECONDS, whole=counts[api])

    def _of_partitions(self) -> Iterator[Sample | None]:
        state, name, counts = self._state, "kafka_server_replicamanager_", Counter[str]()
        late_before_ms = state.ports.now_ms() - state.config.transaction_max_timeout_ms - LATE_TRANSACTION_BUFFER_MS
        for partition in state.replica_manager.partitions:
            yield None
            counts["partitioncount"] += 1
            if partition.is_leader:
                in_sync = len(partition.in_sync_replicas)
                counts["leadercount"] += 1
                counts["underreplicatedpartitions"] += in_sync < len(partition.replicas)
                counts["underminisrpartitioncount"] += in_sync < partition.min_in_sync_replicas
                late = partition.has_late_transaction(late_before_ms)
                counts["partitionswithlatetransactionscount"] += late
        counts["offlinereplicacount"] = len(state.log_manager.held.offline)
        for what in (
            "partitioncount",
            "leadercount",
            "underreplicatedpartitions",
            "underminisrpartitioncount",
            "offlinereplicacount",
            "partitionswithlatetransactionscount",
        ):
            yield Sample(f"{name}{what}", "", {}, counts[what])
        name, is_active = "kafka_controller_kafkacontroller_", state.controller_client.is_active
        for topic in list(state.metadata.topic_names) if is_active else ():
            image = state.metadata.topic(topic)
            if image is not None:
                counts["globaltopiccount"] += 1
                counts["globalpartitioncount"] += len(image.partitions)
                counts["offlinepartitionscount"] += sum(one.leader < 0 for one in image.partitions.values())
            yield None
        yield Sample(f"{name}activecontrollercount", "", {}, int(is_active))
        for what in ("globaltopiccount", "globalpartitioncount", "offlinepartitionscount"):
            yield Sample(f"{name}{what}", "", {}, counts[what])

    def _of_logs(self, table: Table) -> Iterator[Sample | None]:
        logs = self._state.log_manager
        offline = len(logs.held.dirs) - len(logs.held.online_dirs)
        yield Sample("kafka_log_logmanager_offlinelogdirectorycount", "", {}, offline)
        for topic_partition in list(logs.logs):  # no list of pairs: thousands of tuples wake the garbage collector
            log = logs.logs.get(topic_partition)
            if log is not None:
                table.add(topic_partition, log.size, log.log_start_offset, log.log_end_offset, len(log.segments))
            yield None

    def _of_cleaner(self) -> Iterator[Sample]:
        for name, value in CleanerStatus(self._state.cleaner).metrics().items():
            properties = dict(pair.split("=", 1) for pair in name.partition(":")[2].split(","))
            family = f"kafka_log_{properties['type']}_{properties['name']}".lower().replace("-", "_")
            directory = properties.get("logDirectory")
            yield Sample(family, "", {} if directory is None else {"logDirectory": directory}, value)

    def _of_transactions(self) -> Iterator[Sample | None]:
        started_ms = now_ms = self._state.ports.now_ms()
        for number, transaction in enumerate(self._state.transaction_coordinator.state_manager.transactions):
            metadata = transaction.metadata
            if metadata.state is TransactionState.ONGOING:
                started_ms = min(started_ms, metadata.start_ms)
            if number % TRANSACTIONS_PER_STEP == 0:
                yield None
        age = (now_ms - started_ms) / MILLISECONDS
        yield Sample("barnabas_oldest_open_transaction_seconds", "", {}, age)

    def _of_groups(self, tables: GroupTables) -> Iterator[Sample | None]:
        groups, offsets, told = list(self._state.group_coordinator.group_manager.groups), 0, 0
        types, share_states = Counter[GroupType](), Counter[ShareGroupState]()
        in_use = (group for group in groups if group.members)
        for group in chain(in_use, (group for group in groups if not group.members)):
            size = len(group.offsets.committed)
            offsets += size
            types[group.type] += 1
            if isinstance(group, ShareGroup):
                share_states[group.state] += 1
            if told + size < MAX_GROUP_SERIES:
                told += size + 1
                yield from self._of_group(group, tables)
            yield None
        yield Sample("kafka_coordinator_group_groupmetadatamanager_numgroups", "", {}, len(groups))
        yield Sample("kafka_coordinator_group_groupmetadatamanager_numoffsets", "", {}, offsets)
        name = "kafka_server_group_coordinator_metrics_"
        for group_type in GroupType:
            yield Sample(f"{name}group_count", "", {"protocol": group_type.value}, types[group_type])
        for state in ShareGroupState:
            yield Sample(f"{name}share_group_count", "", {"state": state.value}, share_states[state])
        rebalances = self._state.group_coordinator.share_group_manager.rebalances
        yield Sample(f"{name}share_group_rebalance_count", "_total", {}, rebalances)

    def _of_share_coordinator(self) -> Iterator[Sample]:
        coordinator = self._state.share_coordinator
        metrics, name = coordinator.read_metrics(), "kafka_server_share_coordinator_metrics_"
        latencies = metrics.write_latencies or (0.0,)
        yield Sample(f"{name}write", "_total", {}, metrics.write_count)
        yield Sample(f"{name}write_latency_avg", "", {}, sum(latencies) / len(latencies) * MILLISECONDS)
        yield Sample(f"{name}write_latency_max", "", {}, max(latencies) * MILLISECONDS)
        for index, offset in list(metrics.last_pruned_offsets.items()):
            labels = {"topic": SHARE_GROUP_STATE_TOPIC, "partition": str(index)}
            yield Sample(f"{name}last_pruned_offset", "", labels, offset)
        for kind, count in coordinator.count_partitions().items():
            yield Sample(f"{name}num_partitions", "", {"state": kind}, count)

    def _of_share_groups(self) -> Iterator[Sample | None]:
        manager = self._state.share_partition_manager
        sessions, metrics = manager.sessions, manager.metrics
        yield Sample("kafka_server_sharesessioncache_sharesessionscount", "", {}, len(sessions))
        yield Sample("kafka_server_sharesessioncache_sharepartitionscount", "", {}, sessions.partition_count)
        yield Sample("kafka_server_sharesessioncache_sharesessionevictions", "_total", {}, sessions.evictions)
        for name, count in (
            ("totalsharefetchrequests", metrics.fetch_requests),
            ("failedsharefetchrequests", metrics.failed_fetch_requests),
            ("totalshareacknowledgementrequests", metrics.acknowledgement_requests),
            ("failedshareacknowledgementrequests", metrics.failed_acknowledgement_requests),
        ):
            yield Sample(f"{TOPIC_METRICS}{name}", "_total", {}, count)
        yield Sample("barnabas_share_acquired_records", "_total", {}, metrics.acquired_records)
        yield Sample("barnabas_share_redelivered_records", "_total", {}, metrics.redelivered_records)
        family = "kafka_server_sharegroupmetrics_"
        for kind in list(AcknowledgementType)[1:]:
            labels = {"ackType": kind.name.capitalize()}
            yield Sample(f"{family}recordacknowledgements", "_total", labels, metrics.acknowledgements[kind])
        # The sums have no labels.
        counts_by_labels: list[tuple[dict[str, str], DeadLetterCounts]] = [({}, metrics.dead_letters)]
        counts_by_labels += [
            ({"group": group_id}, counts) for group_id, counts in metrics.dead_letters_by_group.items()
        ]
        for labels, counts in counts_by_labels:
            yield Sample(f"{family}deadletterqueuetotalproducerequests", "_total", labels, counts.requests)
            yield Sample(f"{family}deadletterqueuefailedproducerequests", "_total", labels, counts.failed_requests)
            yield Sample(f"{family}deadletterqueuerecordcount", "_total", labels, counts.records)
        yield from _summary(f"{family}partitionloadtimems", {}, metrics.partition_load_time, MILLISECONDS)
        yield Sample("kafka_server_delayedsharefetchmetrics_expires", "_total", {}, metrics.expired_fetches)
        fetches_by_labels: list[tuple[dict[str, str], ShareFetchHistograms]] = [({}, metrics.fetches)]
        fetches_by_labels += [({"group": group_id}, fetches) for group_id, fetches in metrics.fetches_by_group.items()]
        for labels, fetches in fetches_by_labels:
            yield from _summary(f"{family}topicpartitionsacquiretimems", labels, fetches.acquire_time, MILLISECONDS)
            yield from _summary(f"{family}topicpartitionsfetchratio", labels, fetches.fetch_ratio, 1)
        messages = batches = 0
        family = "kafka_server_sharepartitionmetrics_"
        for number, managed in enumerate(manager.share_partitions):
            share, (_, topic, index) = managed.share, managed.topic_id_partition
            messages += share.num_in_flight_records
            batches += share.num_in_flight_batches
            if number < MAX_GROUP_SERIES:
                labels = {"group": managed.group_id, "topic": topic, "partition": str(index)}
                yield Sample(f"{family}inflightmessagecount", "", labels, share.num_in_flight_records)
                yield Sample(f"{family}inflightbatchcount", "", labels, share.num_in_flight_batches)
                yield Sample(f"{family}acquisitionlocktimeout", "_total", labels, share.acquisition_lock_timeouts)
            else:
                yield None
        batch_sizes = metrics.in_flight_batch_message_count
        yield from _summary(f"{family}inflightbatchmessagecount", {}, batch_sizes, 1)
        yield Sample(f"{family}inflightmessagecount", "", {}, messages)
        yield Sample(f"{family}inflightbatchcount", "", {}, batches)
        yield Sample(f"{family}acquisitionlocktimeout", "_total", {}, metrics.acquisition_lock_timeouts)

    def _of_share_lags(self, lags: Table) -> Iterator[None]:
        """Add the lags of share groups, whether they have members or not, as DescribeShareGroupOffsets reports them."""
        metadata, replicas = self._state.metadata, self._state.replica_manager
        for key, offset in self._state.share_coordinator.read_offsets():
            topic = metadata.topic_name(key.topic_id)
            replica = None if topic is None else replicas.get_partition(topic, key.partition)
            if topic is not None and replica is not None and len(lags.rows) < MAX_GROUP_SERIES:
                lag = replica.high_watermark - offset.start_offset - offset.delivery_complete_count
                lags.add((key.group_id, topic, key.partition), max(0, lag))
            yield None

    def _of_group(self, group: Group, tables: GroupTables) -> Iterator[None]:
        members, commits, lags, sums_by_topic = tables
        name, sums, in_part = group.group_id, Counter[str](), set[str]()
        members.add((name,), len(group.members))
        for (topic, partition), committed in list(group.offsets.committed.items()):
            row = name, topic, partition
            commits.add(row, committed.offset)
            replica = self._state.replica_manager.get_partition(topic, partition)
            if replica is None:
                in_part.add(topic)
            else:
                lag = max(0, replica.high_watermark - committed.offset)
                sums[topic] += lag
                lags.add(row, lag)
            yield None
        for topic, lag in sums.items():
            if topic not in in_part:  # the sum of some partitions would pass for that of all
                sums_by_topic.add((name, topic), lag)


def _topic_table() -> Table:
    return Table(("topic",), f"{TOPIC_METRICS}messagesin", f"{TOPIC_METRICS}bytesin")


def _sent_table() -> Table:
    return Table(("topic",), f"{TOPIC_METRICS}bytesout")


def _log_table() -> Table:
    names = ("size", "logstartoffset", "logendoffset", "numlogsegments")
    return Table(("topic", "partition"), *(f"kafka_log_log_{name}" for name in names))


def _summary(
    family: str, labels: Mapping[str, str], times: Times | Histogram, unit: float, *, whole: int | None = None
) -> Iterator[Sample]:
    """Quantiles of the last measurements, and how many there were: `whole` if not all of them were measured."""
    last = sorted(times.last)
    for quantile in QUANTILES if last else ():
        value = last[min(len(last) - 1, int(float(quantile) * len(last)))]
        yield Sample(family, "", {**labels, "quantile": quantile}, value * unit)
    yield Sample(family, "_count", labels, times.count if whole is None else whole)
    yield Sample(family, "_sum", labels, times.total * unit)

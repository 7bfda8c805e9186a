"""All metrics of a broker at one moment, read in turns of the loop out of what is there anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ... import __version__
from ..cleaning.cleaner_status import CleanerStatus
from ..runtime.turns import SAMPLES, Pace
from .catalogue import QUANTILES
from .log_meters import LogMeters
from .request_meters import GONE, RequestMeters, Times
from .tables import Table

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..coordinator.group.group_port import GroupPort
    from ..network.socket_server import SocketServer

MILLISECONDS = 1000
TOPIC_METRICS = "kafka_server_brokertopicmetrics_"
MOST_OF_GROUPS = 50_000
"""Groups and committed offsets that are told of one by one, groups with members first: whoever may commit can make very
many, and each is hundreds of bytes while they are rendered. The totals count all."""


class Sample(NamedTuple):
    """One number; `part` is the end of its name, behind the family's."""

    family: str
    part: str
    labels: Mapping[str, str]
    value: float


class GroupTables(NamedTuple):
    """What is told of groups one by one."""

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
    """All that was read at one time."""

    samples: list[Sample]
    tables: list[Table]

    def total(self, family: str) -> int:
        """The sum that a table has beside its rows. Raises KeyError."""
        for table in self.tables:
            if family in table.families:
                return table.column(family)[table.rows.index(())]
        raise KeyError(family)


class Readings:
    """Loop-thread only."""

    def __init__(self, state: BrokerState, requests: RequestMeters, flushes: Times, loop_lag: Times) -> None:
        self._state = state
        self._requests = requests
        self._flushes = flushes
        self._loop_lag = loop_lag
        self._logs = LogMeters()

    async def take(self, sockets: SocketServer, failures: int) -> Reading:
        """All there is. The loop serves others meanwhile, so that it is not of one instant."""
        samples, pace = list[Sample](), Pace(SAMPLES)
        topics, sent, logs, groups = _topic_table(), _sent_table(), _log_table(), GroupTables.empty()
        for sample in chain(
            self._logs.look(self._state.log_manager.logs),
            self._of_broker(sockets, failures),
            self._of_topics(topics, sent),
            self._of_requests(),
            self._of_partitions(),
            self._of_logs(logs),
            self._of_cleaner(),
            self._of_groups(groups),
        ):
            if sample is not None:
                samples.append(sample)
            await pace.step()
        return Reading(samples, [topics, sent, logs, *groups])

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
        for partition in state.replica_manager.partitions:
            yield None
            counts["partitioncount"] += 1
            if partition.is_leader:
                in_sync = len(partition.in_sync_replicas)
                counts["leadercount"] += 1
                counts["underreplicatedpartitions"] += in_sync < len(partition.replicas)
                counts["underminisrpartitioncount"] += in_sync < partition.min_in_sync_replicas
        counts["offlinereplicacount"] = len(state.log_manager.held.offline)
        for what in (
            "partitioncount",
            "leadercount",
            "underreplicatedpartitions",
            "underminisrpartitioncount",
            "offlinereplicacount",
        ):
            yield Sample(f"{name}{what}", "", {}, counts[what])
        name, is_active = "kafka_controller_kafkacontroller_", state.controller.is_active
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

    def _of_groups(self, tables: GroupTables) -> Iterator[Sample | None]:
        groups, offsets, told = list(self._state.groups.groups), 0, 0
        in_use = (group for group in groups if group.members)
        for group in chain(in_use, (group for group in groups if not group.members)):
            size = len(group.offsets.committed)
            offsets += size
            if told + size < MOST_OF_GROUPS:
                told += size + 1
                yield from self._of_group(group, tables)
            yield None
        yield Sample("kafka_coordinator_group_groupmetadatamanager_numgroups", "", {}, len(groups))
        yield Sample("kafka_coordinator_group_groupmetadatamanager_numoffsets", "", {}, offsets)

    def _of_group(self, group: GroupPort, tables: GroupTables) -> Iterator[None]:
        members, commits, lags, sums_by_topic = tables
        name, sums, in_part = group.group_id, Counter[str](), set[str]()
        members.add((name,), len(group.members))
        for (topic, partition), committed in list(group.offsets.committed.items()):
            row = name, topic, partition
            commits.add(row, committed.offset)
            replica = self._state.replica_manager.find(topic, partition)
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
    family: str, labels: Mapping[str, str], times: Times, unit: float, *, whole: int | None = None
) -> Iterator[Sample]:
    """Quantiles of the last measurements, and how many there were: `whole` if not all of them were measured."""
    last = sorted(times.last)
    for quantile in QUANTILES if last else ():
        value = last[min(len(last) - 1, int(float(quantile) * len(last)))]
        yield Sample(family, "", {**labels, "quantile": quantile}, value * unit)
    yield Sample(family, "_count", labels, times.count if whole is None else whole)
    yield Sample(family, "_sum", labels, times.total * unit)

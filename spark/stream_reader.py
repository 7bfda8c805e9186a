"""Streaming reads: offsets and rates on the driver, ranges in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..arrow.client import BlockingClient
from ..arrow.data_loss import SURELY_GONE_S
from ..arrow.group_offsets import commit_offsets
from ..arrow.offset_range import OffsetRange
from ..common.room_logger import room_logger
from ..protocol.apis import ApiKey
from ..protocol.errors import KafkaError
from ..protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ..protocol.negotiation import LAST_VERSIONS_BY_NAME
from ..protocol.schema import ZERO_UUID
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from . import host
from .admission import TriggerDelay, admit
from .batch_reader import RangesPartition, RangeTask, sizes_per_record
from .data_loss import report_loss
from .error_messages import without_traceback
from .offset_ranges import plan_tasks
from .offsets import Offsets, StreamOffsets
from .options import Bound, parse_source_options
from .resolve import discover, resolve

_SIZES_MATTER_FROM = 200_000
"""Number of records in a batch from which their size is requested."""
_LOOK_AGAIN_S = 0.2
_NO_SIZES = (
    "the brokers do not report the sizes of logs (DescribeLogDirs, which requires permission to describe the "
    "cluster); maxOffsetsPerTrigger works without it"
)

logger = room_logger("spark")


class BarnabasStreamReader(DataSourceStreamReader):
    """The source of one query. Until its first call it contains values only, since Spark also sends it to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_source_options(options, streaming=True)
        self._task = RangeTask(options, self._options, schema)
        self._trigger_delay = TriggerDelay(self._options.limits)
        self._client: BlockingClient | None = None
        self._first: StreamOffsets | None = None
        """Start of a query without a checkpoint; the end of its first batch stores it in the checkpoint."""
        self._position: StreamOffsets | None = None
        self._frozen: StreamOffsets | None = None
        self._seen: StreamOffsets | None = None
        self._has_limits = True
        """Whether the limits of the options apply to the batch that is planned."""
        self._has_warned = False
        """Whether the warning about missing sizes has been logged."""

    # Offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the offset before the first batch, without resolving it.

        Spark calls this also before it repeats the first batch, whose end in the checkpoint contains the start. By then
        the cluster may not have the topics of the options, or may have other records and partitions.
        """
        initial = StreamOffsets(is_initial=True)
        self._position = initial
        return initial.to_json()

    @without_traceback
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the end of the next batch; wait a moment for records if there are none.

        Spark before 4.2 passes no `start`; then the end of the batch planned last is used, and the first batch of a
        restarted query has no limits.
        """
        self._has_limits = type(limit).__name__ != "ReadAllAvailable"
        begin = self._position if start is None else StreamOffsets.of_json(start)
        if begin is None:
            self._seen = self._frozen or self._latest()
            return self._seen.to_json()
        if begin.is_initial:
            return self._first_batch().to_json()
        end = self._next_batch(begin)
        is_same = (end.offsets, end.topic_ids, end.missing) == (begin.offsets, begin.topic_ids, begin.missing)
        # Spark interprets any other text as a new batch.
        return begin.to_json() if is_same and start is None else dict(start) if is_same else end.to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  # Spark's name
        """Return the limit that Spark passes to `latestOffset` for all triggers but `Trigger.Once`, which reads all
        records. All limits of the options apply then, not only the returned one: Spark has no limits with two numbers.
        """
        from pyspark.sql.streaming import datasource  # since 4.2, the first version that calls this method

        limits = self._options.limits
        if limits.max_offsets is not None:
            return datasource.ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return datasource.ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return datasource.ReadMinRows(limits.min_offsets)
        return datasource.ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return the latest offset for Spark's progress, so that the progress of a query contains its lag."""
        return None if self._seen is None else self._seen.to_json()

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of one batch, also when Spark repeats it after a crash."""
        begin, stop = StreamOffsets.of_json(start), StreamOffsets.of_json(end)
        self._position = stop
        client, fail = self._kept_client(), self._options.fail_on_data_loss
        starts = self._starts(begin, stop)
        total = sum(max(0, offset - starts[tp]) for tp, offset in stop.offsets.items())
        averages = sizes_per_record(client, stop.offsets, stop.offsets) if total >= _SIZES_MATTER_FROM else {}
        ranges = []
        for tp, offset in stop.offsets.items():
            if offset < starts[tp]:
                report_loss(f"{tp}: its end decreased from offset {starts[tp]} to {offset}", fail=fail)
                continue
            topic_id = stop.topic_ids.get(tp.topic) or client.cluster.topic_id(tp.topic)
            ranges.append(OffsetRange(tp, starts[tp], offset, topic_id, averages.get(tp, 0.0)))
        return [RangesPartition(task) for task in plan_tasks(ranges, self._options.task_sizes)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangesPartition)
        return self._task.read(partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a finished batch to the group of `commitGroupId`; Spark calls this one batch late.

        The commit is informational, so a failure is a warning and does not fail the query.
        """
        if self._options.commit_group_id is None:
            return
        try:
            commit_offsets(self._kept_client(), self._options.commit_group_id, StreamOffsets.of_json(end).offsets)
        except KafkaError as error:
            logger.warning("cannot commit the lag of group %s: %s", self._options.commit_group_id, error)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def freeze(self) -> None:
        """Fix the present end as the end of the query, for Trigger.AvailableNow."""
        self._frozen = self._latest()

    # Internals

    def _kept_client(self) -> BlockingClient:
        if self._client is None:
            self._client = BlockingClient(self._options.client)
        return self._client

    def _first_batch(self) -> StreamOffsets:
        """Return the end of the first batch, with the `starts` of all its partitions."""
        first = self._first = self._first or self._find_first()
        latest = self._frozen or self._latest(first)
        explicit = self._options.starting.kind is Bound.OFFSETS
        # A start by time, or at the end, may be after the end that AvailableNow fixed before: the batch is then empty.
        ends = {tp: max(latest.offsets.get(tp, start), start) for tp, start in first.offsets.items()}
        if explicit:
            ends |= {tp: offset for tp, offset in latest.offsets.items() if tp in first.offsets}
        self._seen = StreamOffsets(ends, first.topic_ids)
        end = self._limited(first.offsets, self._seen) or StreamOffsets(dict(first.offsets), first.topic_ids)
        return replace(end, starts=first.offsets)

    def _find_first(self) -> StreamOffsets:
        """Resolve the start of a query without a checkpoint. Raises ValueError, KafkaError."""
        options, client = self._options, self._kept_client()
        partitions = discover(client, options.subscription)
        offsets = resolve(
            client, partitions, options.starting, strict=options.strict_timestamps, option="startingOffsets"
        )
        return StreamOffsets(offsets, client.topic_ids({tp.topic for tp in partitions}))

    def _next_batch(self, begin: StreamOffsets) -> StreamOffsets:
        """Return the end of the batch that starts at `begin`; `begin` itself if there is no batch yet."""
        if self._frozen is not None:
            if self._is_behind(self._frozen, begin):
                # The end that AvailableNow fixed before there was a position to compare with was reported by a lagging
                # broker.
                self._frozen = self._latest(begin)
            latest = self._frozen
        else:
            latest = self._latest(begin)
            if latest.offsets == begin.offsets:
                self._wait_for_records(latest.offsets)
                latest = self._latest(begin)
        self._seen = latest
        missing = begin.to_be_resumed(latest)
        kept = {tp.topic for tp in (*missing, *latest.offsets)}
        ids = {topic: topic_id for topic, topic_id in begin.topic_ids.items() if topic in kept}
        ids |= {topic: topic_id for topic, topic_id in latest.topic_ids.items() if topic_id != ZERO_UUID}
        latest = replace(latest, topic_ids=ids, missing=missing)
        starts = self._starts(begin, latest)
        end = self._limited(starts, latest)
        if end is None:
            return begin
        fresh = {tp: starts[tp] for tp in end.offsets if begin.known_offset(tp, ids.get(tp.topic, ZERO_UUID)) is None}
        return replace(end, starts=fresh)

    def _latest(self, known: StreamOffsets | None = None) -> StreamOffsets:
        """Return the end of all partitions. Partitions in `known`, or named ones, have some seconds to appear.

        A broker that has just started may not have all topics yet, which must not be treated as their end. A former
        leader that has not been informed yet may report an end that was passed already.
        """
        client = self._kept_client()
        deadline = host.monotonic() + SURELY_GONE_S
        while True:
            partitions = discover(client, self._options.subscription, missing_ok=True)
            offsets = client.find_offsets(dict.fromkeys(partitions, LATEST))
            latest = StreamOffsets(offsets, client.topic_ids({tp.topic for tp in partitions}))
            if not self._is_behind(latest, known) or host.monotonic() >= deadline:
                return latest
            host.pause(_LOOK_AGAIN_S)

    def _is_behind(self, latest: StreamOffsets, known: StreamOffsets | None) -> bool:
        """Return whether a partition is missing, or ends before the offset up to which it was read."""
        if known is None:
            return not set(self._options.subscription.names) <= {tp.topic for tp in latest.offsets}
        recreated = {topic for topic, topic_id in latest.topic_ids.items() if known.is_recreated(topic, topic_id)}
        return any(
            latest.offsets.get(tp, -1) < offset for tp, offset in known.offsets.items() if tp.topic not in recreated
        )

    def _starts(self, begin: StreamOffsets, end: StreamOffsets) -> Offsets:
        """Return the start of each partition of `end`.

        Partitions that were read before, also if they were missing since, resume there. New ones, and all of a
        recreated topic, begin at the start in `end`, else at their first record.
        """
        fail = self._options.fail_on_data_loss
        recreated = {t for t, topic_id in end.topic_ids.items() if begin.is_recreated(t, topic_id)}
        for tp in sorted(set(begin.offsets) - set(end.offsets)):
            if tp.topic not in recreated:
                report_loss(f"{tp} was deleted", fail=fail)
        for topic in sorted(recreated):
            report_loss(f"topic {topic!r} was deleted and created again", fail=fail)
        starts = dict(end.starts)
        for tp in end.offsets:
            known = begin.known_offset(tp, end.topic_ids.get(tp.topic, ZERO_UUID))
            if known is not None:
                starts[tp] = known
        fresh = [tp for tp in end.offsets if tp not in starts]
        if begin.is_initial:
            # The checkpoint of an older version, or of Spark's connector, does not contain the start of the first
            # batch.
            return starts | self._resolve_first(fresh)
        if fresh:
            starts |= self._kept_client().find_offsets(dict.fromkeys(fresh, EARLIEST))
        for tp in fresh:
            if starts[tp] > 0 and tp.topic not in recreated:
                report_loss(f"new partition {tp} starts at offset {starts[tp]}, not at 0", fail=fail)
        return starts

    def _resolve_first(self, partitions: list[TopicPartition]) -> Offsets:
        """Resolve the start of these partitions by the options. Raises ValueError, KafkaError."""
        if not partitions:
            return {}
        options = self._options
        strict = options.strict_timestamps
        return resolve(self._kept_client(), partitions, options.starting, strict=strict, option="startingOffsets")

    def _limited(self, starts: Offsets, latest: StreamOffsets) -> StreamOffsets | None:
        """Return `latest`, limited by the rates; None if there is no batch yet."""
        if not self._has_limits:
            return latest
        limits = self._options.limits
        waiting = sum(max(0, offset - starts[tp]) for tp, offset in latest.offsets.items())
        if waiting and self._frozen is None and not self._trigger_delay.is_worth_it(waiting, host.now_ms()):
            host.pause(self._options.max_wait_ms / 1000)
            return None
        averages = {}
        if limits.max_bytes is not None and waiting:
            averages = sizes_per_record(self._kept_client(), latest.offsets, latest.offsets)
            if not averages and not self._has_warned:
                self._has_warned = True
                logger.warning("maxBytesPerTrigger has no effect: %s", _NO_SIZES)
        return replace(latest, offsets=admit(starts, latest.offsets, limits, averages))

    def _wait_for_records(self, offsets: Offsets) -> None:
        """Wait for records after the end, at most `maxWait`; the failure of a broker ends the wait."""
        try:
            if offsets:
                self._poll_leaders(offsets)
            else:
                host.pause(self._options.max_wait_ms / 1000)
        except KafkaError:
            self._kept_client().close()

    def _poll_leaders(self, offsets: Offsets) -> None:
        """Fetch after the end: the leaders respond when there are records, or after `maxWait`."""
        client, wait_ms = self._kept_client(), self._options.max_wait_ms
        asked = []
        for leader, partitions in client.by_leader(offsets).items():
            by_topic: dict[str, list[FetchPartition]] = {}
            for tp in partitions:
                wanted = FetchPartition(partition=tp.partition, fetch_offset=offsets[tp], partition_max_bytes=1)
                by_topic.setdefault(tp.topic, []).append(wanted)
            topics = [FetchTopic(topic=name, partitions=wanted) for name, wanted in by_topic.items()]
            request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1, topics=topics)
            connection = client.connection(leader)
            connection.send(request, highest=LAST_VERSIONS_BY_NAME[ApiKey.FETCH])
            asked.append(connection)
        for connection in asked:
            connection.receive(wait_ms=wait_ms)


def new_stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return a reader with Trigger.AvailableNow if this Spark (4.2 and later) supports it for Python sources."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        return BarnabasStreamReader(options, schema)

    class Reader(BarnabasStreamReader, SupportsTriggerAvailableNow):
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
            self.freeze()

    return Reader(options, schema)

"""Streaming reads: offsets and rates on the driver, ranges in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ...protocol.apis import ApiKey
from ...protocol.errors import KafkaError
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ...protocol.negotiation import LAST_VERSIONS_BY_NAME
from ...protocol.room_logger import room_logger
from ...protocol.special_timestamps import EARLIEST, LATEST
from . import host
from .admission import Patience, admit
from .batch_reader import RangesPartition, RangeTask, sizes_per_record
from .client import BlockingClient
from .group_offsets import commit_offsets
from .loss import SURELY_GONE_S, report_loss
from .mistakes import plainly
from .offset_ranges import OffsetRange, plan_tasks
from .offsets import Offsets, StreamOffsets
from .options import parse_source_options
from .resolve import discover, resolve

_SIZES_MATTER_FROM = 200_000
"""Records in a batch from which on it is worth asking how large they are."""
_LOOK_AGAIN_S = 0.2
_NO_SIZES = (
    "the brokers do not tell how large the logs are (DescribeLogDirs, which needs the right to describe the cluster); "
    "maxOffsetsPerTrigger needs no right"
)

logger = room_logger("clients.spark")


class BarnabasStreamReader(DataSourceStreamReader):
    """One query's source. Until its first call it holds values only, since Spark also sends it to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_source_options(options, streaming=True)
        self._task = RangeTask(options, self._options, schema)
        self._patience = Patience(self._options.limits)
        self._client: BlockingClient | None = None
        self._initial: StreamOffsets | None = None
        self._position: StreamOffsets | None = None
        self._frozen: StreamOffsets | None = None
        self._seen: StreamOffsets | None = None
        self._has_warned = False
        """Whether it was said that nobody tells how large records are."""

    # Offsets

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint starts. Spark asks twice, and "latest" must not move in between."""
        if self._initial is None:
            options, client = self._options, self._kept_client()
            partitions = discover(client, options.subscription)
            offsets = resolve(
                client, partitions, options.starting, strict=options.strict_timestamps, option="startingOffsets"
            )
            self._initial = StreamOffsets(offsets, client.topic_ids({tp.topic for tp in partitions}))
            self._position = self._initial
        return self._initial.to_json()

    @plainly
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where the next batch ends; waits a moment for records if there are none.

        Spark before 4.2 does not tell `start`; then it is the end of the batch planned last, and a query that has just
        been restarted takes all there is in its first batch.
        """
        begin = self._position if start is None else StreamOffsets.of_json(start)
        if self._frozen is not None:
            latest = self._frozen
        else:
            latest = self._latest(begin)
            if begin is not None and latest.offsets == begin.offsets:
                self._wait_for_records(latest.offsets)
                latest = self._latest(begin)
        self._seen = latest
        return (latest if begin is None else self._limited(begin, latest)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """What Spark shows as the source's latest offset, so that lag is seen in a query's progress."""
        return None if self._seen is None else self._seen.to_json()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch, also when Spark replays it after a crash."""
        begin, stop = StreamOffsets.of_json(start), StreamOffsets.of_json(end)
        self._position = stop
        client, fail = self._kept_client(), self._options.fail_on_data_loss
        starts = self._starts(begin, stop)
        total = sum(max(0, offset - starts[tp]) for tp, offset in stop.offsets.items())
        averages = sizes_per_record(client, stop.offsets, stop.offsets) if total >= _SIZES_MATTER_FROM else {}
        ranges = []
        for tp, offset in stop.offsets.items():
            if offset < starts[tp]:
                report_loss(f"{tp}: its end went back from offset {starts[tp]} to {offset}", fail=fail)
                continue
            topic_id = stop.topic_ids.get(tp.topic) or client.cluster.topic_id(tp.topic)
            ranges.append(OffsetRange(tp, starts[tp], offset, topic_id, averages.get(tp, 0.0)))
        return [RangesPartition(task) for task in plan_tasks(ranges, self._options.task_sizes)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangesPartition)
        return self._task.read(partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Told when a batch is done, a batch late; with `commitGroupId` the group's offsets move there."""
        if self._options.commit_group_id is not None:
            commit_offsets(self._kept_client(), self._options.commit_group_id, StreamOffsets.of_json(end).offsets)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def freeze(self) -> None:
        """Take what is there now as all there will ever be, for Trigger.AvailableNow."""
        self._frozen = self._latest()

    # Inside

    def _kept_client(self) -> BlockingClient:
        if self._client is None:
            self._client = BlockingClient(self._options.client)
        return self._client

    def _latest(self, known: StreamOffsets | None = None) -> StreamOffsets:
        """The end of everything there is. What was `known`, or is named, gets some seconds to show up again.

        A broker that has just started may not have heard of all topics yet, which must not look like their end. One
        that leads a partition no more and does not know it may tell of an end that was passed already.
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
        """Whether something is missing, or ends before where it was read to."""
        if known is None:
            return not set(self._options.subscription.names) <= {tp.topic for tp in latest.offsets}
        recreated = {topic for topic, topic_id in latest.topic_ids.items() if known.is_recreated(topic, topic_id)}
        return any(
            latest.offsets.get(tp, -1) < offset for tp, offset in known.offsets.items() if tp.topic not in recreated
        )

    def _starts(self, begin: StreamOffsets, end: StreamOffsets) -> Offsets:
        """Where each partition of `end` goes on: new ones, and all of a re-created topic, at their first record."""
        fail = self._options.fail_on_data_loss
        for tp in sorted(set(begin.offsets) - set(end.offsets)):
            report_loss(f"{tp} was deleted", fail=fail)
        recreated = {t for t, topic_id in end.topic_ids.items() if begin.is_recreated(t, topic_id)}
        for topic in sorted(recreated):
            report_loss(f"topic {topic!r} was deleted and created again", fail=fail)
        fresh = [tp for tp in end.offsets if tp.topic in recreated or tp not in begin.offsets]
        firsts = self._kept_client().find_offsets(dict.fromkeys(fresh, EARLIEST)) if fresh else {}
        for tp, first in firsts.items():
            if first > 0 and tp.topic not in recreated:
                report_loss(f"new partition {tp} starts at offset {first}, not at 0", fail=fail)
        return {tp: firsts[tp] if tp in firsts else begin.offsets[tp] for tp in end.offsets}

    def _limited(self, begin: StreamOffsets, latest: StreamOffsets) -> StreamOffsets:
        """`latest`, as far as the rates allow; `begin` if this is no batch yet."""
        limits = self._options.limits
        starts = self._starts(begin, latest)
        waiting = sum(max(0, offset - starts[tp]) for tp, offset in latest.offsets.items())
        if waiting and self._frozen is None and not self._patience.is_worth_it(waiting, host.now_ms()):
            host.pause(self._options.max_wait_ms / 1000)
            return begin
        averages = {}
        if limits.max_bytes is not None and waiting:
            averages = sizes_per_record(self._kept_client(), latest.offsets, latest.offsets)
            if not averages and not self._has_warned:
                self._has_warned = True
                logger.warning("maxBytesPerTrigger bounds nothing: %s", _NO_SIZES)
        return StreamOffsets(admit(starts, latest.offsets, limits, averages), latest.topic_ids)

    def _wait_for_records(self, offsets: Offsets) -> None:
        """Wait for records behind the end, no longer than `maxWait`; a broker that goes away ends the wait."""
        try:
            if offsets:
                self._poll_leaders(offsets)
            else:
                host.pause(self._options.max_wait_ms / 1000)
        except KafkaError:
            self._kept_client().close()

    def _poll_leaders(self, offsets: Offsets) -> None:
        """Ask for records behind the end: the leaders answer when there are some, or after `maxWait`."""
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
    """A reader with Trigger.AvailableNow where this Spark (4.2 and later) lets Python sources have it."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        return BarnabasStreamReader(options, schema)

    class Reader(BarnabasStreamReader, SupportsTriggerAvailableNow):
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
            self.freeze()

    return Reader(options, schema)

"""Batch reads: offset ranges planned on the driver and read in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..arrow.client import BlockingClient
from ..arrow.offset_range import OffsetRange
from ..arrow.range_reader import RangeReader
from ..protocol.errors import KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from . import host
from .data_loss import LOSS_OPTION, report_loss
from .error_messages import without_traceback
from .offset_ranges import average_sizes, plan_tasks
from .offsets import Offsets
from .options import Bound, SourceOptions, parse_source_options
from .resolve import discover, resolve
from .rows import RowLayout
from .value_formats import formats_of, nulls_on_error


class RangesPartition(InputPartition):
    """One task's offset ranges."""

    def __init__(self, ranges: list[OffsetRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges

    def __repr__(self) -> str:
        return ", ".join(f"{r.partition} {r.start}–{r.end}" for r in self.ranges)


class RangeTask:
    """The settings of a task; sent from the planner to the tasks, so it contains values only."""

    def __init__(self, options: Mapping[str, str], parsed: SourceOptions, schema: StructType) -> None:
        self._options = parsed
        self._layout = RowLayout(schema, formats_of(options), null_on_error=nulls_on_error(options))

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
        """Yield the Arrow batches of these ranges. Raises KafkaError, DataLossError, ValueError."""
        options = self._options
        try:
            with BlockingClient(options.client) as client:
                reader = RangeReader(
                    client,
                    fail_on_data_loss=options.fail_on_data_loss,
                    poll_timeout_ms=options.poll_timeout_ms,
                    headers=self._layout.wants_headers,
                    loss_option=LOSS_OPTION,
                )
                for r in ranges:
                    for columns in reader.read(r):
                        yield self._layout.batch(columns, r.partition)
        finally:
            host.spare_next_task()


class BarnabasBatchReader(DataSourceReader):
    """Reads the records between the starting and the ending offsets at the time of planning."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_source_options(options, streaming=False)
        self._task = RangeTask(options, self._options, schema)

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """Return one partition per task; none without records."""
        with BlockingClient(self._options.client) as client:
            tasks = plan_tasks(self._narrowed(client, self._ranges(client)), self._options.task_sizes)
        return [RangesPartition(ranges) for ranges in tasks] or [RangesPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangesPartition)
        return self._task.read(partition.ranges)

    def _narrowed(self, client: BlockingClient, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Reduce the ranges by the pushed filters."""
        return ranges

    def _ranges(self, client: BlockingClient) -> list[OffsetRange]:
        options = self._options
        partitions = discover(client, options.subscription)
        ends = resolve(client, partitions, options.ending, strict=False, option="endingOffsets")
        starts = resolve(
            client, partitions, options.starting, strict=options.strict_timestamps, option="startingOffsets"
        )
        if options.ending.kind is Bound.OFFSETS:
            ends = self._within_logs(client, ends)
        averages = sizes_per_record(client, partitions, ends)
        ids = client.topic_ids({tp.topic for tp in partitions})
        ranges = []
        for tp in partitions:
            if ends[tp] < starts[tp]:
                report_loss(
                    f"{tp}: the read ends at offset {ends[tp]} before it starts at {starts[tp]}",
                    fail=options.fail_on_data_loss,
                )
            ranges.append(OffsetRange(tp, starts[tp], max(ends[tp], starts[tp]), ids[tp.topic], averages.get(tp, 0.0)))
        return ranges

    def _within_logs(self, client: BlockingClient, ends: Offsets) -> Offsets:
        """Return the given ends, limited to the log end offsets. Raises DataLossError.

        Tasks would wait for records that do not exist.
        """
        lasts = client.find_offsets(dict.fromkeys(ends, LATEST))
        for tp, end in ends.items():
            if end > lasts[tp]:
                report_loss(
                    f"{tp}: the log ends at offset {lasts[tp]}, before the ending offset {end}",
                    fail=self._options.fail_on_data_loss,
                )
        return {tp: min(end, lasts[tp]) for tp, end in ends.items()}


def sizes_per_record(
    client: BlockingClient, partitions: Iterable[TopicPartition], ends: Offsets
) -> dict[TopicPartition, float]:
    """Return bytes per record on the brokers' disks, if reported; an estimate for the sizes of tasks and batches."""
    wanted = list(partitions)
    try:
        sizes = client.sizes(wanted)
    except KafkaError:
        return {}
    return average_sizes(sizes, client.find_offsets(dict.fromkeys(wanted, EARLIEST)), ends)

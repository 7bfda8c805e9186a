"""Reads offset ranges on one thread: one Fetch after another, with the next in flight during decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ..clients.errors import code_of
from ..protocol.apis import ApiKey
from ..protocol.batch_header import HEADER_SIZE
from ..protocol.compression import Compression, decompress
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ..protocol.negotiation import last_version
from ..protocol.record import max_plain_size
from ..protocol.record_batch import Batch, RecordBatch, iter_batches
from ..protocol.schema import ZERO_UUID
from ..protocol.special_timestamps import EARLIEST, EARLIEST_LOCAL, FIRST_VERSIONS
from ..protocol.topic_partition import TopicPartition
from . import host
from .client import BlockingClient
from .connection import BlockingConnection
from .data_loss import SURELY_GONE_S, report_loss
from .offset_range import OffsetRange
from .record_table import (
    Payload,
    RecordTable,
    columns_of_records,
    decode_payloads,
)
from .transactions import TransactionFilter

_MAX_WAIT_MS = 500
_FETCH_BYTES = 8 << 20
_DECODED_BYTES = 2 << 20
_EMPTY_ANSWERS = 2
"""Number of responses without a record, although the log continues, after which the range counts as a gap."""
_NEWER_TOPIC = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class RangeReader:
    """Reads the records of ranges. `poll_timeout_ms` limits the wait for records, and with `fail_on_data_loss` missing
    records are an error, whose message names `loss_option`.
    """

    def __init__(
        self,
        client: BlockingClient,
        *,
        fail_on_data_loss: bool,
        poll_timeout_ms: int,
        headers: bool,
        loss_option: str = "fail_on_data_loss",
    ) -> None:
        self._client = client
        self._fail = fail_on_data_loss
        self._report_loss = partial(report_loss, fail=fail_on_data_loss, option=loss_option)
        self._poll_timeout_ms = poll_timeout_ms
        self._headers = headers
        self._check_crcs = client.settings.properties.get("check.crcs", "true") != "false"
        self._fetch_bytes = client.settings.number("max.partition.fetch.bytes", _FETCH_BYTES)
        self._in_flight: BlockingConnection | None = None
        self._missed_since: float | None = None
        """Time since which no broker has the topic."""

    def interrupt(self) -> None:
        """End the read from any other thread: the thread that reads gets a KafkaError."""
        self._client.interrupt()

    def read(self, r: OffsetRange) -> Iterator[RecordTable]:
        """Yield the range's records, a few megabytes at a time. Raises KafkaError, DataLossError."""
        offset = r.start
        deadline = host.monotonic() + self._poll_timeout_ms / 1000
        empty_answers = 0
        while offset < r.end:
            data = self._fetch(r, offset)
            if data is None:
                return
            code = code_of(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                offset = self._after_loss(r, offset)
                continue
            batches = list(iter_batches(data.records)) if data.records else []
            if not batches or batches[-1].last_offset < offset:
                empty_answers += 1
                if empty_answers >= _EMPTY_ANSWERS and self._is_seen_to_the_end(r, offset, data):
                    return
                if host.monotonic() > deadline:
                    if self._end_of_log(data) < r.end and not self._is_far_away(r.partition, offset):
                        # The log was truncated, for example by an unclean leader election, after the end of the range
                        # was determined.
                        lost = f"{r.partition}: the log ends at offset {self._end_of_log(data)}, before {r.end}"
                        self._report_loss(lost)
                        return
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"no records of {r.partition} from offset {offset} within {self._poll_timeout_ms} ms",
                    )
                continue
            behind = batches[-1].last_offset + 1
            if behind < r.end:
                self._send_ahead(r, behind)
            for columns in self._decode(r, batches, data):
                wanted = columns.between(offset, r.end)
                if len(wanted):
                    yield wanted
            offset = max(behind, offset)
            # Counted from now, because the consumer of the records may have been slow.
            deadline, empty_answers = host.monotonic() + self._poll_timeout_ms / 1000, 0

    def _is_seen_to_the_end(self, r: OffsetRange, offset: int, data: PartitionData) -> bool:
        """Return whether the leader has no records from here on, although its log extends beyond the range: a gap."""
        return self._end_of_log(data) >= r.end and not self._is_far_away(r.partition, offset)

    def _end_of_log(self, data: PartitionData) -> int:
        """Return the offset after the last record that this client may read."""
        return data.last_stable_offset if self._client.settings.is_read_committed else data.high_watermark

    def _is_far_away(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether the offset is only in remote storage (KIP-405).

        If that is slow, a leader responds without records, and returns them with a later response.
        """
        try:
            connection = self._client.connection(self._client.leader(tp))
            if connection.version_for(ApiKey.LIST_OFFSETS) < FIRST_VERSIONS[EARLIEST_LOCAL]:
                return False
            return self._client.find_offsets({tp: EARLIEST_LOCAL})[tp] > offset
        except KafkaError as error:
            return (
                error.code.retriable
            )  # then it is requested again after the next response; otherwise there is no remote storage

    # Fetching

    def _fetch(self, r: OffsetRange, offset: int) -> PartitionData | None:
        """Return the response for this range, with retries; None if its records are missing."""
        try:
            return self._client.retrying(lambda: self._attempt(r, offset), timeout_ms=self._poll_timeout_ms)
        except _GoneError as gone:
            self._report_loss(str(gone))
            return None
        except KafkaError as error:
            place = f"{r.partition} at offset {offset}"
            raise KafkaError(
                error.code, f"{place}: {error.message}" if error.message else f"fetch of {place}"
            ) from error

    def _attempt(self, r: OffsetRange, offset: int) -> PartitionData:
        try:
            connection = self._in_flight or self._send(r, offset)
            self._in_flight = None
            response = connection.receive(wait_ms=_MAX_WAIT_MS)
            data = _partition_of(response)
            self._missed_since = None
            if response.throttle_time_ms > 0 and not data.records:
                # A throttled client receives no records although there are some: that is not a gap.
                self._client.pause(response.throttle_time_ms / 1000)
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the client is throttled by a quota")
            return data
        except KafkaError as error:
            if error.code.retriable and error.code is not ErrorCode.NETWORK_EXCEPTION:
                self._client.refresh([r.partition.topic])
            if error.code in _NEWER_TOPIC:
                self._check_topic(r)
            raise

    def _check_topic(self, r: OffsetRange) -> None:
        """Raise _GoneError if the topic of the range was deleted or recreated.

        A broker that has just started may not have the topic yet, so the topic has some seconds to appear. If data loss
        does not fail the query, its records would be skipped permanently: it then has the whole poll timeout.
        """
        topic, now = r.partition.topic, host.monotonic()
        known = self._client.cluster.topics.get(topic)
        if known is None or not known.partitions:
            if self._missed_since is None:
                self._missed_since = now
            # Half of the time of the attempts, so that this error is raised before the time is over.
            patience_s = self._poll_timeout_ms / 2000
            if now - self._missed_since < (min(SURELY_GONE_S, patience_s) if self._fail else patience_s):
                return
            raise _GoneError(f"topic {topic!r} was deleted")
        if ZERO_UUID not in (r.topic_id, known.topic_id) and known.topic_id != r.topic_id:
            raise _GoneError(f"topic {topic!r} was deleted and created again")

    def _send(self, r: OffsetRange, offset: int) -> BlockingConnection:
        tp, by_name = r.partition, r.topic_id == ZERO_UUID
        connection = self._client.connection(self._client.leader(tp))
        wanted = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=self._client.cluster.leader_epoch(tp),
            fetch_offset=offset,
            partition_max_bytes=self._fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max(self._fetch_bytes, 50 << 20),
            isolation_level=int(self._client.settings.is_read_committed),
            topics=[FetchTopic(topic=tp.topic, topic_id=r.topic_id, partitions=[wanted])],
        )
        connection.send(request, highest=last_version(ApiKey.FETCH, by_name=by_name))
        return connection

    def _send_ahead(self, r: OffsetRange, offset: int) -> None:
        """Send the next request before decoding a response; if it fails, `_fetch` sends it again."""
        try:
            self._in_flight = self._send(r, offset)
        except KafkaError:
            self._in_flight = None

    def _after_loss(self, r: OffsetRange, offset: int) -> int:
        """Return the offset to continue at after OFFSET_OUT_OF_RANGE: the log start offset if it is later, else
        none.
        """
        start = self._client.find_offsets({r.partition: EARLIEST})[r.partition]
        if start > offset:
            lost = f"{r.partition}: offsets {offset} to {min(start, r.end) - 1} are missing, the log starts at {start}"
            self._report_loss(lost)
            return start
        self._report_loss(f"{r.partition}: the log ends before offset {offset}")
        return r.end

    # Decoding

    def _decode(self, r: OffsetRange, batches: Sequence[Batch], data: PartitionData) -> Iterator[RecordTable]:
        aborted = data.aborted_transactions if self._client.settings.is_read_committed else None
        hidden = TransactionFilter(aborted or ())
        try:
            visible = [batch for batch in batches if not self._is_hidden(batch, hidden)]
            for columns, _ in decode_batches(visible, headers=self._headers):
                yield columns
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{r.partition} from offset {r.start}: {error}") from error

    def _is_hidden(self, batch: Batch, hidden: TransactionFilter) -> bool:
        if self._check_crcs and not batch.is_valid:
            raise ProtocolError(f"the CRC of the batch at offset {batch.last_offset} does not match")
        return hidden.is_hidden(batch)


class _GoneError(Exception):
    """The topic of the range does not exist any more."""


def _partition_of(response: FetchResponse) -> PartitionData:
    """Return the only partition of a response; raise its error, unless it is about the offset."""
    code = code_of(response.error_code)
    for topic in response.responses:
        data = topic.partitions[0]
        code = code_of(data.error_code)
        if code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            return data
    raise KafkaError(code or ErrorCode.UNKNOWN_SERVER_ERROR)


def decode_batches(
    batches: Sequence[Batch], *, headers: bool, use_native: bool = True
) -> Iterator[tuple[RecordTable, Sequence[Batch]]]:
    """Yield the records of batches of any format, some megabytes at a time, with their batches.

    Raises ProtocolError, KafkaError.
    """
    payloads: list[Payload] = []
    first = size = 0
    for index, batch in enumerate(batches):
        if isinstance(batch, RecordBatch):
            payloads.append(plain_payload(batch))
            size += len(payloads[-1].records)
            if size < _DECODED_BYTES:
                continue
        if payloads:
            yield (
                decode_payloads(payloads, headers=headers, use_native=use_native),
                batches[first : first + len(payloads)],
            )
            payloads, size = [], 0
        if not isinstance(batch, RecordBatch):
            columns = columns_of_records(list(batch.records()), int(batch.timestamp_type), headers=headers)
            yield columns, batches[index : index + 1]
        first = index + 1
    if payloads:
        yield decode_payloads(payloads, headers=headers, use_native=use_native), batches[first:]


def plain_payload(batch: RecordBatch) -> Payload:
    """Return the batch with its records decompressed. Raises KafkaError."""
    records = batch.view[HEADER_SIZE:]
    if batch.codec == Compression.NONE:
        return Payload(batch.header, records, batch.view)
    return Payload(batch.header, decompress(batch.codec, records, max_size=max_plain_size(batch.size)))

"""A produce request as a list of appends, and the response if all of them succeed.

Nearly all of a produce request are the positions of its batches, and of its response, their offsets. Both are read and
written as one piece, including headers, by compiled code if available. Everything else (tagged fields, errors) is left
to the general codecs, which are its twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

from .apis import ApiKey
from .codec import decode_request, encode_response
from .compiled_support import as_uuid
from .errors import ProtocolError
from .headers import RequestHeader, decode_request_header, encode_response_header
from .messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from .native import native
from .schema import ZERO_UUID

SINCE_TOPIC_IDS = 13

EntryKey: TypeAlias = tuple[str | bytes, int]
"""Topic name, or from version 13 on the 16 bytes of its id; partition."""

Entry: TypeAlias = tuple[Any, int, memoryview]
"""The two parts of an `EntryKey`, and the records."""

MAX_PARTITIONS = 20_000
"""Maximum per request. Java's producer, with 1 MB per request, has no room for more than 14 000 batches."""
_read = native.read_produce if native is not None else None
_write = native.write_produced if native is not None else None
_new_tuple = tuple.__new__
_KEY = ApiKey.PRODUCE


class ProduceEntries:
    """The appends of a produce request; the records of its entries are views of the request."""

    __slots__ = ("acks", "entries", "keys", "timeout_ms", "transactional_id")

    def __init__(
        self, transactional_id: str | None, acks: int, timeout_ms: int, keys: list[EntryKey], entries: list[Entry]
    ) -> None:
        """`keys` are the entries without their records. Raises ProtocolError beyond `MAX_PARTITIONS`."""
        if len(keys) > MAX_PARTITIONS:
            raise ProtocolError(f"produce request for {len(keys)} partitions; at most {MAX_PARTITIONS} are allowed")
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.keys = keys
        self.entries = entries

    @property
    def topic_data(self) -> list[TopicProduceData]:
        """Return the entries by topic, as in `ProduceRequest`, for code that handles all requests equally."""
        topics = []
        for topic, entries in groupby(self.entries, lambda entry: entry[0]):
            name, topic_id = _name_and_id(topic)
            data = [PartitionProduceData(index=index, records=records) for _, index, records in entries]
            topics.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=data))
        return topics

    @topic_data.setter
    def topic_data(self, topics: list[TopicProduceData]) -> None:
        by_id = bool(self.keys) and isinstance(self.keys[0][0], bytes)
        self.keys, self.entries = _of_topics(topics, by_id=by_id)


def read_produce(version: int, buffer: memoryview, start: int, end: int) -> tuple[RequestHeader, ProduceEntries]:
    """Decode the produce request of that version in the frame at `[start, end)`. Raises ProtocolError."""
    found = _read(buffer, start, end) if _read is not None else None
    if found is None:
        return read_generally(version, buffer, start, end)
    correlation_id, client_id, transactional_id, acks, timeout_ms, keys, entries = found
    header = _new_tuple(RequestHeader, (_KEY, version, correlation_id, client_id))
    return header, ProduceEntries(transactional_id, acks, timeout_ms, keys, entries)


def read_generally(version: int, buffer: memoryview, start: int, end: int) -> tuple[RequestHeader, ProduceEntries]:
    """Decode with the general codecs."""
    header, position = decode_request_header(buffer, start, end)
    request: ProduceRequest = decode_request(ApiKey.PRODUCE, version, buffer, position, end)
    keys, entries = _of_topics(request.topic_data, by_id=version >= SINCE_TOPIC_IDS)
    return header, ProduceEntries(request.transactional_id, request.acks, request.timeout_ms, keys, entries)


def _of_topics(topics: Sequence[TopicProduceData], *, by_id: bool) -> tuple[list[EntryKey], list[Entry]]:
    """Return the keys and the entries."""
    entries: list[Entry] = []
    for topic in topics:
        name = topic.topic_id.bytes if by_id else topic.name
        entries += [(name, data.index, memoryview(data.records or b"")) for data in topic.partition_data]
    return [entry[:2] for entry in entries], entries


class CompactProduceResponse:
    """The response to a produce request of which all partitions are appended, without an object per partition.

    The results of the keys are tuples of the log: first offset, last offset, largest timestamp, log append time, log
    start offset.
    """

    __slots__ = ("keys", "results", "throttle_time_ms")

    def __init__(self, keys: list[EntryKey], results: list[Any]) -> None:
        self.keys = keys
        self.results = results
        self.throttle_time_ms = 0

    def frame(self, version: int, correlation_id: int) -> bytes:
        """Encode the whole response with its length. Raises ProtocolError."""
        frame = None
        if _write is not None:
            frame = _write(version, correlation_id, self.keys, self.results, self.throttle_time_ms)
        return write_generally(self, version, correlation_id) if frame is None else frame


def write_generally(answer: CompactProduceResponse, version: int, correlation_id: int) -> bytes:
    """Encode with the general codecs."""
    answers = [
        PartitionProduceResponse(
            index=index, base_offset=result[0], log_append_time_ms=result[3], log_start_offset=result[4]
        )
        for (_, index), result in zip(answer.keys, answer.results, strict=True)
    ]
    response = response_of(answer.keys, answers)
    response.throttle_time_ms = answer.throttle_time_ms
    head = encode_response_header(ApiKey.PRODUCE, version, correlation_id)
    body = b"".join((head, *encode_response(response, version)))
    return len(body).to_bytes(4, "big") + body


def response_of(keys: Sequence[EntryKey], answers: Sequence[PartitionProduceResponse]) -> ProduceResponse:
    """Build the response with a result for each key; adjacent keys of one topic are combined."""
    topics = []
    for topic, pairs in groupby(zip(keys, answers, strict=True), lambda pair: pair[0][0]):
        name, topic_id = _name_and_id(topic)
        partitions = [answer for _, answer in pairs]
        topics.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions))
    return ProduceResponse(responses=topics)


def _name_and_id(topic: str | bytes) -> tuple[str, Any]:
    return ("", as_uuid(topic)) if isinstance(topic, bytes) else (topic, ZERO_UUID)

"""Transactions over a plain socket, with version 1 of the transaction protocol: the commit time of a broker alone.

A client library has several threads that must be woken. In a commit of tenths of a millisecond this is most of the
time, and it does not depend on the broker.
"""

import time
from typing import Any

from bench.payloads import payloads
from bench.wire import connect, read_frame, request_frame

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.protocol.record_batch_builder import RecordBatchBuilder

TRANSACTION_KEY_TYPE = 1
"""The `key_type` of transaction coordinators in FindCoordinator."""
TRANSACTION_TIMEOUT_MS = 60_000
RECORDS, SIZE = 10, 1000
RETRY_TIMEOUT_S = 60.0


class PlainProducer:
    """A producer of one transaction after the other, each with one batch in partition 0 of a topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._socket = connect(bootstrap)
        self._topic, self._id, self._sequence = topic, f"{topic}-plain", 0
        self._send_until_successful(
            ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=self._id, key_type=TRANSACTION_KEY_TYPE)
        )
        begin = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        identity = self._send_until_successful(ApiKey.INIT_PRODUCER_ID, 1, begin)
        self._producer_id, self._epoch = identity.producer_id, identity.producer_epoch

    def transaction(self) -> float:
        """Write and commit a transaction. Return the seconds from the EndTxn request to its response."""
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        self._send_until_successful(ApiKey.ADD_PARTITIONS_TO_TXN, 0, adding)
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=self._batch())])
        request = ProduceRequest(
            transactional_id=self._id, acks=-1, timeout_ms=TRANSACTION_TIMEOUT_MS, topic_data=[data]
        )
        self._send_until_successful(ApiKey.PRODUCE, 7, request)
        end = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=True
        )
        frame = request_frame(ApiKey.END_TXN, 1, encode_request(end, 1))
        sent = time.perf_counter()
        response = self._send_frame(frame)
        spent = time.perf_counter() - sent
        if _error(_read(ApiKey.END_TXN, 1, response)):
            raise RuntimeError("a transaction was not committed")
        return spent

    def close(self) -> None:
        self._socket.close()

    def _batch(self) -> bytes:
        builder = RecordBatchBuilder(
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        for value in payloads(SIZE, RECORDS):
            builder.append(None, value, [], int(time.time() * 1000))
        self._sequence += RECORDS
        return bytes(builder.build())

    def _send_frame(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return read_frame(self._socket)

    def _send_until_successful(self, key: ApiKey, version: int, request: Any) -> Any:
        """Send a request until its response has no error, and return this response.

        Errors are expected while leaders are elected and while the previous transaction is completed.
        """
        frame, deadline = (
            request_frame(key, version, encode_request(request, version)),
            time.monotonic() + RETRY_TIMEOUT_S,
        )
        while error := _error(message := _read(key, version, self._send_frame(frame))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{key.name} still fails with {ErrorCode(error).name}")
            time.sleep(0.001)
        return message


def _read(key: ApiKey, version: int, response: bytes) -> Any:
    """Decode a response of a version without tagged fields."""
    return decode_response(key, version, response, 4, len(response))


def _error(response: Any) -> int:
    """Return the first error code in a response, or 0 if it has no error."""
    match response:
        case AddPartitionsToTxnResponse():
            results = [one for topic in response.results_by_topic_v3_and_below for one in topic.results_by_partition]
            return next(filter(None, (one.partition_error_code for one in results)), 0)
        case ProduceResponse():
            produced = [one for topic in response.responses for one in topic.partition_responses]
            return next(filter(None, (one.error_code for one in produced)), 0)
    return int(response.error_code)


def latencies(bootstrap: str, topic: str, *, seconds: float, rate: int = 100) -> dict[str, float]:
    """Measure the milliseconds of `rate` EndTxn requests per second, after a warm-up at the highest possible rate."""
    producer = PlainProducer(bootstrap, topic)
    warm = time.perf_counter() + seconds / 2
    while time.perf_counter() < warm:
        producer.transaction()
    begin, spent = time.perf_counter(), []
    for number in range(int(seconds * rate)):
        time.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        spent.append(producer.transaction() * 1000)
    producer.close()
    spent.sort()
    return {"request_p50_ms": spent[len(spent) // 2], "request_p99_ms": spent[int(len(spent) * 0.99)]}

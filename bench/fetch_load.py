"""Fetches of consumers that wait at the end of a log, until one new record in each partition completes them."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from contextlib import ExitStack

from bench.wire import (
    ResponseCounter,
    connect,
    enable_arrival_timestamps,
    produce_request,
    read_frame,
    receive,
    receive_with_time,
    send_until_accepted,
    session_fetch_request,
    small_batch,
)

WAIT_MS = 120_000
_SESSION_POSITION = 4 + 4 + 4 + 2
"""Position of the session id in a response: after size, correlation id, throttle time and error."""


class WaitingConsumer:
    """One consumer of one partition, with a fetch session, as in Java's consumer."""

    def __init__(self, connection: socket.socket, topic: str, index: int, offset: int) -> None:
        self._connection = connection
        self._topic = topic
        self._index = index
        self._offset = offset
        self._session = 0, 0
        self._data = b""
        self._fetch()

    def _fetch(self) -> None:
        self._connection.sendall(session_fetch_request(self._topic, self._index, self._offset, self._session, WAIT_MS))

    def take(self, data: bytes, response_size: int) -> bool:
        """Add received bytes. Once the response with the next record is complete, send the next fetch, return True."""
        self._data += data
        if len(self._data) < _SESSION_POSITION + 4:
            return False
        size, _, _, error, session_id = struct.unpack_from(">iiihi", self._data)
        if size != response_size - 4 or len(self._data) > response_size or error or not session_id:
            raise RuntimeError(f"not a response with one record: {self._data[:200]!r}")
        if len(self._data) < response_size:
            return False
        self._data = b""
        self._offset += 1
        self._session = session_id, self._session[1] + 1
        self._fetch()
        return True

    def close_session(self) -> None:
        """Read the response to the last fetch, for which a record has been sent, and close the session."""
        read_frame(self._connection)
        last = self._session[0], -1
        self._connection.sendall(session_fetch_request(self._topic, self._index, self._offset, last, 0))
        read_frame(self._connection)


def complete_waiting_fetches(
    bootstrap: str, topic: str, *, seconds: float, consumers: int, partitions: int = 1
) -> dict[str, float]:
    """Complete the waiting fetches of all consumers, again and again, once all of them wait for the next record.

    Return the fetches per second, and the milliseconds from sending the records until a response reaches a socket.
    """
    batch = small_batch()
    produce = produce_request(topic, [(index, batch) for index in range(partitions)])
    responses = ResponseCounter(topic, partitions)
    # After the session id: topics, name, partitions, the fields of a partition, and the records.
    response_size = _SESSION_POSITION + 4 + 4 + 2 + len(topic) + 4 + (4 + 2 + 8 + 8 + 8 + 4 + 4 + 4) + len(batch)
    # One request for each partition: a request for all partitions is repeated while any partition has no leader, and
    # the other partitions would have more than one record before the first fetch.
    send_until_accepted(
        bootstrap, [produce_request(topic, [(index, batch)]) for index in range(partitions)], ResponseCounter(topic)
    )
    spent: list[float] = []
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        producer = stack.enter_context(connect(bootstrap))
        waiting = []
        for number in range(consumers):
            connection = stack.enter_context(connect(bootstrap))
            enable_arrival_timestamps(connection)
            waiting.append(WaitingConsumer(connection, topic, number % partitions, 1))
            selector.register(connection, selectors.EVENT_READ, waiting[-1])
        begin = time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds:
            sent, left = time.time(), consumers
            producer.sendall(produce)
            while left:
                for key, _ in selector.select(1):
                    assert isinstance(key.fileobj, socket.socket)
                    data, arrived = receive_with_time(key.fileobj)
                    if key.data.take(data, response_size):
                        left -= 1
                        spent.append((arrived - sent) * 1000)
            acknowledged = 0
            while not acknowledged:
                acknowledged = responses.add(receive(producer))
        producer.sendall(produce)
        for consumer in waiting:
            consumer.close_session()
    # The first tenth opens the sessions and warms up.
    steady = sorted(spent[len(spent) // 10 :])
    return {
        "requests": len(spent),
        "seconds": elapsed,
        "requests_per_s": len(spent) / elapsed,
        "p50_ms": steady[len(steady) // 2],
        "p99_ms": steady[int(len(steady) * 0.99)],
    }

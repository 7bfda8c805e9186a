"""Produce requests of one record over plain sockets: at the highest possible rate, or at a steady rate."""

import os
import random
import select
import selectors
import signal
import socket
import struct
import time
from contextlib import ExitStack
from statistics import median

from bench.process import cpu_seconds
from bench.wire import (
    Cycle,
    IdempotentRequests,
    RepeatedRequest,
    ResponseCounter,
    connect,
    enable_arrival_timestamps,
    metadata_request,
    produce_request,
    read_frame,
    receive,
    receive_with_time,
    send_until_accepted,
    small_batch,
)

IN_FLIGHT = 64
TURN_S = 0.05


def requests_per_second(
    bootstrap: str,
    topics: list[str],
    *,
    seconds: float,
    partitions: int = 1,
    in_flight: int = IN_FLIGHT,
    acks: int = 1,
) -> dict[str, float]:
    """Keep `in_flight` requests in flight on one connection, to all partitions of all `topics` in turn."""
    batch = small_batch()
    requests = [produce_request(topic, [(index, batch)], acks) for topic in topics for index in range(partitions)]
    cycle = Cycle(requests, in_flight)
    responses = ResponseCounter(topics[0])
    send_until_accepted(bootstrap, requests, responses)
    with connect(bootstrap) as connection:
        done, elapsed = _keep_in_flight(connection, cycle, responses, in_flight, seconds)
    return {"requests": done, "seconds": elapsed, "requests_per_s": done / elapsed}


def _keep_in_flight(
    connection: socket.socket, cycle: Cycle, responses: ResponseCounter, in_flight: int, seconds: float
) -> tuple[int, float]:
    """Send requests for `seconds`. Return the number of responses and the elapsed seconds.

    The responses to the requests that are still in flight are awaited, but not counted.
    """
    for piece in cycle.take(in_flight):
        connection.sendall(piece)
    done = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        count = responses.add(receive(connection))
        done += count
        for piece in cycle.take(count):
            connection.sendall(piece)
    elapsed = time.perf_counter() - begin
    remaining = in_flight
    while remaining:
        remaining -= responses.add(receive(connection))
    return done, elapsed


def switched(bootstrap: str, pid: int, topic: str, *, seconds: float) -> dict[str, float]:
    """Run the load of `requests_per_second` on a server that SIGUSR1 switches, in short turns: on off off on on off …

    Return the medians of on ÷ off, and of the server's microseconds per request. Other load on the machine usually
    affects two consecutive turns equally, and the median hides the exceptions.
    """
    request = produce_request(topic, [(0, small_batch())], 1)
    cycle, responses = Cycle([request], IN_FLIGHT), ResponseCounter(topic)
    send_until_accepted(bootstrap, [request], responses)
    ratios, cost = list[float](), list[tuple[float, float]]()
    with connect(bootstrap) as connection:

        def turn(turn_seconds: float) -> tuple[float, float]:
            spent = cpu_seconds(pid)
            done, elapsed = _keep_in_flight(connection, cycle, responses, IN_FLIGHT, turn_seconds)
            return done / elapsed, (cpu_seconds(pid) - spent) * 1e6 / (done + IN_FLIGHT)

        for _ in range(1 + int(seconds / 2 / TURN_S)):
            first = turn(TURN_S)
            os.kill(pid, signal.SIGUSR1)
            turn(TURN_S / 10)  # the server switches during this turn, which does not count
            second = turn(TURN_S)
            on, off = (first, second) if len(ratios) % 2 == 0 else (second, first)
            ratios.append(on[0] / off[0])
            cost.append((on[1], off[1]))
    on_us, off_us = map(median, zip(*cost, strict=True))
    return {"requests_per_s_ratio": median(ratios), "cpu_us_with": on_us, "cpu_us_without": off_us}


def latencies(bootstrap: str, topic: str, *, seconds: float, rate: int = 1000, acks: int = 1) -> dict[str, float]:
    """Send `rate` requests per second at even intervals, and return the milliseconds until the responses arrive.

    Requests do not wait for responses, so a server that stalls does not slow the load down and hide its stall.
    A response arrives when it reaches the socket: the time until a processor is free to read it does not count.
    """
    first_acknowledgement(bootstrap, topic, acks=acks)
    request = produce_request(topic, [(0, small_batch())], acks)
    responses = ResponseCounter(topic)
    total = int(seconds * rate)
    sent: list[float] = []
    spent: list[float] = []
    with connect(bootstrap) as connection:
        enable_arrival_timestamps(connection)
        begin = time.perf_counter() + 0.01
        while len(spent) < total:
            pause = begin + len(sent) / rate - time.perf_counter() if len(sent) < total else 5.0
            if pause <= 0:
                sent.append(time.time())
                connection.sendall(request)
                continue
            if select.select([connection], [], [], pause)[0]:
                data, arrived = receive_with_time(connection)
                for _ in range(responses.add(data)):
                    spent.append((arrived - sent[len(spent)]) * 1000)
            elif len(sent) == total:
                raise RuntimeError(f"{total - len(spent)} responses did not arrive")
    # The first tenth warms up the connection and caches.
    steady = sorted(spent[total // 10 :])
    return {
        "p50_ms": steady[len(steady) // 2],
        "p99_ms": steady[int(len(steady) * 0.99)],
        "p999_ms": steady[int(len(steady) * 0.999)],
        "max_ms": steady[-1],
    }


def many_connections(
    bootstrap: str,
    topic: str,
    *,
    seconds: float,
    connections: int,
    in_flight: int = IN_FLIGHT,
    acks: int = 1,
    idempotent: bool = False,
) -> dict[str, float]:
    """Send requests at the highest rate over `connections` connections, `in_flight` (or one each) in flight in all."""
    each = max(1, in_flight // connections)
    request = produce_request(topic, [(0, small_batch())], acks)
    repeated, first_id = RepeatedRequest(request, each), random.getrandbits(48)
    send_until_accepted(bootstrap, [request], ResponseCounter(topic))
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number in range(connections):
            requests = IdempotentRequests(topic, first_id + number, acks) if idempotent else repeated
            data = ResponseCounter(topic), requests
            selector.register(stack.enter_context(connect(bootstrap)), selectors.EVENT_READ, data)
        for key in selector.get_map().values():
            key.fileobj.sendall(key.data[1].take(each))  # type: ignore[union-attr]
        done = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for key, _ in selector.select(1):
                connection, (responses, requests) = key.fileobj, key.data
                assert isinstance(connection, socket.socket)
                count = responses.add(receive(connection))
                done += count
                connection.sendall(requests.take(count))
        elapsed = time.perf_counter() - begin
    return {"requests": done, "seconds": elapsed, "requests_per_s": done / elapsed}


def metadata(bootstrap: str, topic: str, *, seconds: float) -> dict[str, float]:
    """Send one Metadata request after the other for one topic. Return the median in milliseconds."""
    request = metadata_request(topic)
    spent = []
    with connect(bootstrap) as connection:
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            sent_at = time.perf_counter()
            connection.sendall(request)
            size = len(read_frame(connection))
            spent.append((time.perf_counter() - sent_at) * 1000)
    spent.sort()
    return {"requests": len(spent), "answer_bytes": size, "p50_ms": spent[len(spent) // 2]}


def first_acknowledgement(bootstrap: str, topic: str, *, acks: int = 1, timeout_s: float = 60) -> None:
    """Return as soon as one record sent to `topic` is acknowledged.

    The Metadata request creates the topic if automatic creation is enabled. A refused connection or an error response
    is retried after two milliseconds.
    """
    deadline = time.monotonic() + timeout_s
    error_at = ResponseCounter(topic).error_positions[0] - 4
    request = produce_request(topic, [(0, small_batch())], acks)
    while time.monotonic() < deadline:
        try:
            with connect(bootstrap) as connection:
                while time.monotonic() < deadline:
                    connection.sendall(metadata_request(topic))
                    read_frame(connection)
                    connection.sendall(request)
                    if struct.unpack_from(">h", read_frame(connection), error_at)[0] == 0:
                        return
                    time.sleep(0.002)
        except OSError:
            time.sleep(0.002)
    raise TimeoutError(f"no record was acknowledged within {timeout_s} s")


def write_record_to_each_partition(bootstrap: str, topic: str, partitions: int) -> None:
    """Write at least one record to each partition of `topic`, all with one request."""
    batch = small_batch()
    request = produce_request(topic, [(index, batch) for index in range(partitions)])
    send_until_accepted(bootstrap, [request], ResponseCounter(topic, partitions))

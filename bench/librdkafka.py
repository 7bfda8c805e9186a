"""librdkafka as a load generator: its C producer and consumer driven through ctypes, from the confluent-kafka wheel.

Thousands of records are queued per call, and they never become Python objects, so that the server under test is the
bottleneck and not this process.
"""

import ctypes
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka

PRODUCER, CONSUMER = 0, 1
BEGINNING = -2
CONF_OK = 0
DELIVERY_EVENTS = 1
TIMEOUT_MS = 120_000
BYTES_PER_PARTITION = 1_000_000
"""The bytes that are sent to one partition before the next partition: a full batch."""


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


REPORT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Message), ctypes.c_void_p)


def load_library() -> ctypes.CDLL:
    """Load the shared library in confluent-kafka's wheel."""
    package = Path(confluent_kafka.__file__).parent
    found = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    if not found:
        raise RuntimeError("confluent-kafka is installed without its bundled librdkafka")
    library = ctypes.CDLL(str(found[0]))
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    signatures: dict[str, tuple[object, Sequence[object]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, size]),
        "rd_kafka_conf_set_events": (None, [pointer, number]),
        "rd_kafka_conf_set_dr_msg_cb": (None, [pointer, REPORT]),
        "rd_kafka_new": (pointer, [number, pointer, text, size]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_topic_destroy": (None, [pointer]),
        "rd_kafka_produce_batch": (number, [pointer, ctypes.c_int32, number, ctypes.POINTER(Message), number]),
        "rd_kafka_poll": (number, [pointer, number]),
        "rd_kafka_flush": (number, [pointer, number]),
        "rd_kafka_outq_len": (number, [pointer]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_init_transactions": (pointer, [pointer, number]),
        "rd_kafka_begin_transaction": (pointer, [pointer]),
        "rd_kafka_commit_transaction": (pointer, [pointer, number]),
        "rd_kafka_abort_transaction": (pointer, [pointer, number]),
        "rd_kafka_error_string": (text, [pointer]),
        "rd_kafka_consume_start": (number, [pointer, ctypes.c_int32, ctypes.c_int64]),
        "rd_kafka_consume_stop": (number, [pointer, ctypes.c_int32]),
        "rd_kafka_consume_callback": (number, [pointer, ctypes.c_int32, number, pointer, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Client:
    """A producer or a consumer handle with one topic."""

    def __init__(self, kind: int, topic: str, config: Mapping[str, object]) -> None:
        self.library = load_library()
        self.failed = 0
        self._report = REPORT(self._count_failure)
        conf = self.library.rd_kafka_conf_new()
        reason = ctypes.create_string_buffer(512)
        for key, value in config.items():
            if self.library.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), reason, 512) != CONF_OK:
                raise ValueError(reason.value.decode())
        if kind == PRODUCER:
            self.library.rd_kafka_conf_set(conf, b"delivery.report.only.error", b"true", reason, 512)
            if "transactional.id" in config:
                # As successes are not reported, rd_kafka_flush would poll every 10 ms in callback mode; in event mode
                # it waits for a signal. Failures need no report: a transaction that lacks a record cannot be committed.
                self.library.rd_kafka_conf_set_events(conf, DELIVERY_EVENTS)
            else:
                self.library.rd_kafka_conf_set_dr_msg_cb(conf, self._report)
        self.handle = self.library.rd_kafka_new(kind, conf, reason, 512)
        if not self.handle:
            raise RuntimeError(reason.value.decode())
        self.topic = self.library.rd_kafka_topic_new(self.handle, topic.encode(), None)

    def _count_failure(self, handle: int, message: object, opaque: int) -> None:
        self.failed += 1

    def transact(self, step: str, *timeout_ms: int) -> None:
        """Call `rd_kafka_<step>`, for example `begin_transaction`. Raises RuntimeError if it fails."""
        error = getattr(self.library, f"rd_kafka_{step}")(self.handle, *timeout_ms)
        if error:
            raise RuntimeError(f"{step}: {self.library.rd_kafka_error_string(error).decode()}")

    def flush(self) -> None:
        """Wait until all sent records are acknowledged. Raises RuntimeError if any record was not."""
        self.library.rd_kafka_flush(self.handle, TIMEOUT_MS)
        if undelivered := self.failed + self.library.rd_kafka_outq_len(self.handle):
            raise RuntimeError(f"{undelivered} records were not acknowledged")

    def close(self) -> None:
        self.library.rd_kafka_topic_destroy(self.topic)
        self.library.rd_kafka_destroy(self.handle)


def messages_of(payloads: Sequence[bytes]) -> tuple["ctypes.Array[Message]", list["ctypes.Array[ctypes.c_char]"]]:
    """Return the array for `rd_kafka_produce_batch`, and the objects that must be kept alive as long as the array."""
    messages = (Message * len(payloads))()
    buffers = [ctypes.create_string_buffer(payload, len(payload)) for payload in payloads]
    for message, payload in zip(messages, buffers, strict=True):
        message.payload = ctypes.cast(payload, ctypes.c_void_p)
        message.len = len(payload)
    return messages, buffers


class Producer(Client):
    """A producer of one topic, with the records that it sends again and again.

    It sets the partition of each batch, as librdkafka's sticky partitioner would for ten milliseconds. The sticky
    partitioner reads the clock and takes four locks for every record, which is a quarter of a 100-byte record's cost.
    The queue is short: the queues are emptied at the end of the load, and then only the slower producer is measured.
    """

    def __init__(
        self, topic: str, config: Mapping[str, object], payloads: Sequence[bytes], partitions: Sequence[int]
    ) -> None:
        settings = {"queue.buffering.max.kbytes": 32_768, "queue.buffering.max.messages": 300_000, **config}
        super().__init__(PRODUCER, topic, settings)
        self._partitions = partitions
        self._calls_per_partition = max(1, BYTES_PER_PARTITION // sum(map(len, payloads)))
        self._count = len(payloads)
        self._messages, self._buffers = messages_of(payloads)

    def send(self, seconds: float, max_records: float) -> int:
        """Send for `seconds` or up to `max_records`. Return the number of records once all are acknowledged.

        Raises RuntimeError if any record was not.
        """
        library, sent = self.library, 0
        end = time.perf_counter() + seconds
        turns = itertools.cycle(partition for partition in self._partitions for _ in range(self._calls_per_partition))
        while time.perf_counter() < end and sent < max_records:
            queued = library.rd_kafka_produce_batch(self.topic, next(turns), 0, self._messages, self._count)
            sent += queued
            library.rd_kafka_poll(self.handle, 0 if queued == self._count else 1)
        self.flush()
        return sent


def produce(
    bootstrap: str,
    topic: str,
    payloads: Sequence[bytes],
    *,
    seconds: float,
    partitions: int = 1,
    max_records: int | None = None,
    producers: int = 1,
    config: Mapping[str, object] | None = None,
) -> tuple[int, float]:
    """Send `payloads` again and again for `seconds` or up to `max_records`. Return the number of records and the time.

    Each of `producers` sends in its own thread to the first `partitions` of the topic in turn, and starts at another
    partition. The time ends with the last acknowledgement. Raises RuntimeError for a record that was not delivered.
    """
    settings = {"bootstrap.servers": bootstrap, **(config or {})}
    first_partitions = [number * partitions // producers for number in range(producers)]
    clients = [
        Producer(topic, settings, payloads, [*range(first, partitions), *range(first)]) for first in first_partitions
    ]
    share = math.inf if max_records is None else max_records / producers
    with ThreadPoolExecutor(producers) as pool:
        begin = time.perf_counter()
        sent = sum(pool.map(lambda producer: producer.send(seconds, share), clients))
        elapsed = time.perf_counter() - begin
    for producer in clients:
        producer.close()
    return sent, elapsed


def consume(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    partition: int = 0,
    timeout_s: float = 120,
    config: Mapping[str, object] | None = None,
) -> tuple[int, float]:
    """Read `records` records of a partition from its beginning.

    Return the number of records after the first call that returned any, and the seconds from this call to the end.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": 8 << 20,
        "fetch.max.bytes": 32 << 20,
        "queued.max.messages.kbytes": 262144,
        "queued.min.messages": 1_000_000,
        "fetch.queue.backoff.ms": 1,
        **(config or {}),
    }
    client = Client(CONSUMER, topic, settings)
    library = client.library
    # consume_callback requires a C function that receives each record. `labs` of the C library only reads its first
    # argument and returns, so that no record becomes a Python object.
    ignore = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)
    library.rd_kafka_consume_start(client.topic, partition, BEGINNING)
    deadline = time.monotonic() + timeout_s
    received, begin = 0, 0.0
    first = 0
    while received < records and time.monotonic() < deadline:
        count = library.rd_kafka_consume_callback(client.topic, partition, 100, ignore, None)
        if count > 0:
            received += count
            if not begin:
                begin, first = time.perf_counter(), count
    elapsed = time.perf_counter() - begin
    library.rd_kafka_consume_stop(client.topic, partition)
    client.close()
    if received < records:
        raise RuntimeError(f"only {received} of {records} records were received")
    return received - first, elapsed

"""Hostile request frames drawn from a seed, each with the reaction of a correct broker.

The sources are random messages of every served API and version, recorded frames of other clients, and noise. Mutators
damage most frames: bits, lengths, counts, varints, tags, keys, versions, ends. Barnabas's protocol decoders, which
`tests/protocol` compares with Apache Kafka's, determine the expected reaction.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from soak.hostile.record_forge import bombs, record_pool
from tests.protocol.random_messages import random_message

from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.codec import decode_request, encode_request
from barnabas.protocol.compiled_support import uvarint
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.headers import RequestHeader, decode_request_header, encode_request_header
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.schema import Primitive, fields_of, record_bytes, string, uuid
from barnabas.server.apis.table import SERVED

VECTORS = Path(__file__).parents[2] / "tests" / "vectors"
TOPIC_FIELDS = frozenset({"topic", "name", "topic_name", "resource_name"})
BOMB_SHARE = 0.0005
REFUSED_SHARE = 0.4
"""The share of the malformed frames that are sent: each costs a connection, and tests less code than other frames."""
LONGEST_WAIT_MS = 5
MAY_WAIT = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""The requests whose response may wait for other members."""
MAX_NEW_PARTITIONS = 3
"""Frames that would create more partitions are not sent: they are legal and slow, and other tests cover them."""
SPECIAL = (b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x7f\xff", b"\x80\x00", b"\xff\xff\xff\xff")
LONG_SPECIAL = (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\xff" * 10)


class Outcome(Enum):
    """The reaction of a correct broker to a frame."""

    ANSWER = "answer"
    """One response with the frame's correlation id."""
    QUIET = "quiet"
    """No response (acks=0), or a closed connection if the append failed."""
    CLOSE = "close"
    """A closed connection."""
    PARK = "park"
    """A response at any later time, which the attacker does not wait for."""


class Frame(NamedTuple):
    """A frame without its length, and the expected reaction."""

    body: bytes
    outcome: Outcome
    key: int = -1
    version: int = -1
    correlation_id: int = 0


def expect(body: bytes) -> Frame | None:
    """Return the reaction of a correct broker to these bytes; None for bytes that should not be sent."""
    try:
        header, position = decode_request_header(body, 0, len(body))
    except ProtocolError:
        return Frame(body, Outcome.CLOSE)
    key, version, correlation_id, _ = header
    if key not in SERVED:
        return Frame(body, Outcome.CLOSE, key, version)
    _, lowest, highest, *_ = SERVED[ApiKey(key)]
    if not lowest <= version <= highest:
        outcome = Outcome.ANSWER if key == ApiKey.API_VERSIONS else Outcome.CLOSE
        return Frame(body, outcome, key, version, correlation_id)
    try:
        request = decode_request(key, version, memoryview(body), position, len(body))
    except ProtocolError:
        return Frame(body, Outcome.CLOSE, key, version, correlation_id)
    outcome = Outcome.ANSWER
    if key == ApiKey.PRODUCE and request.acks == 0:
        outcome = Outcome.QUIET
    elif key in MAY_WAIT or (key == ApiKey.FETCH and request.max_wait_ms > LONGEST_WAIT_MS):
        outcome = Outcome.PARK
    elif _creates_much(key, request):
        return None
    return Frame(body, outcome, key, version, correlation_id)


def _creates_much(key: int, request: Any) -> bool:
    """Return whether a frame might create enough partitions to slow down the fuzzing."""
    if key == ApiKey.CREATE_TOPICS:
        wanted = sum(max(topic.num_partitions, len(topic.assignments)) for topic in request.topics)
    elif key == ApiKey.CREATE_PARTITIONS:
        wanted = max((topic.count for topic in request.topics), default=0)
    else:
        return False
    return MAX_NEW_PARTITIONS < wanted < 1_000_000


class FrameForge:
    """A generator of frames, which are determined by the seed, the existing topics and the number of calls."""

    def __init__(
        self, seed: object, topics: Sequence[tuple[str, UUID]], *, variants: int = 4, with_bombs: bool = True
    ) -> None:
        self.random = random.Random(f"{seed}")
        self._topics = list(topics)
        self._records = record_pool(self.random, 400)
        self._bombs = self._bomb_frames() if with_bombs else []
        self._correlation_id = 0
        self._corpus = [
            body
            for key, (_, lowest, highest, *_) in SERVED.items()
            for version in range(lowest, highest + 1)
            for _ in range(variants * (4 if key in (ApiKey.PRODUCE, ApiKey.FETCH) else 1))
            if (body := self._sample(key, version)) is not None
        ]
        self._corpus += self._recorded()
        self._mutators: tuple[Callable[[bytearray], None], ...] = (
            self._flip_bits,
            self._truncate,
            self._special_bytes,
            self._special_bytes,
            self._insert,
            self._repeat_slice,
            self._replace_tags,
            self._change_header,
            self._splice,
        )

    def next(self) -> Frame:
        """Return the next frame. Many frames are legal."""
        rng = self.random
        while True:
            chance = rng.random()
            if chance < BOMB_SHARE and self._bombs:
                frame = expect(bytes(self._numbered(bytearray(rng.choice(self._bombs)))))
            elif chance < 0.02:
                frame = expect(rng.randbytes(rng.choice((0, 1, 7, 8, 9, 40, 300))))
            else:
                frame = expect(self._from_corpus(damage=chance > 0.4))
            if frame is not None and (frame.outcome is not Outcome.CLOSE or rng.random() < REFUSED_SHARE):
                return frame

    def of_version(self, key: ApiKey, version: int, *, damage: bool) -> Frame | None:
        """Return a new request of this API and version, or None for a request that should not be sent."""
        sample = self._sample(key, version)
        return None if sample is None else expect(self._varied(sample, damage=damage))

    def _from_corpus(self, *, damage: bool) -> bytes:
        return self._varied(self.random.choice(self._corpus), damage=damage)

    def _varied(self, sample: bytes, *, damage: bool) -> bytes:
        rng = self.random
        body = bytearray(sample)
        self._numbered(body)
        if damage:
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                rng.choice(self._mutators)(body)
        return bytes(body)

    def _numbered(self, body: bytearray) -> bytearray:
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        struct.pack_into(">i", body, 4, self._correlation_id)
        return body

    # -- sources ---------------------------------------------------------------------------------------------------

    def _sample(self, key: ApiKey, version: int) -> bytes | None:
        rng = self.random
        message = random_message(API_MESSAGES[key].request, version, rng)
        self._use_existing_names(message, version)
        header = RequestHeader(key, version, 0, rng.choice((None, "", "hostile", "ü" * 40)))
        body = encode_request_header(header) + encode_request(message, version)
        return body if expect(body) is not None else None

    def _use_existing_names(self, message: Any, version: int) -> None:
        """Replace most random fields by names of existing objects and by values that handlers accept."""
        rng = self.random
        for field in fields_of(type(message)):
            if version not in field.versions:
                continue
            value = getattr(message, field.name)
            if field.is_array and not isinstance(field.element, Primitive):
                for item in value or ():
                    self._use_existing_names(item, version)
            elif not isinstance(field.element, Primitive):
                if value is not None:
                    self._use_existing_names(value, version)
            elif rng.random() < 0.75:
                new = self._valid_value(field, value)
                if new is not None:
                    setattr(message, field.name, new)

    def _valid_value(self, field: Any, value: Any) -> Any:
        rng = self.random
        name = field.name
        if field.is_array:
            if field.element is string and name in ("topics", "topic_names"):
                return [rng.choice(self._topics)[0] for _ in range(rng.randint(0, 3))]
            return None
        if field.element is string and name in TOPIC_FIELDS:
            return rng.choice(self._topics)[0]
        if field.element is uuid:
            return rng.choice(self._topics)[1]
        if field.element is record_bytes:
            return rng.choice(self._records)
        choices = _VALID_VALUES.get(name)
        return rng.choice(choices) if choices is not None else None

    def _bomb_frames(self) -> list[bytes]:
        """Return Produce requests with compressed batches that expand to very large sizes."""
        bodies = []
        for bomb in bombs():
            version = self.random.choice((3, 7, 9, 12))
            data = PartitionProduceData(index=0, records=bomb)
            topic = TopicProduceData(name=self._topics[0][0], partition_data=[data])
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
            header = encode_request_header(RequestHeader(ApiKey.PRODUCE, version, 0, "bomber"))
            bodies.append(header + encode_request(request, version))
        return bodies

    @staticmethod
    def _recorded() -> list[bytes]:
        """Return recorded requests of other clients."""
        bodies = []
        for path in sorted(VECTORS.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                frame = json.loads(line)
                key = ApiKey[frame["api"]]
                body = bytes.fromhex(frame["hex"])
                if frame["direction"] == "request" and key in SERVED and len(body) >= 8:
                    bodies.append(body)
        return bodies

    # -- mutators --------------------------------------------------------------------------------------------------

    def _flip_bits(self, body: bytearray) -> None:
        rng = self.random
        for _ in range(rng.choice((1, 1, 2, 8))):
            if body:
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)

    def _truncate(self, body: bytearray) -> None:
        del body[self.random.randint(0, len(body)) :]

    def _special_bytes(self, body: bytearray) -> None:
        """Overwrite bytes with extreme values of lengths, counts and varints."""
        special = self.random.choice(SPECIAL + LONG_SPECIAL)
        at = self.random.randint(0, len(body))
        body[at : at + len(special)] = special

    def _insert(self, body: bytearray) -> None:
        at = self.random.randint(0, len(body))
        body[at:at] = self.random.randbytes(self.random.choice((1, 2, 4, 30)))

    def _repeat_slice(self, body: bytearray) -> None:
        rng = self.random
        at = rng.randint(0, len(body))
        piece = body[at : at + rng.choice((1, 4, 16, 60))]
        body[at:at] = piece * rng.choice((1, 2, 50))

    def _replace_tags(self, body: bytearray) -> None:
        """Replace a byte by a section of tagged fields: too many, out of order, duplicate, or too large."""
        rng = self.random
        tags = rng.choice(((0, 0), (1, 0), (5, 3, 9), (2**32 - 1,), tuple(range(70)), tuple(range(10)), ()))
        count = rng.choice((len(tags), len(tags), len(tags) + 1, 2**31, 2**32 - 1))
        section = bytearray(uvarint(count))
        for tag in tags:
            data = rng.randbytes(rng.choice((0, 1, 3)))
            section += uvarint(tag) + uvarint(rng.choice((len(data), len(data), 2**31, 200))) + data
        at = rng.choice((max(0, len(body) - 1), rng.randint(0, len(body))))
        body[at : at + 1] = section

    def _change_header(self, body: bytearray) -> None:
        rng = self.random
        if len(body) < 10:
            return
        key, version, _, length = struct.unpack_from(">hhih", body)
        key = rng.choice((key, key, key, rng.randint(-2, 95), rng.choice((-1, 32767, -32768))))
        version = rng.choice((version, version + 1, version - 1, rng.randint(0, 20), -1, 99, 32767))
        length = rng.choice((length, length, length, -1, -2, 0, 32767, -32768))
        version = max(-32768, min(version, 32767))
        struct.pack_into(">hhih", body, 0, key, version, rng.choice((-1, 0, 2**31 - 1, self._correlation_id)), length)

    def _splice(self, body: bytearray) -> None:
        other = self.random.choice(self._corpus)
        at = self.random.randint(0, len(body))
        body[at:] = other[self.random.randint(0, len(other)) :]


_VALID_VALUES: dict[str, tuple[Any, ...]] = {
    "acks": (-1, 0, 1, 1, 1, 7),
    "assignments": (),
    "count": (-1, 0, 1, 2, 3, 2**31 - 1),
    "current_leader_epoch": (-1, -1, 0, 1),
    "fetch_offset": (-1, 0, 0, 1, 3, 2**63 - 1),
    "index": (0, 0, 0, 1, -1, 2**31 - 1),
    "last_fetched_epoch": (-1, -1, 0, 1),
    "leader_epoch": (-1, 0, 1),
    "max_bytes": (0, 1, 10_000, 2**31 - 1, -1),
    "max_num_offsets": (0, 1, 2, 2**31 - 1, -1),
    "max_wait_ms": (0, 0, LONGEST_WAIT_MS, -1, 60_000),
    "num_partitions": (-1, 0, 1, 2, 2**31 - 1, -5),
    "offset": (-1, 0, 1, 2**63 - 1),
    "partition": (0, 0, 0, 1, -1, 2**31 - 1),
    "partition_index": (0, 0, 0, 1, -1, 2**31 - 1),
    "partition_max_bytes": (0, 1, 10_000, 2**31 - 1, -1),
    "replica_id": (-1, -1, 0, 1, -2),
    "replica_state": (),
    "replication_factor": (-1, 1, 1, 0, 3),
    "response_partition_limit": (0, 1, 2000, -1, 2**31 - 1),
    "session_epoch": (-1, -1, 0, 0, 1, 2**31 - 1),
    "session_id": (0, 0, 1),
    "timeout_ms": (0, 1, 1000, -1),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000, 2**63 - 1),
    "transactional_id": (None, None, "", "t"),
}
"""Field values that handlers accept, by field name."""
_VALID_VALUES = {name: choices for name, choices in _VALID_VALUES.items() if choices}

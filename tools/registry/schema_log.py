"""The topic `_schemas`, read from its beginning and written: a record takes effect when it has been read back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ...clients.accumulator import RecordMetadata
from ...clients.admin import Admin, NewTopic
from ...clients.admin.configs import ConfigResource
from ...clients.admin.outcomes import raise_first
from ...clients.consumer import Consumer
from ...clients.producer import Producer
from ...common.room_logger import room_logger
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..connection_settings import ConnectionSettings
from .errors import RegistryCode, RegistryError
from .records import TOPIC, Record

logger = room_logger("registry")

_PARTITION = TopicPartition(TOPIC, 0)
_MAX_REPLICAS = 3
_MAX_BYTES = 16 << 20
_POLL_MS = 500
_AGAIN_SECONDS = 1.0
"""Seconds before a failed read is repeated."""
_WRITE_SECONDS = 30.0
_CLIENT = {"client_id": "barnabas-registry"}


class SchemaLog:
    """The log, used between `start` and `close` on one event loop."""

    def __init__(
        self, connection_settings: ConnectionSettings, apply: Callable[[bytes | None, bytes | None], None]
    ) -> None:
        self._apply = apply
        self._admin = Admin(connection_settings.bootstrap, **{**_CLIENT, **connection_settings.admin})
        reading = {
            **_CLIENT,
            **connection_settings.consumer,
            "isolation_level": "read_committed",
            "allow_auto_create_topics": False,
        }
        self._consumer = Consumer(connection_settings.bootstrap, **reading)
        # An unfinished write is resolved before the next one: until then no request can be served.
        bounds = {"linger_ms": 0, "request_timeout_ms": 10_000, "delivery_timeout_ms": 20_000}
        writing = {**_CLIENT, **connection_settings.producer, **bounds, "max_request_size": _MAX_BYTES}
        self._producer = Producer(connection_settings.bootstrap, **writing)
        self._position = 0
        self._writing: asyncio.Task[None] | None = None
        self._sent: list[asyncio.Future[RecordMetadata]] = []
        """Records with an unknown result of their write."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._reader: asyncio.Task[None] | None = None
        self._is_started = False

    async def start(self) -> None:
        """Create a missing topic, and read all records. Raises KafkaError, ValueError."""
        await self._admin.start()
        await self._ensure_topic()
        await self._producer.start()
        await self._consumer.start()
        start = (await self._consumer.beginning_offsets([_PARTITION]))[_PARTITION]
        end = (await self._consumer.end_offsets([_PARTITION]))[_PARTITION]
        self._consumer.assign([_PARTITION])
        self._consumer.seek(_PARTITION, start)
        self._position = start
        self._reader = asyncio.get_running_loop().create_task(self._follow())
        self._reader.add_done_callback(self._ended)
        await self._until(end)
        self._is_started = True

    async def close(self) -> None:
        """Stop; waiting requests fail."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._consumer.close()
        await self._producer.close(timeout_ms=0)
        await self._admin.close()

    async def write(self, records: Iterable[Record]) -> None:
        """Write records and wait until they have been read back. Raises RegistryError, after which `settle` must be
        called.

        A cancelled call continues: otherwise half a deletion could be stored. `settle` waits for it.
        """
        self._writing = asyncio.get_running_loop().create_task(self._write(list(records)))
        await asyncio.shield(self._writing)

    async def _write(self, records: list[Record]) -> None:
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                for key, value in records:
                    self._sent.append(await self._producer.send(TOPIC, value, key=key, partition=0))
                written = await asyncio.gather(*map(asyncio.shield, self._sent))
                await self._until(max(one.offset for one in written) + 1)
        except TimeoutError:
            raise _no_answer() from None
        except (KafkaError, OSError) as error:
            raise RegistryError(RegistryCode.STORE_ERROR, f"cannot write to {TOPIC}: {error}") from None
        self._sent = []

    async def settle(self) -> None:
        """Determine whether records with a failed write were written. Raises RegistryError."""
        if self._writing is not None:
            await asyncio.gather(asyncio.shield(self._writing), return_exceptions=True)
        if not self._sent:
            return
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await asyncio.gather(*map(asyncio.shield, self._sent), return_exceptions=True)
                await self._until((await self._consumer.end_offsets([_PARTITION]))[_PARTITION])
        except TimeoutError:
            raise _no_answer() from None
        except (KafkaError, OSError) as error:
            raise RegistryError(RegistryCode.STORE_ERROR, f"cannot read {TOPIC}: {error}") from None
        self._sent = []

    async def _until(self, offset: int) -> None:
        """Wait until all records before the offset have been read. Raises RegistryError."""
        assert self._reader is not None, "it was started"
        if self._reader.done():
            raise RegistryError(RegistryCode.STORE_ERROR, f"reading {TOPIC} has stopped")
        if self._position < offset:
            read = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, read))
            await read

    async def _follow(self) -> None:
        while True:
            try:
                batches = await self._consumer.getmany(timeout_ms=_POLL_MS)
            except KafkaError as error:
                if not self._is_started:
                    raise
                logger.warning("cannot read %s, trying again: %s", TOPIC, error)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            for record in batches.get(_PARTITION, ()):
                self._apply(record.key, record.value)
            self._position = await self._consumer.position(_PARTITION)
            for offset, read in self._waiting:
                if offset <= self._position and not read.done():
                    read.set_result(None)
            self._waiting = [one for one in self._waiting if not one[1].done()]

    def _ended(self, reader: asyncio.Task[None]) -> None:
        why = "the registry stops" if reader.cancelled() else str(reader.exception())
        for _, read in self._waiting:
            if not read.done():
                read.set_exception(RegistryError(RegistryCode.STORE_ERROR, f"reading {TOPIC} has stopped: {why}"))

    async def _ensure_topic(self) -> None:
        brokers = len((await self._admin.describe_cluster()).brokers)
        wanted = NewTopic(TOPIC, 1, min(brokers, _MAX_REPLICAS), {"cleanup.policy": "compact"})
        made = await self._admin.create_topics([wanted])
        error = made[TOPIC]
        if error is None or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise_first(made)
            return
        topic = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
        settings = {one.name: one.value for one in (await self._admin.describe_configs([topic]))[topic]}
        if settings.get("cleanup.policy") != "compact" or len(await self._admin.partitions_of(TOPIC)) != 1:
            raise ValueError(
                f"{TOPIC} exists with settings that would lose schemas: one partition and "
                "cleanup.policy=compact are required"
            )


def _no_answer() -> RegistryError:
    return RegistryError(RegistryCode.STORE_TIMEOUT, f"no response for {TOPIC} in {_WRITE_SECONDS} s")

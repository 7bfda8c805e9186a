"""A broker inside another program, for tests and tools: `with Broker() as broker:` or `async with Broker() as broker:`.

The plain form runs the broker on its own thread and event loop, so that blocking clients in the same process can use
it; the async form runs it on the caller's loop. By default the data are in a temporary directory, and the port is any
free one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from ..server.broker import BrokerServer
from ..server.cleaning.cleaning_work import cleaning_work
from ..server.config.broker_config import BrokerConfig
from ..server.runtime.host import host_ports
from .arguments import Setting, Topics, partition_counts, properties, whole_number
from .clock import Clock
from .contents import Contents, NewRecords, until
from .disk import FaultyDisk, ForgetfulDisk
from .embedded import Embedded, blocking
from .faults import Faults
from .folders import TemporaryFolder, copy, make
from .registry import RegistryBeside
from .security import BrokerAccess

if TYPE_CHECKING:
    from ..clients.fetched_records import ConsumerRecord
    from ..protocol.topic_partition import TopicPartition
    from ..server.cleaning.cleaning_pass import PassReport

EMBEDDED_DEFAULTS = {
    "acks.all.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "log.cleaner.worker": "thread",
    "log.retention.check.interval.ms": "86400000",
    "log.segment.delete.delay.ms": "0",
}
"""Differences of a test's broker from a server: no waiting for disks and late members, and no retention before `expire`
is called. `config` overrides each.
"""
WAIT_SECONDS = 10.0


def broker_settings(given: Mapping[str, Setting], **defaults: str) -> dict[str, str]:
    """Return the settings of a test's broker: the test's `given` ones, otherwise `defaults`, and the common ones of all
    test brokers.

    Retention starts after one interval, instead of within half a minute as on a server: records of a snapshot may have
    any age. Raises TypeError, ValueError.
    """
    settings = {**EMBEDDED_DEFAULTS, **defaults, **properties(given)}
    settings.setdefault("log.initial.task.delay.ms", settings["log.retention.check.interval.ms"])
    return {name: value for name, value in settings.items() if value is not None}


class Broker(Embedded):
    """A running broker; `bootstrap` is for clients.

    topics: names, or names with partition counts, to create before the broker is ready. data_dir: the log directory; by
    default a directory that is removed at the end or if the process is killed. snapshot: a data directory, of
    `save_snapshot` or of Kafka; the broker starts with a copy of it. config: Kafka broker settings,
    `{"message.max.bytes": 2_000_000}`; None gives a setting its default. clock: the wall clock; the machine's by
    default. sasl: passwords by user; clients must authenticate, with PLAIN or SCRAM. tls: whether to encrypt
    connections, with generated certificates (`pip install barnabas[tls]`). schema_registry: whether to run one at
    `schema_registry_url` (`pip install barnabas[schema-registry]`).

    Raises TypeError and ValueError for invalid arguments, before the start. Methods block, and are thread-safe; under
    `async with` use the methods that begin with an a.
    """

    what = "broker"

    def __init__(
        self,
        topics: Topics = (),
        *,
        data_dir: str | Path | None = None,
        snapshot: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        config: Mapping[str, Setting] | None = None,
        clock: Clock | None = None,
        sasl: Mapping[str, str] | None = None,
        tls: bool = False,
        schema_registry: bool = False,
    ) -> None:
        super().__init__()
        self._registry = RegistryBeside(is_wanted=schema_registry)
        self._access = BrokerAccess(sasl or {}, tls=tls, host=host)
        self._topics = partition_counts(topics)
        self._data_dir = data_dir
        self._snapshot = snapshot
        self._settings = broker_settings(config or {}, listeners=f"{self._access.protocol}://{host}:{port}")
        self._clock = clock
        self._temporary: TemporaryFolder | None = None
        self._server: BrokerServer | None = None
        self._is_lasting = data_dir is not None or self._settings.get("acks.all.durability") != "page-cache"
        self.faults = Faults(self._on_loop, FaultyDisk() if self._is_lasting else ForgetfulDisk())
        """Faults to inject."""

    @property
    def server(self) -> BrokerServer:
        """The broker object. Its parts belong to its loop's thread."""
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    @property
    def bootstrap(self) -> str:
        """Return `host:port` for `bootstrap.servers`."""
        listener = self.server.listeners[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    @property
    def port(self) -> int:
        """Return the port of the first listener."""
        return self.server.listeners[0].port

    @property
    def ca_file(self) -> str:
        """Return the certificate for the trust store of clients, as PEM; with `tls` only."""
        return self._access.ca_file()

    def client_settings(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return settings of Java's clients, and by `security_of` for the clients of Barnabas, for this user or the
        first.
        """
        return {"bootstrap.servers": self.bootstrap, **self._access.client_settings(user, mechanism)}

    @property
    def schema_registry_url(self) -> str:
        """Return `http://127.0.0.1:port` of the registry; with `schema_registry` only."""
        return self._registry.url

    def start(self) -> None:
        """Start on a separate thread; clients are served when this returns. Raises OSError, KafkaError."""
        __tracebackhide__ = True
        self._start_thread()

    def stop(self) -> None:
        """Stop and remove everything, except data in a given directory. A second call has no effect."""
        self._stop_thread()

    async def acreate_topic(self, name: str, partitions: int = 1, config: Mapping[str, Setting] | None = None) -> None:
        """Create a topic; it can be written to when this returns. Raises KafkaError, TypeError."""
        try:
            settings = properties(config or {}, of_topic=True)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        given = {key: value for key, value in settings.items() if value is not None}
        await self.server.create_topic(name, whole_number(name, partitions), given)

    async def adelete_topic(self, name: str) -> None:
        """Delete a topic; it is removed completely when this returns. Raises KafkaError."""
        await self.server.delete_topic(name)

    async def acompact(self, topic: str, partition: int | None = None) -> list[PassReport]:
        """Compact a topic, or one partition; complete when this returns.

        Every record with a later record of its key is removed, including the newest segment; tombstones are removed by
        the first compaction that is `delete.retention.ms` later, also without new records. Raises KafkaError.
        """
        return await self.server.state.cleaner.compact(topic, partition)

    async def aexpire(self) -> None:
        """Run the broker's periodic work now: retention of records, expiry of offsets and of producers."""
        state = self.server.state
        await state.replica_manager.delete_old_segments(list(state.log_manager.logs))
        await state.group_coordinator.cleanup_expired_offsets()
        await state.replica_manager.expire_producers()

    async def aproduce(
        self,
        topic: str,
        records: NewRecords,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[TopicPartition]:
        """Write records: values, or (key, value) or (key, value, headers), or a mapping of keys to values.

        Text is UTF-8. A key selects the partition as in Kafka's clients, other records use all in turn. A missing topic
        is created as for a client. Returns the partition of each record. Raises KafkaError, TypeError.
        """
        return await self._contents.produce(topic, records, partition=partition, timestamp_ms=timestamp_ms)

    async def arecords(self, topic: str, partition: int | None = None) -> list[ConsumerRecord]:
        """Return all records that a read_committed consumer could read, partition by partition.

        Raises KafkaError.
        """
        return await self._contents.records(topic, partition)

    async def adelete_records(
        self, topic: str, partition: int | None = None, *, before: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records of a topic, or of one partition, or only before an offset.

        Returns the log start offset of each partition. Raises KafkaError.
        """
        return await self._contents.delete_records(topic, partition, before)

    async def await_for(
        self,
        topic: str,
        count: int = 1,
        *,
        partition: int | None = None,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - the blocking form has it
    ) -> list[ConsumerRecord]:
        """Wait until a topic, which may be missing at first, has `count` records, and return all of them.

        Raises TimeoutError after `timeout` seconds, with the number of records.
        """
        contents, loop = self._contents, asyncio.get_running_loop()
        deadline = loop.time() + timeout
        found: list[ConsumerRecord] = []
        while len(found) < count:
            seen = len(found)
            may_have = await until(lambda: contents.may_have(topic, partition, count), max(0.0, deadline - loop.time()))
            if self.server.state.metadata.topic(topic) is not None:
                found = await contents.records(topic, partition)
            if len(found) < count and (not may_have or loop.time() >= deadline):
                raise TimeoutError(f"{topic} has {len(found)} of {count} records after {timeout} s")
            if len(found) == seen:
                await asyncio.sleep(0.01)
        return found

    async def acommitted(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; empty if there are none. Raises KafkaError."""
        return self._contents.committed(group)

    async def alag(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """Return the lag of a group by partition: of its committed offsets, or of all partitions of a topic.

        Raises KafkaError.
        """
        return self._contents.lag(group, topic)

    async def await_for_lag(
        self,
        group: str,
        topic: str,
        most: int = 0,
        *,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - the blocking form has it
    ) -> dict[TopicPartition, int]:
        """Wait until a group's lag in a topic is at most `most`. Raises TimeoutError, KafkaError."""
        contents = self._contents
        if not await until(lambda: sum(contents.lag(group, topic).values()) <= most, timeout):
            raise TimeoutError(f"{group} has lag in {topic} after {timeout} s: {_shown(contents.lag(group, topic))}")
        return contents.lag(group, topic)

    async def arestart(self) -> None:
        """Stop and start with the same data at the same address: clients must reconnect. Raises OSError."""
        listeners = ",".join(f"{one.name}://{one.host}:{one.port}" for one in self.server.listeners)
        await self._stop_server()
        await self._start_server({**self._settings, "listeners": listeners})

    async def asave_snapshot(self, folder: str | Path) -> None:
        """Store all topics, records and offsets in a new directory, for `Broker(snapshot=…)`.

        The broker restarts for it, so that everything is on disk: clients reconnect. Raises OSError.
        """
        make(folder)
        listeners = ",".join(f"{one.name}://{one.host}:{one.port}" for one in self.server.listeners)
        await self._stop_server()
        try:
            copy(self._directory, folder)
        finally:
            await self._start_server({**self._settings, "listeners": listeners})

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists."""
        found: bool = self._on_loop(lambda: name in self.server.state.metadata)
        return found

    create_topic = blocking(acreate_topic)
    delete_topic = blocking(adelete_topic)
    compact = blocking(acompact)
    expire = blocking(aexpire)
    produce = blocking(aproduce)
    records = blocking(arecords)
    delete_records = blocking(adelete_records)
    wait_for = blocking(await_for)
    committed = blocking(acommitted)
    lag = blocking(alag)
    wait_for_lag = blocking(await_for_lag)
    restart = blocking(arestart)
    save_snapshot = blocking(asave_snapshot)

    # -- internals -----------------------------------------------------------------------------------------------

    @property
    def _contents(self) -> Contents:
        return Contents(self.server.state)

    async def _start(self) -> None:
        try:
            if self._data_dir is None:
                self._temporary = TemporaryFolder()
            if self._snapshot is not None:
                copy(self._snapshot, self._directory)
            await self._start_server(self._settings)
            for name, partitions in self._topics.items():
                await self.server.create_topic(name, partitions, {}, exist_ok=True)
            await self._registry.start(self.client_settings())
        except BaseException:
            await self._stop()
            raise

    @property
    def _directory(self) -> str:
        return self._temporary.path if self._temporary is not None else str(self._data_dir)

    async def _start_server(self, settings: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        config = BrokerConfig.from_properties({"log.dirs": self._directory, **self._access.settings(), **settings})
        ports = replace(
            host_ports(loop, cleaning_work(config.log_cleaner_worker, loop)),
            filesystem=self.faults.disk,
            is_lasting=self._is_lasting,
            fault=self.faults.points.__contains__,
        )
        if self._clock is not None:
            ports = replace(ports, now_ms=self._clock.now_ms)
        server = self._server = BrokerServer(config, ports, loop)
        await server.start()
        await server.state.security.set_passwords(self._access.passwords)
        self.faults.attach(server.apis, server.state)

    async def _stop_server(self) -> None:
        server, self._server = self._server, None
        self.faults.detach()
        if server is not None:
            await server.stop()

    async def _stop(self) -> None:
        await self._registry.stop()
        await self._stop_server()
        if self._temporary is not None:
            self._temporary.remove()
            self._temporary = None
        self._access.close()


def _shown(lags: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{place}: {lag}" for place, lag in lags.items())

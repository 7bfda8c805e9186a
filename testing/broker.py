"""A broker inside another program, for tests and tools: `with Broker() as broker:` or `async with Broker() as broker:`.

The plain form runs the broker on a thread and loop of its own, so that blocking clients in the same process can talk
to it; the async form runs it on the caller's loop. Either way the data live in a temporary folder unless one is given,
and the port is any free one unless one is asked for.
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
    "log.cleaner.worker": "thread",
    "log.retention.check.interval.ms": "86400000",
    "log.segment.delete.delay.ms": "0",
}
"""Where a test's broker differs from a server: no waiting for disks and stragglers, and no record goes because of its
age or of how many there are before `expire` is called. `config` overrides each."""
WAIT_SECONDS = 10.0


def broker_settings(given: Mapping[str, Setting], **defaults: str) -> dict[str, str]:
    """What a test's broker is started with: `given` by the test, otherwise `defaults`, and those of all test's brokers.

    Retention comes first after one interval, and not, as a server's does, within half a minute of the start: records of
    a snapshot may be as old as they like. Raises TypeError, ValueError.
    """
    settings = {**EMBEDDED_DEFAULTS, **defaults, **properties(given)}
    settings.setdefault("log.initial.task.delay.ms", settings["log.retention.check.interval.ms"])
    return {name: value for name, value in settings.items() if value is not None}


class Broker(Embedded):
    """A running broker; `bootstrap` is what clients want to know.

    topics: names, or names with partition counts, to create before the broker is ready.
    data_dir: where the logs live; a folder that is removed at the end by default, or if the process is killed.
    snapshot: a data directory, of `save_snapshot` or of Kafka, with a copy of which the broker starts.
    config: Kafka broker settings, `{"message.max.bytes": 2_000_000}`; None gives a setting its default.
    clock: the wall clock; the machine's by default.
    sasl: passwords by user; clients have to authenticate, by PLAIN or SCRAM.
    tls: whether all that is said is encrypted, with certificates made on the spot (`pip install barnabas[tls]`).
    schema_registry: whether one runs beside it, at `schema_registry_url` (`pip install barnabas[schema-registry]`).

    Raises TypeError and ValueError for what makes no sense, before anything is started. Methods block, and any thread
    may call them; under `async with` it is those that begin with an a.
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
        """What goes wrong on purpose."""

    @property
    def server(self) -> BrokerServer:
        """The broker itself. Its parts belong to its loop's thread."""
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    @property
    def bootstrap(self) -> str:
        """`host:port` for `bootstrap.servers`."""
        listener = self.server.listeners[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.server.listeners[0].port

    @property
    def ca_file(self) -> str:
        """The certificate that clients have to trust, as PEM; with `tls` only."""
        return self._access.ca_file()

    def client_settings(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Settings of Java's clients, and of ours by `security_of`, that lead in: as `user`, or the first there is."""
        return {"bootstrap.servers": self.bootstrap, **self._access.client_settings(user, mechanism)}

    @property
    def schema_registry_url(self) -> str:
        """`http://127.0.0.1:port` of the registry; with `schema_registry` only."""
        return self._registry.url

    def start(self) -> None:
        """Start on a thread of its own; clients are served when this returns. Raises OSError, KafkaError."""
        __tracebackhide__ = True
        self._start_thread()

    def stop(self) -> None:
        """Stop; nothing is left of it, its data aside if they were given a folder. Stopping twice is fine."""
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
        """Delete a topic; nothing of it is left to be seen when this returns. Raises KafkaError."""
        await self.server.delete_topic(name)

    async def acompact(self, topic: str, partition: int | None = None) -> list[PassReport]:
        """Compact a topic, or one partition, now; it is done when this returns.

        Every record that a later one of its key replaces is gone, those of the newest segment included; keys without
        value go with the first compaction that comes `delete.retention.ms` later, also if nothing was written since.
        Raises KafkaError.
        """
        return await self.server.state.cleaner.compact(topic, partition)

    async def aexpire(self) -> None:
        """Do now what the broker does every few minutes: retention of records, expiry of offsets and of producers."""
        state = self.server.state
        await state.replica_manager.retain(list(state.log_manager.logs))
        await state.groups.expire()
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

        Text is UTF-8. With a key the partition is that of Kafka's clients, without one they take turns. A topic that is
        not there is made as for a client. Returns the partition of each record. Raises KafkaError, TypeError.
        """
        return await self._contents.produce(topic, records, partition=partition, timestamp_ms=timestamp_ms)

    async def arecords(self, topic: str, partition: int | None = None) -> list[ConsumerRecord]:
        """What a consumer could read from the beginning, partition by partition, committed transactions only.

        Raises KafkaError.
        """
        return await self._contents.records(topic, partition)

    async def adelete_records(
        self, topic: str, partition: int | None = None, *, before: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records of a topic, or of one partition, or those before an offset.

        Returns where each partition begins now. Raises KafkaError.
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
        """Wait until a topic, which need not be there yet, has so many records, and return all of them.

        Raises TimeoutError after `timeout` seconds, saying how many there were.
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
        """The next offsets that a group has committed; empty if there are none. Raises KafkaError."""
        return self._contents.committed(group)

    async def alag(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """How many offsets a group has before it, by partition: where it has committed, or in all of a topic.

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
        """Wait until a group has committed all of a topic but `most` offsets. Raises TimeoutError, KafkaError."""
        contents = self._contents
        if not await until(lambda: sum(contents.lag(group, topic).values()) <= most, timeout):
            raise TimeoutError(
                f"{group} lags behind in {topic} after {timeout} s: {_shown(contents.lag(group, topic))}"
            )
        return contents.lag(group, topic)

    async def arestart(self) -> None:
        """Stop and start with the same data at the same address: clients have to connect anew. Raises OSError."""
        listeners = ",".join(f"{one.name}://{one.host}:{one.port}" for one in self.server.listeners)
        await self._stop_server()
        await self._start_server({**self._settings, "listeners": listeners})

    async def asave_snapshot(self, folder: str | Path) -> None:
        """Keep all topics, records and offsets as they are now, in a folder that is made, for `Broker(snapshot=…)`.

        The broker restarts for it, so that all is on the disk: clients connect anew. Raises OSError.
        """
        make(folder)
        listeners = ",".join(f"{one.name}://{one.host}:{one.port}" for one in self.server.listeners)
        await self._stop_server()
        try:
            copy(self._directory, folder)
        finally:
            await self._start_server({**self._settings, "listeners": listeners})

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic of that name."""
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

    # -- inside ----------------------------------------------------------------------------------------------------

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

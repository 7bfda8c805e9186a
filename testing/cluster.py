"""Several brokers inside another program, to test clients during broker failures.

    with Cluster(brokers=3, topics={"orders": 3}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(cluster.leader("orders", 0))

All brokers are real and have real sockets, on one thread, with data in temporary directories. Their metadata tree is in
memory for the lifetime of the cluster: the death of a broker is detected immediately, not after a session timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from ..server.broker import BrokerServer
from ..server.cleaning.cleaning_work import cleaning_work
from ..server.config.broker_config import BrokerConfig
from ..server.coordinator.coordinator_topic import partition_for
from ..server.metadata.data_tree import DataTree
from ..server.metadata.metadata_cache import PartitionImage
from ..server.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ..server.runtime.host import host_ports, now_ms
from .arguments import Setting, Topics, partition_counts, topic_creation
from .broker import WAIT_SECONDS, broker_settings
from .disk import FaultyDisk, ForgetfulDisk
from .embedded import Embedded, blocking
from .faults import Faults
from .folders import TemporaryFolder
from .links import Links
from .registry import RegistryBeside
from .security import BROKER, BrokerAccess
from .sessions import EndableSession

T = TypeVar("T")

Coordinated = Literal["group", "transaction", "share"]
"""Kinds of coordinators: of a group, of a transactional id, or of a share-partition (`group:topic id:partition`)."""
COORDINATED_IN: dict[Coordinated, str] = {
    "group": GROUP_METADATA_TOPIC,
    "transaction": TRANSACTION_STATE_TOPIC,
    "share": SHARE_GROUP_STATE_TOPIC,
}
MAX_REPLICAS = 3
LOOK_SECONDS = 0.005


class ClusterBroker:
    """One broker of the cluster, running or not."""

    def __init__(self, broker_id: int, settings: Mapping[str, str], faults: Faults) -> None:
        self.broker_id = broker_id
        self.settings = dict(settings)
        self.faults = faults
        self.server: BrokerServer | None = None
        self.store: EndableSession | None = None
        self.is_missed = False
        """Whether its session was ended, so that it counts as dead."""
        self.is_cut = False
        """Whether it is cut off from the tree; it may also be paused."""


class Cluster(Embedded):
    """Running brokers with the ids 1, 2, 3 …; `bootstrap` is for clients.

    topics: names, or names with partition counts, to create before the cluster is ready. config: Kafka broker settings
    for all; None gives a setting its default. racks: `broker.rack` of the brokers in turn. sasl: passwords by user;
    clients must authenticate, with PLAIN or SCRAM, as do brokers, with the user `broker`. tls: whether to encrypt
    connections, with generated certificates (`pip install barnabas[tls]`). schema_registry: whether to run one at
    `schema_registry_url` (`pip install barnabas[schema-registry]`).

    Methods block and are thread-safe; under `async with` use the methods that begin with an a.
    """

    what = "cluster"

    def __init__(
        self,
        brokers: int = 3,
        topics: Topics = (),
        *,
        config: Mapping[str, Setting] | None = None,
        racks: Sequence[str] = (),
        sasl: Mapping[str, str] | None = None,
        tls: bool = False,
        schema_registry: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(racks, str):
            raise TypeError(f"{racks!r} is a single name; a list of racks is [{racks!r}]")
        self._racks = racks
        self._registry = RegistryBeside(is_wanted=schema_registry)
        if brokers < 1:
            raise ValueError(f"expected at least one broker, not {brokers}")
        self._access = BrokerAccess(sasl or {}, tls=tls, is_cluster=True)
        replicas = str(min(brokers, MAX_REPLICAS))
        settings = broker_settings(
            config or {},
            **{
                "default.replication.factor": replicas,
                "offsets.topic.replication.factor": replicas,
                "share.coordinator.state.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "replica.lag.time.max.ms": "2000",
            },
        )
        if not settings.get("inter.broker.listener.name"):
            settings.setdefault("security.inter.broker.protocol", self._access.protocol)
        if settings.get("authorizer.class.name") and sasl:
            settings["super.users"] = f"User:{BROKER};{settings.get('super.users') or ''}"
        self._settings = settings
        self._topics = partition_counts(topics)
        self._is_lasting = self._settings.get("acks.all.durability") != "page-cache"
        self._members = {one: self._member(one) for one in range(1, brokers + 1)}
        self._tree = DataTree(now_ms)
        self._links = Links()
        self._temporary: TemporaryFolder | None = None

    def _member(self, broker_id: int) -> ClusterBroker:
        faults = Faults(self._on_loop, FaultyDisk() if self._is_lasting else ForgetfulDisk())
        rack = {"broker.rack": self._racks[(broker_id - 1) % len(self._racks)]} if self._racks else {}
        return ClusterBroker(broker_id, {**self._settings, **rack}, faults)

    def faults(self, broker_id: int) -> Faults:
        """Return the faults of one broker, which persist over restarts. Raises KeyError."""
        return self._known(broker_id).faults

    # -- state for clients and tests -------------------------------------------------------------------------------

    @property
    def brokers(self) -> list[int]:
        """Return the ids of the running brokers."""
        return [member.broker_id for member in self._members.values() if member.server is not None]

    @property
    def bootstrap(self) -> str:
        """Return `bootstrap.servers` with the running brokers."""
        return ",".join(self.address(broker_id) for broker_id in self.brokers)

    def address(self, broker_id: int) -> str:
        """Return `host:port` of one broker."""
        listener = self.server(broker_id).listeners[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    def client_settings(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return settings of Java's clients, and by `security_of` for the clients of Barnabas, for this user or the
        first.
        """
        return {"bootstrap.servers": self.bootstrap, **self._access.client_settings(user, mechanism)}

    def server(self, broker_id: int) -> BrokerServer:
        """Return a running broker object. Its parts belong to the cluster's thread."""
        server = self._running(broker_id).server
        assert server is not None, "it runs"
        return server

    @property
    def schema_registry_url(self) -> str:
        """Return `http://127.0.0.1:port` of the registry; with `schema_registry` only."""
        return self._registry.url

    @property
    def controller(self) -> int | None:
        """Return the controller; None if there is none."""
        return next((one for one in self._alive() if self.server(one).state.controller.is_active), None)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition, -1 without one. Raises KeyError for a missing partition."""
        return self._image(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the in-sync replicas. Raises KeyError for a missing partition."""
        return self._image(topic, partition).isr

    def coordinator(self, name: str, of: Coordinated = "group") -> int:
        """Return the coordinator of a group, or of a transactional id; -1 without one.

        Raises KeyError until a client has looked up a coordinator of that kind.
        """
        return self.leader(*self._kept_in(name, of))

    def _kept_in(self, name: str, of: Coordinated) -> TopicPartition:
        """Return the partition whose leader is the coordinator."""
        topic = COORDINATED_IN[of]
        for broker_id in self._alive():
            image = self.server(broker_id).state.metadata.topic(topic)
            if image is not None:
                return TopicPartition(topic, partition_for(name, len(image.partitions)))
        raise KeyError(f"{name} has no coordinator: no client has looked up the coordinator of a {of} yet")

    def _image(self, topic: str, partition: int) -> PartitionImage:
        """Return the metadata of the controller, or without one of any running broker."""
        active = self.controller
        for broker_id in self._alive() if active is None else [active]:
            image = self.server(broker_id).state.metadata.partition(TopicPartition(topic, partition))
            if image is not None:
                return image
        raise KeyError(f"partition {topic}-{partition} does not exist")

    def _known(self, broker_id: int) -> ClusterBroker:
        """Return a broker, running or not. Raises KeyError."""
        if broker_id not in self._members:
            raise KeyError(f"unknown broker {broker_id}. Expected one of {', '.join(map(str, self._members))}")
        return self._members[broker_id]

    def _alive(self) -> list[int]:
        """Return the running brokers that the others have in their metadata."""
        return [broker_id for broker_id in self.brokers if not self._members[broker_id].is_missed]

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._temporary = TemporaryFolder()
        try:
            await asyncio.gather(*map(self.astart, self._members))
            for name, partitions in self._topics.items():
                await self.acreate_topic(name, partitions)
            await self._registry.start(self.client_settings(BROKER if self._access.passwords else None))
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        await self._registry.stop()
        for broker_id in self.brokers:
            server = self.server(broker_id)
            self._forget(broker_id)
            await server.stop(leave=False)
        if self._temporary is not None:
            self._temporary.remove()
            self._temporary = None
        self._access.close()

    # -- brokers -----------------------------------------------------------------------------------------------------

    async def astart(self, broker_id: int) -> None:
        """Start a stopped broker, with its data and at its address; it is registered when this returns."""
        member = self._known(broker_id)
        if member.server is not None:
            raise RuntimeError(f"broker {broker_id} runs already")
        assert self._temporary is not None, "the cluster is started already"
        loop = asyncio.get_running_loop()
        config = BrokerConfig.from_properties(
            {
                "listeners": f"{self._access.protocol}://127.0.0.1:0",
                "log.dirs": f"{self._temporary.path}/broker-{broker_id}",
                "broker.id": str(broker_id),
                **self._access.settings(),
                **member.settings,
            }
        )

        async def join() -> EndableSession:
            member.store = EndableSession(self._tree)
            return member.store

        ports = replace(
            host_ports(loop, cleaning_work(config.log_cleaner_worker, loop)),
            filesystem=member.faults.disk,
            is_lasting=self._is_lasting,
            fault=member.faults.points.__contains__,
        )
        server = BrokerServer(config, ports, loop, join_store=join)
        try:
            await server.start()
        except BaseException:
            await server.stop()
            raise
        await server.state.security.set_passwords(self._access.passwords)
        server.apis.add_interceptor(self._links.interceptor(broker_id))
        member.faults.attach(server.apis, server.state)
        member.server = server
        # Clients use its former address.
        member.settings["listeners"] = ",".join(f"{one.name}://{one.host}:{one.port}" for one in server.listeners)

    async def aadd(self) -> int:
        """Start an additional broker, with the next id, which is returned. It has no replicas until some are created or
        moved.
        """
        broker_id = max(self._members) + 1
        self._members[broker_id] = self._member(broker_id)
        try:
            await self.astart(broker_id)
        except BaseException:
            del self._members[broker_id]
            raise
        return broker_id

    async def akill(self, broker_id: int) -> None:
        """Kill a broker: connections break, the cluster detects it. Its data are kept."""
        server, store = self.server(broker_id), self._session(broker_id)
        server.sockets.abort()
        self._forget(broker_id)
        await store.close()
        await server.stop(leave=False)

    async def astop(self, broker_id: int) -> None:
        """Stop a broker cleanly: others become leaders first."""
        server = self.server(broker_id)
        self._links.resume(broker_id)
        await server.stop()
        self._forget(broker_id)

    def _forget(self, broker_id: int) -> None:
        """Remove a broker from the running ones. Cuts are kept: they belong to the network."""
        member = self._known(broker_id)
        member.server, member.is_missed, member.is_cut = None, False, False
        member.faults.detach()
        self._links.resume(broker_id)

    # -- paused brokers and cut links ---------------------------------------------------------------------------------

    async def apause(self, broker_id: int) -> None:
        """Pause a broker, as SIGSTOP does: connections remain open without responses. Its death is detected
        immediately.
        """
        self._miss(broker_id)
        if not self._links.is_paused(broker_id):
            self._links.pause(broker_id)

    async def aresume(self, broker_id: int) -> None:
        """Resume it: it handles pending requests, with its outdated state until it is informed."""
        self._links.resume(broker_id)
        self._welcome(broker_id)

    async def acut(self, broker_id: int, other: int | None = None) -> None:
        """Cut a broker off from another: connections break, new ones are refused, clients reach both.

        Without `other`, from the metadata tree: its session ends and others become leaders, while it continues to serve
        clients.
        """
        if other is None:
            self._running(broker_id).is_cut = True
            self._miss(broker_id)
        else:
            self._links.cut(*self._pair(broker_id, other))

    async def aheal(self, broker_id: int, other: int | None = None) -> None:
        """Undo `acut`."""
        if other is not None:
            self._links.heal(*self._pair(broker_id, other))
        else:
            self._running(broker_id).is_cut = False
            self._welcome(broker_id)

    def _pair(self, one: int, other: int) -> tuple[int, int]:
        if one == other or not {one, other} <= self._members.keys():
            raise ValueError(f"{one} and {other}: expected two different brokers of {sorted(self._members)}")
        return one, other

    def _miss(self, broker_id: int) -> None:
        if not self._running(broker_id).is_missed:
            self._running(broker_id).is_missed = True
            self._session(broker_id).expire()

    def _welcome(self, broker_id: int) -> None:
        """Let it join the cluster again, unless another fault prevents it."""
        member = self._running(broker_id)
        if member.is_missed and not member.is_cut and not self._links.is_paused(broker_id):
            member.is_missed = False
            self._session(broker_id).renew()

    def _running(self, broker_id: int) -> ClusterBroker:
        member = self._known(broker_id)
        if member.server is None:
            raise RuntimeError(f"broker {broker_id} is not running")
        return member

    def _session(self, broker_id: int) -> EndableSession:
        store = self._running(broker_id).store
        assert store is not None, "a running broker has a session"
        return store

    # -- topics ----------------------------------------------------------------------------------------------------

    async def acreate_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic; all its replicas are in sync when this returns. Raises KafkaError, TimeoutError."""
        wish = topic_creation(name, partitions, replication_factor, config or {})
        active = await self._await(lambda: self.controller, "there is no controller")
        result = (await self.server(active).state.controller.create_topics([wish]))[name]
        if isinstance(result, KafkaError):
            raise result
        for index in range(partitions):
            await self.await_isr(name, index, result.replication_factor)

    async def amove_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Make another broker the leader of a partition, this one or any in-sync one; known to all when this returns.

        No broker dies, as in an operator's election: the old leader rejects clients, which look up the new one. A
        broker without a replica receives one in place of another. Returns the new leader. Raises KafkaError,
        TimeoutError, ValueError.
        """
        image = self._image(topic, partition)
        able = [one for one in (image.isr if to is None else self._alive()) if one != image.leader]
        if not able if to is None else to not in able:
            raise ValueError(f"{topic}-{partition} has leader {image.leader}; other candidates: {able}")
        leader = able[0] if to is None else to
        place = TopicPartition(topic, partition)
        active = await self._await(lambda: self.controller, "there is no controller")
        controller = self.server(active).state.controller
        replicas = [leader, *(one for one in image.replicas if one != leader)][: len(image.replicas)]
        outcome = (await controller.alter_partition_reassignments({place: replicas}))[place]
        if outcome is None:
            await self._await(lambda: leader in self.isr(topic, partition) or None, f"{leader} is not in sync")
            outcome = (await controller.elect_leaders([place], allow_unclean=False))[place]
        if outcome is not None and outcome.code is not ErrorCode.ELECTION_NOT_NEEDED:
            raise outcome

        def known() -> bool | None:
            images = [self.server(one).state.metadata.partition(place) for one in self._alive()]
            return all(one is not None and one.leader == leader for one in images) or None

        await self._await(known, f"{leader} is not the leader of {topic}-{partition}")
        return leader

    async def amove_coordinator(self, name: str, to: int | None = None, *, of: Coordinated = "group") -> int:
        """Make another broker the coordinator of a group, or of a transactional id, as `move_leader` does."""
        return await self.amove_leader(*self._kept_in(name, of), to)

    async def await_isr(
        self,
        topic: str,
        partition: int = 0,
        brokers: int | Iterable[int] = MAX_REPLICAS,
        *,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - the blocking form has it
    ) -> tuple[int, ...]:
        """Wait until this number of brokers, or exactly these, are in sync, in the metadata of all reachable brokers.

        Raises TimeoutError.
        """
        wanted = brokers if isinstance(brokers, int) else frozenset(brokers)

        def reached() -> tuple[int, ...] | None:
            active = self.controller
            told = [one for one in self._alive() if active is None or not self._links.are_cut(one, active)]
            views = {frozenset(self._view(one, topic, partition)) for one in told}
            if len(views) != 1:
                return None
            (view,) = views
            return tuple(sorted(view)) if (len(view) if isinstance(wanted, int) else view) == wanted else None

        return await self._await(reached, f"{topic}-{partition} is not in sync on {brokers}", timeout)

    def _view(self, broker_id: int, topic: str, partition: int) -> tuple[int, ...]:
        image = self.server(broker_id).state.metadata.partition(TopicPartition(topic, partition))
        return () if image is None else image.isr

    async def await_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - the blocking form has it
    ) -> int:
        """Wait until a partition has a leader, other than the given one, and return it. Raises TimeoutError."""

        def led() -> int | None:
            try:
                found = self.leader(topic, partition)
            except KeyError:
                return None  # it is being created
            return None if found in (-1, other_than) else found

        return await self._await(led, f"{topic}-{partition} has no leader", timeout)

    start = blocking(astart)
    add = blocking(aadd)
    kill = blocking(akill)
    stop = blocking(astop)
    pause = blocking(apause)
    resume = blocking(aresume)
    cut = blocking(acut)
    heal = blocking(aheal)
    create_topic = blocking(acreate_topic)
    move_leader = blocking(amove_leader)
    move_coordinator = blocking(amove_coordinator)
    wait_for_isr = blocking(await_isr)
    wait_for_leader = blocking(await_leader)

    # -- internals ---------------------------------------------------------------------------------------------------

    async def _await(self, look: Callable[[], T | None], reason: str, seconds: float = WAIT_SECONDS) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (found := look()) is None:
            if loop.time() >= deadline:
                raise TimeoutError(f"{reason} after {seconds} s")
            await asyncio.sleep(LOOK_SECONDS)
        return found

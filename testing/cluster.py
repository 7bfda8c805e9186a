"""Several brokers inside another program: what does my client do when a broker dies?

with Cluster(brokers=3, topics={"orders": 3}) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    cluster.kill(cluster.leader("orders", 0))

All brokers are real ones on real sockets, on one thread, with data of their own in temporary folders. What holds them
together is a metadata tree in memory that lives as long as the cluster: a broker that is killed is missed at once, not
after a session's timeout.
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
from ..server.controller.topic_rules import TopicCreation
from ..server.coordinator.coordinator_topic import partition_for
from ..server.metadata.metadata_cache import PartitionImage
from ..server.metadata.node_tree import NodeTree
from ..server.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ..server.runtime.host import host_ports, now_ms
from .arguments import Setting, Topics, partition_counts, properties
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

Coordinated = Literal["group", "transaction"]
"""What a coordinator is asked for: the name of a group, or a transactional id."""
COORDINATED_IN: dict[Coordinated, str] = {"group": GROUP_METADATA_TOPIC, "transaction": TRANSACTION_STATE_TOPIC}
MOST_REPLICAS = 3
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
        """Whether its session was ended, and it counts as dead."""
        self.is_cut = False
        """Whether it is cut off from the tree; it may hang besides."""


class Cluster(Embedded):
    """Running brokers with the ids 1, 2, 3 …; `bootstrap` is what clients want to know.

    topics: names, or names with partition counts, to create before the cluster is ready.
    config: Kafka broker settings for all; None gives a setting its default.
    racks: where the brokers stand (`broker.rack`), one after the other and from the first again.
    sasl: passwords by user; clients have to authenticate, by PLAIN or SCRAM. Brokers do, as the user `broker`.
    tls: whether all that is said is encrypted, with certificates made on the spot (`pip install barnabas[tls]`).
    schema_registry: whether one runs beside it, at `schema_registry_url` (`pip install barnabas[schema-registry]`).

    Methods block and any thread may call them; under `async with` it is those that begin with an a.
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
            raise TypeError(f"{racks!r} is one name; racks come in a list: [{racks!r}]")
        self._racks = racks
        self._registry = RegistryBeside(is_wanted=schema_registry)
        if brokers < 1:
            raise ValueError(f"a cluster has brokers, not {brokers}")
        self._access = BrokerAccess(sasl or {}, tls=tls, is_cluster=True)
        replicas = str(min(brokers, MOST_REPLICAS))
        settings = broker_settings(
            config or {},
            **{
                "default.replication.factor": replicas,
                "offsets.topic.replication.factor": replicas,
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
        self._tree = NodeTree(now_ms)
        self._links = Links()
        self._temporary: TemporaryFolder | None = None

    def _member(self, broker_id: int) -> ClusterBroker:
        faults = Faults(self._on_loop, FaultyDisk() if self._is_lasting else ForgetfulDisk())
        rack = {"broker.rack": self._racks[(broker_id - 1) % len(self._racks)]} if self._racks else {}
        return ClusterBroker(broker_id, {**self._settings, **rack}, faults)

    def faults(self, broker_id: int) -> Faults:
        """What goes wrong on purpose at one broker, while it runs and when it comes back. Raises KeyError."""
        return self._known(broker_id).faults

    # -- what clients and tests want to know -----------------------------------------------------------------------

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers that run."""
        return [member.broker_id for member in self._members.values() if member.server is not None]

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`: the brokers that run."""
        return ",".join(self.address(broker_id) for broker_id in self.brokers)

    def address(self, broker_id: int) -> str:
        """`host:port` of one broker."""
        listener = self.server(broker_id).listeners[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    def client_settings(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Settings of Java's clients, and of ours by `security_of`, that lead in: as `user`, or the first there is."""
        return {"bootstrap.servers": self.bootstrap, **self._access.client_settings(user, mechanism)}

    def server(self, broker_id: int) -> BrokerServer:
        """A running broker itself. Its parts belong to the cluster's thread."""
        server = self._running(broker_id).server
        assert server is not None, "it runs"
        return server

    @property
    def schema_registry_url(self) -> str:
        """`http://127.0.0.1:port` of the registry; with `schema_registry` only."""
        return self._registry.url

    @property
    def controller(self) -> int | None:
        """The broker that is controller now; None while nobody is."""
        return next((one for one in self._alive() if self.server(one).state.controller.is_active), None)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition, -1 if nobody does. Raises KeyError for one that is not there."""
        return self._image(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The brokers that are in sync. Raises KeyError for a partition that is not there."""
        return self._image(topic, partition).isr

    def coordinator(self, name: str, of: Coordinated = "group") -> int:
        """The broker that coordinates a group, or the transactions of an id; -1 if nobody does.

        Raises KeyError as long as nobody has asked for a coordinator of that kind.
        """
        return self.leader(*self._kept_in(name, of))

    def _kept_in(self, name: str, of: Coordinated) -> TopicPartition:
        """The partition whose leader coordinates it."""
        topic = COORDINATED_IN[of]
        for broker_id in self._alive():
            image = self.server(broker_id).state.metadata.topic(topic)
            if image is not None:
                return TopicPartition(topic, partition_for(name, len(image.partitions)))
        raise KeyError(f"{name} has no coordinator: nobody has asked for one of a {of} yet")

    def _image(self, topic: str, partition: int) -> PartitionImage:
        """As the controller has it, or while there is none, whoever runs."""
        active = self.controller
        for broker_id in self._alive() if active is None else [active]:
            image = self.server(broker_id).state.metadata.partition(TopicPartition(topic, partition))
            if image is not None:
                return image
        raise KeyError(f"there is no partition {topic}-{partition}")

    def _known(self, broker_id: int) -> ClusterBroker:
        """One that runs or does not. Raises KeyError."""
        if broker_id not in self._members:
            raise KeyError(f"there is no broker {broker_id}, but {', '.join(map(str, self._members))}")
        return self._members[broker_id]

    def _alive(self) -> list[int]:
        """Brokers that run, and that the others know of."""
        return [broker_id for broker_id in self.brokers if not self._members[broker_id].is_missed]

    # -- life ------------------------------------------------------------------------------------------------------

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

    # -- brokers come and go ---------------------------------------------------------------------------------------

    async def astart(self, broker_id: int) -> None:
        """Start a broker that does not run, with its data and at its address; it is registered when this returns."""
        member = self._known(broker_id)
        if member.server is not None:
            raise RuntimeError(f"broker {broker_id} runs already")
        assert self._temporary is not None, "the cluster has been started"
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
        server.apis.surround(self._links.around(broker_id))
        member.faults.attach(server.apis, server.state)
        member.server = server
        # It comes back to where clients know it.
        member.settings["listeners"] = ",".join(f"{one.name}://{one.host}:{one.port}" for one in server.listeners)

    async def aadd(self) -> int:
        """Start one more broker, under the next id, which is returned. It has what is made or moved there later."""
        broker_id = max(self._members) + 1
        self._members[broker_id] = self._member(broker_id)
        try:
            await self.astart(broker_id)
        except BaseException:
            del self._members[broker_id]
            raise
        return broker_id

    async def akill(self, broker_id: int) -> None:
        """End a broker without a word to anybody: connections break, the cluster misses it. What it had stays."""
        server, store = self.server(broker_id), self._session(broker_id)
        server.sockets.abort()
        self._forget(broker_id)
        await store.close()
        await server.stop(leave=False)

    async def astop(self, broker_id: int) -> None:
        """Stop a broker cleanly: others lead before it goes."""
        server = self.server(broker_id)
        self._links.resume(broker_id)
        await server.stop()
        self._forget(broker_id)

    def _forget(self, broker_id: int) -> None:
        """It runs no more. Cuts stay: they are the network's."""
        member = self._known(broker_id)
        member.server, member.is_missed, member.is_cut = None, False, False
        member.faults.detach()
        self._links.resume(broker_id)

    # -- brokers that hang, and links that are cut -----------------------------------------------------------------

    async def apause(self, broker_id: int) -> None:
        """Have a broker hang, as after SIGSTOP: connections stay open and nothing is answered. It is missed at once."""
        self._miss(broker_id)
        if not self._links.is_paused(broker_id):
            self._links.pause(broker_id)

    async def aresume(self, broker_id: int) -> None:
        """It goes on: with what it was asked for meanwhile, and with its old beliefs until it is told better."""
        self._links.resume(broker_id)
        self._welcome(broker_id)

    async def acut(self, broker_id: int, other: int | None = None) -> None:
        """Cut a broker off from another: connections break, new ones are refused, clients reach both.

        Without `other`, from what the cluster agrees through: its session ends and others lead, while it serves
        those who still ask it as it did before.
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
            raise ValueError(f"{one} and {other} are not two brokers of {sorted(self._members)}")
        return one, other

    def _miss(self, broker_id: int) -> None:
        if not self._running(broker_id).is_missed:
            self._running(broker_id).is_missed = True
            self._session(broker_id).expire()

    def _welcome(self, broker_id: int) -> None:
        """It is one of them again, if nothing else is in its way."""
        member = self._running(broker_id)
        if member.is_missed and not member.is_cut and not self._links.is_paused(broker_id):
            member.is_missed = False
            self._session(broker_id).renew()

    def _running(self, broker_id: int) -> ClusterBroker:
        member = self._known(broker_id)
        if member.server is None:
            raise RuntimeError(f"broker {broker_id} does not run")
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
        settings = properties(config or {}, of_topic=True)
        wish = TopicCreation(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config={key: value for key, value in settings.items() if value is not None},
        )
        active = await self._await(lambda: self.controller, "no broker is controller")
        result = (await self.server(active).state.controller.create_topics([wish]))[name]
        if isinstance(result, KafkaError):
            raise result
        for index in range(partitions):
            await self.await_isr(name, index, result.replication_factor)

    async def amove_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Have another broker lead a partition, that one or any that is in sync; all know it when this returns.

        Nobody dies, as where an operator asks for it: clients are refused by the old leader and look for the new one.
        A broker that has no replica gets one in place of another's. Returns who leads now. Raises KafkaError,
        TimeoutError, ValueError.
        """
        image = self._image(topic, partition)
        able = [one for one in (image.isr if to is None else self._alive()) if one != image.leader]
        if not able if to is None else to not in able:
            raise ValueError(f"{topic}-{partition} is led by {image.leader}; {able} could lead it")
        leader = able[0] if to is None else to
        place = TopicPartition(topic, partition)
        active = await self._await(lambda: self.controller, "no broker is controller")
        controller = self.server(active).state.controller
        replicas = [leader, *(one for one in image.replicas if one != leader)][: len(image.replicas)]
        outcome = (await controller.reassign({place: replicas}))[place]
        if outcome is None:
            await self._await(lambda: leader in self.isr(topic, partition) or None, f"{leader} is not in sync")
            outcome = (await controller.elect_leaders([place], allow_unclean=False))[place]
        if outcome is not None and outcome.code is not ErrorCode.ELECTION_NOT_NEEDED:
            raise outcome

        def known() -> bool | None:
            images = [self.server(one).state.metadata.partition(place) for one in self._alive()]
            return all(one is not None and one.leader == leader for one in images) or None

        await self._await(known, f"{leader} does not lead {topic}-{partition}")
        return leader

    async def amove_coordinator(self, name: str, to: int | None = None, *, of: Coordinated = "group") -> int:
        """Have another broker coordinate a group, or the transactions of an id, as `move_leader` does."""
        return await self.amove_leader(*self._kept_in(name, of), to)

    async def await_isr(
        self,
        topic: str,
        partition: int = 0,
        brokers: int | Iterable[int] = MOST_REPLICAS,
        *,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - the blocking form has it
    ) -> tuple[int, ...]:
        """Wait until so many brokers, or just these, are in sync, and all know it whom the controller reaches.

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
        """Wait until a partition is led, by another broker than that one, and say by whom. Raises TimeoutError."""

        def led() -> int | None:
            try:
                found = self.leader(topic, partition)
            except KeyError:
                return None  # it is being made
            return None if found in (-1, other_than) else found

        return await self._await(led, f"nobody leads {topic}-{partition}", timeout)

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

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _await(self, look: Callable[[], T | None], reason: str, seconds: float = WAIT_SECONDS) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (found := look()) is None:
            if loop.time() >= deadline:
                raise TimeoutError(f"{reason} after {seconds} s")
            await asyncio.sleep(LOOK_SECONDS)
        return found

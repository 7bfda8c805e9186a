"""What only a store far away does: contact is lost, answers are, sessions expire, and not everybody may write."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.kafka import ZooKeeperServer
from tests.server.metadata.served_tree import ServedTree
from tests.server.metadata.zookeeper import Wire, open_zookeeper
from tests.server_process import free_port

from barnabas.clients.certificates import Authority
from barnabas.server.metadata.metadata_store import (
    MAX_MULTI_BYTES,
    AccessDeniedError,
    BadVersionError,
    Check,
    Create,
    EventType,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    StoreUnavailableError,
    TooLargeError,
    WatchEvent,
)
from barnabas.server.metadata.zookeeper_store import ZooKeeperStore


@asynccontextmanager
async def opened(connect: str, **settings: Any) -> AsyncIterator[ZooKeeperStore]:
    store = await open_zookeeper(connect, **settings)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def wire(zookeeper_server: ZooKeeperServer | ServedTree) -> AsyncIterator[Wire]:
    async with Wire(zookeeper_server.port) as wire:
        yield wire


def through(wire: Wire, root: str) -> str:
    return f"{wire.address}/{root.partition('/')[2]}"


async def states(store: MetadataStore) -> asyncio.Queue[SessionState]:
    heard: asyncio.Queue[SessionState] = asyncio.Queue()
    store.on_state_change(heard.put_nowait)
    return heard


async def until(heard: asyncio.Queue[SessionState], state: SessionState) -> None:
    async with asyncio.timeout(60):
        while await heard.get() is not state:
            continue


async def expire(store: ZooKeeperStore, address: str) -> None:
    """Have somebody else end the session."""

    def end() -> None:
        other = KazooClient(address.partition("/")[0], client_id=store._client.client_id)
        other.start()
        other.stop()
        other.close()

    await asyncio.to_thread(end)


async def create(store: MetadataStore) -> object:
    return await store.create("/n", b"lost answer")


async def create_ephemeral(store: MetadataStore) -> object:
    return await store.create("/n", b"lost answer", ephemeral=True)


async def set_version(store: MetadataStore) -> object:
    return (await store.set("/a", b"lost answer", 0)).version


async def fenced(store: MetadataStore) -> object:
    results = await store.multi([Check("/a", 0), SetData("/a/b", b"lost answer", 0), Create("/a/c", b"1")])
    stat = results[1]
    assert isinstance(stat, Stat)
    return [results[0], stat.version, results[2]]


@pytest.mark.parametrize(
    ("write", "result"),
    [
        (create, "/n"),
        (create_ephemeral, "/n"),
        (set_version, 1),
        (fenced, [None, 1, "/a/c"]),
    ],
)
async def test_write_whose_answer_is_lost_was_done_once(
    wire: Wire, zookeeper_root: str, write: Callable[[MetadataStore], Awaitable[object]], result: object
) -> None:
    async with opened(through(wire, zookeeper_root)) as store, opened(zookeeper_root) as other:
        await store.multi([Create("/a"), Create("/a/b")])
        wire.lose_answers_to = b"lost answer"
        assert await write(store) == result
        assert wire.lost == 1
        for path in ("/n", "/a", "/a/b"):
            stat = await other.exists(path)
            assert stat is None or stat.version <= 1


async def test_deletion_whose_answer_is_lost_was_done(wire: Wire, zookeeper_root: str) -> None:
    async with opened(through(wire, zookeeper_root)) as store:
        await store.multi([Create("/a"), Create("/a/gone")])
        wire.lose_answers_to = b"/a/gone"
        await store.delete("/a/gone", 0)
        assert wire.lost == 1
        assert await store.children("/a") == []


async def test_write_of_somebody_else_is_not_taken_for_a_lost_one(wire: Wire, zookeeper_root: str) -> None:
    async with opened(through(wire, zookeeper_root)) as store, opened(zookeeper_root) as other:
        await store.create("/a", b"0")
        await other.set("/a", b"theirs")
        wire.lose_answers_to = b"lost answer"
        with pytest.raises(BadVersionError):
            await store.set("/a", b"lost answer", 0)
        await other.create("/n", b"lost answer", ephemeral=True)
        wire.lose_answers_to = b"lost answer"
        with pytest.raises(NodeExistsError):
            await store.create("/n", b"lost answer", ephemeral=True)
        assert wire.lost == 2
        assert (await other.get("/a"))[0] == b"theirs"


async def test_requests_wait_for_contact_and_watches_survive_its_loss(wire: Wire, zookeeper_root: str) -> None:
    async with opened(through(wire, zookeeper_root)) as store, opened(zookeeper_root) as other:
        heard, events = await states(store), list[Any]()
        told = asyncio.Event()

        def watch(event: WatchEvent) -> None:
            events.append(event)
            told.set()

        await store.create("/a", b"0")
        await store.get("/a", watch)
        session = store.session_id
        wire.refusing = True
        wire.cut()
        await until(heard, SessionState.SUSPENDED)
        await other.set("/a", b"1")
        reading = asyncio.ensure_future(store.get("/a"))
        writing = asyncio.ensure_future(store.create("/b"))
        wire.refusing = False
        await until(heard, SessionState.CONNECTED)
        async with asyncio.timeout(60):
            await told.wait()
            assert (await reading)[0] == b"1"
            assert await writing == "/b"
        assert events == [WatchEvent(EventType.CHANGED, "/a")]
        assert store.session_id == session


async def test_no_contact_for_the_life_of_a_session_is_an_error(wire: Wire, zookeeper_root: str) -> None:
    async with opened(through(wire, zookeeper_root), session_timeout_ms=1000) as store:
        wire.refusing = True
        wire.cut()
        asked = await asyncio.gather(store.get("/"), store.create("/a"), return_exceptions=True)
        assert [type(error) for error in asked] == [StoreUnavailableError] * 2
        wire.refusing = False


async def test_session_expires_and_the_next_one_begins(wire: Wire, zookeeper_root: str) -> None:
    async with opened(through(wire, zookeeper_root)) as store:
        heard, events = await states(store), list[Any]()
        # The next session waits until somebody has asked for something in the old one.
        store.on_state_change(lambda state: setattr(wire, "refusing", state is SessionState.EXPIRED))
        await store.create("/lasting")
        await store.create("/e", ephemeral=True)
        await store.children("/", events.append)
        session = store.session_id
        await expire(store, zookeeper_root)
        await until(heard, SessionState.EXPIRED)
        late = asyncio.ensure_future(store.create("/of-the-old-session"))
        await asyncio.sleep(0)
        wire.refusing = False
        with pytest.raises(SessionExpiredError):
            await late
        if store.state is not SessionState.CONNECTED:
            await until(heard, SessionState.CONNECTED)
        assert store.session_id not in (0, session)
        assert await store.children("/") == ["lasting"]
        await store.create("/e", ephemeral=True)
        stat = await store.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == store.session_id
        assert events == []


async def test_the_path_of_the_address_stands_for_the_root(zookeeper_server: ZooKeeperServer | ServedTree) -> None:
    async with opened(f"{zookeeper_server.address}/deep/down") as store, opened(zookeeper_server.address) as outside:
        assert await store.create("/a") == "/a"
        assert await store.create("/a/n_", sequential=True) == "/a/n_0000000000"
        assert await outside.children("/deep/down/a") == ["n_0000000000"]
        events: list[WatchEvent] = []
        await store.children("/", events.append)
        await outside.create("/deep/down/b")
        assert await store.children("/") == ["a", "b"]
        assert events == [WatchEvent(EventType.CHILDREN, "/")]


async def test_write_that_a_server_would_hang_up_on_is_refused(zookeeper_root: str) -> None:
    async with opened(zookeeper_root) as store:
        session = store.session_id
        with pytest.raises(TooLargeError):
            await store.multi([Create("/a", bytes(MAX_MULTI_BYTES // 2)), Create("/b", bytes(MAX_MULTI_BYTES // 2))])
        with pytest.raises(TooLargeError):
            await store.create("/a", bytes(MAX_MULTI_BYTES))
        many = [Create(f"/{number:04d}") for number in range(8000)]
        await store.multi(many)
        assert len(await store.children("/")) == 8000
        await store.create("/large", bytes(MAX_MULTI_BYTES - 200))
        assert store.session_id == session


async def test_access_rights_are_kafkas(zookeeper_root: str) -> None:
    secured = {"set_acl": True, "digest": "barnabas:secret"}
    async with opened(zookeeper_root, **secured) as store, opened(zookeeper_root) as stranger:
        await store.multi([Create("/config"), Create("/config/users", b"hidden"), Create("/consumers", b"")])
        assert await stranger.children("/config") == ["users"]
        for refused in (
            stranger.get("/config/users"),
            stranger.set("/config", b"mine"),
            stranger.create("/config/mine"),
        ):
            with pytest.raises(AccessDeniedError):
                await refused
        await stranger.create("/consumers/group")
        async with opened(zookeeper_root, digest="barnabas:secret") as again:
            assert (await again.get("/config/users"))[0] == b"hidden"


async def test_sensitive_nodes_are_readable_by_their_creator_alone(zookeeper_server: Any) -> None:
    """Also those that were created before `zookeeper.set.acl` was set, and by versions that left brokers readable."""
    zookeeper_root = f"{zookeeper_server.address}/sensitive"
    secured = {"set_acl": True, "digest": "barnabas:secret"}
    before = ["/config/users/anna", "/config/brokers/1", "/delegation_token/tokens/t", "/config/topics/orders"]
    async with opened(zookeeper_root) as stranger:
        for path in before:
            parts = path.split("/")[1:]
            for depth in range(1, len(parts) + 1):
                if await stranger.exists(parent := "/" + "/".join(parts[:depth])) is None:
                    await stranger.create(parent, b"x")
        async with opened(zookeeper_root, **secured) as store:
            await store.create("/config/brokers/2", b"later")
            for path in (*before[:3], "/config/users", "/config/brokers", "/config/brokers/2"):
                for refused in (stranger.get(path), stranger.set(path, b"mine")):
                    with pytest.raises(AccessDeniedError):
                        await refused
                await store.set(path, b"ours")
            assert await stranger.get("/config/topics/orders")
        # Once more, on a tree in which all is done; and one whose nodes belong to somebody else does no harm.
        async with opened(zookeeper_root, **secured) as again:
            assert (await again.get("/config/brokers/1"))[0] == b"ours"
        async with opened(zookeeper_root, set_acl=True, digest="another:identity") as another:
            assert await another.get("/config/topics/orders")


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(240)
async def test_an_ensemble_is_reached_by_tls_and_has_to_show_who_it_is(tmp_path: Path) -> None:
    authority, port = Authority.new("test CA"), free_port()
    authority.write(tmp_path / "ca.pem")
    for name, hosts in (("server", ["127.0.0.1"]), ("elsewhere", ["elsewhere.example"]), ("broker", [])):
        authority.issue(name, hosts).write(tmp_path / f"{name}.pem")
    Authority.new("another CA").write(tmp_path / "other.pem")
    client = {"tls": True, "ca_file": str(tmp_path / "ca.pem"), "certificate_file": str(tmp_path / "broker.pem")}
    for name in ("server", "elsewhere"):
        properties = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(tmp_path / f"{name}.pem"),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(tmp_path / "ca.pem"),
            "ssl.trustStore.type": "PEM",
            "ssl.hostnameVerification": "false",
        }
        with ZooKeeperServer(tmp_path / name, properties):
            bad = [{**client, "ca_file": str(tmp_path / "other.pem")}, {**client, "certificate_file": None}]
            if name == "elsewhere":
                bad.append(client)
            for settings in bad:
                with pytest.raises(StoreUnavailableError):
                    await open_zookeeper(f"127.0.0.1:{port}", connection_timeout_ms=3000, **settings)
            good = {**client, "check_hostname": name == "server"}
            async with opened(f"127.0.0.1:{port}", **good) as store:
                await store.create("/secured", b"x")
                assert (await store.get("/secured"))[0] == b"x"


async def test_nobody_there() -> None:
    with pytest.raises(StoreUnavailableError, match=r"no response from ZooKeeper at .* within 200 ms"):
        await open_zookeeper(f"127.0.0.1:{free_port()}", connection_timeout_ms=200)


def test_a_broker_alone_does_not_load_kazoo() -> None:
    code = "import sys, barnabas.server.__main__, barnabas.server.broker; sys.exit('kazoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_missing_nodes_among_many(zookeeper_root: str) -> None:
    async with opened(zookeeper_root, max_in_flight=3) as store:
        await store.create("/a", b"1")
        found = await store.get_many(["/a", "/b"] * 500)
        assert [entry is None for entry in found] == [False, True] * 500
        with pytest.raises(NoNodeError):
            await store.get("/b")

"""The embedded tree over ZooKeeper's protocol: order, sessions, rights; what the port's contract does not tell."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl, make_digest_acl_credential
from tests.barnabas_server import BarnabasServer
from tests.frames import framed
from tests.server.metadata.raw_zookeeper import OPEN_ACL, RawClient, creation, look, request
from tests.server.metadata.served_tree import ServedTree
from tests.server_process import free_port, wait_until

from barnabas.protocol.zookeeper.constants import CreateFlag, EventCode, OpCode, WatcherType, ZkError
from barnabas.protocol.zookeeper.jute import decode, encode
from barnabas.protocol.zookeeper.multi import encode_results
from barnabas.protocol.zookeeper.records import (
    Acl,
    AddWatchRequest,
    AuthRequest,
    CreateRequest,
    GetAclResponse,
    GetDataResponse,
    Id,
    NamesResponse,
    PathRequest,
    PathResponse,
    SetAclRequest,
    SetDataRequest,
    SetWatchesRequest,
    StatResponse,
    VersionRequest,
    WatcherEvent,
    WatcherTypeRequest,
)
from barnabas.server.broker import BrokerServer
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.runtime.host import host_ports


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedTree]:
    with ServedTree(tmp_path / "metadata.sqlite") as tree:
        yield tree


@pytest.fixture
def client(served: ServedTree) -> Iterator[RawClient]:
    with RawClient(served.port) as client:
        client.connect()
        yield client


def err(client: RawClient, opcode: int, *parts: bytes) -> int:
    return client.call(opcode, *parts)[0].err


# Order


def test_answers_come_in_the_order_of_the_requests_and_reads_see_the_writes_before_them(client: RawClient) -> None:
    pipelined = b""
    for number in range(300):
        pipelined += creation("/n_", b"", CreateFlag.PERSISTENT_SEQUENTIAL, xid=3 * number)
        pipelined += request(OpCode.SET_DATA, encode(SetDataRequest("/none", b"", -1)), xid=3 * number + 1)
        pipelined += request(OpCode.GET_CHILDREN, look("/"), xid=3 * number + 2)
    client.send(pipelined)
    for number in range(300):
        made, refused, read = client.reply(), client.reply(), client.reply()
        assert [head.xid for head, _ in (made, refused, read)] == [3 * number, 3 * number + 1, 3 * number + 2]
        assert decode(PathResponse, made[1]).path == f"/n_{number:010d}"
        assert refused[0].err == ZkError.NO_NODE
        assert len(decode(NamesResponse, read[1]).names) == number + 1


def test_ping_does_not_wait(client: RawClient) -> None:
    client.send(creation("/a", xid=1) + request(OpCode.PING, xid=-2))
    assert {client.reply()[0].xid, client.reply()[0].xid} == {1, -2}


def test_notification_comes_before_an_answer_that_shows_what_it_tells(served: ServedTree, client: RawClient) -> None:
    client.call(OpCode.CREATE, encode(CreateRequest("/a", b"0", OPEN_ACL, 0)))
    client.call(OpCode.GET_DATA, look("/a", watch=True))
    with RawClient(served.port) as other:
        other.connect()
        other.call(OpCode.SET_DATA, encode(SetDataRequest("/a", b"1", -1)))
    client.send(request(OpCode.GET_DATA, look("/a"), xid=9))
    told, read = client.reply(), client.reply()
    assert (told[0].xid, decode(WatcherEvent, told[1])) == (-1, WatcherEvent(EventCode.NODE_DATA_CHANGED, 3, "/a"))
    assert (read[0].xid, decode(GetDataResponse, read[1]).data) == (9, b"1")


def test_answers_name_the_place_of_writes_in_the_order(client: RawClient) -> None:
    first, _ = client.call(OpCode.CREATE, encode(CreateRequest("/a", b"", OPEN_ACL, 0)))
    second, body = client.call(OpCode.SET_DATA, encode(SetDataRequest("/a", b"", 0)))
    read, _ = client.call(OpCode.EXISTS, look("/a"))
    stat = decode(StatResponse, body).stat
    assert (stat.czxid, stat.mzxid) == (first.zxid, second.zxid)
    assert first.zxid < second.zxid == read.zxid


def test_refused_multi_says_which_operation_and_does_nothing(client: RawClient) -> None:
    made = (OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 0))
    head, body = client.call(OpCode.MULTI, encode_results([made, (OpCode.DELETE, VersionRequest("/b", -1)), made]))
    assert head.err == ZkError.OK
    assert [int.from_bytes(body[at : at + 4], "big", signed=True) for at in (9, 22, 35)] == [0, -101, -2]
    assert err(client, OpCode.EXISTS, look("/a")) == ZkError.NO_NODE


# Sessions


def test_session_goes_to_the_connection_that_has_its_password(served: ServedTree) -> None:
    with RawClient(served.port) as first, RawClient(served.port) as second, RawClient(served.port) as thief:
        mine = first.connect(ms=9000)
        first.call(OpCode.CREATE, encode(CreateRequest("/e", b"", OPEN_ACL, CreateFlag.EPHEMERAL)))
        first.call(OpCode.EXISTS, look("/watched", watch=True))
        stolen = thief.connect(mine.session_id, b"guessed password")
        assert (stolen.session_id, stolen.timeout_ms, thief.is_closed()) == (0, 0, True)
        again = second.connect(mine.session_id, mine.password or b"", ms=7000)
        assert (again.session_id, again.timeout_ms) == (mine.session_id, 7000)
        assert first.is_closed()
        _, body = second.call(OpCode.EXISTS, look("/e"))
        assert decode(StatResponse, body).stat.ephemeral_owner == mine.session_id
        # What the former connection watched is its own affair.
        assert second.call(OpCode.CREATE, encode(CreateRequest("/watched", b"", OPEN_ACL, 0)))[0].xid == 1


def test_timeouts_are_negotiated(served: ServedTree) -> None:
    for asked, given in ((1, 1000), (5000, 5000), (10**9, 60_000), (-5, 1000)):
        with RawClient(served.port) as client:
            assert client.connect(ms=asked).timeout_ms == given


def test_expired_session_takes_its_nodes_along_and_is_no_more(served: ServedTree, client: RawClient) -> None:
    with RawClient(served.port) as silent:
        session = silent.connect(ms=1000)
        silent.call(OpCode.CREATE, encode(CreateRequest("/e", b"", OPEN_ACL, CreateFlag.EPHEMERAL)))
        client.call(OpCode.EXISTS, look("/e", watch=True))
        told, body = client.reply()
        assert (told.xid, decode(WatcherEvent, body).type) == (-1, EventCode.NODE_DELETED)
        assert silent.is_closed()
    with RawClient(served.port) as late:
        assert late.connect(session.session_id, session.password or b"").session_id == 0


def test_closed_session_is_gone_before_it_is_answered(served: ServedTree, client: RawClient) -> None:
    with RawClient(served.port) as other:
        other.connect()
        other.send(creation("/e", flags=CreateFlag.EPHEMERAL) + request(OpCode.CLOSE_SESSION, xid=2))
        assert [other.reply()[0].xid, other.reply()[0].xid] == [1, 2]
        assert err(client, OpCode.EXISTS, look("/e")) == ZkError.NO_NODE
        assert other.is_closed()


def test_session_with_thousands_of_nodes_ends_in_pieces(served: ServedTree, client: RawClient) -> None:
    with RawClient(served.port) as other:
        other.connect()
        many = [(OpCode.CREATE, CreateRequest(f"/e{n}", b"", OPEN_ACL, CreateFlag.EPHEMERAL)) for n in range(2500)]
        other.call(OpCode.MULTI, encode_results(many))
        before = served.call(lambda: served.store.request_processor.tree.zxid)
        other.call(OpCode.CLOSE_SESSION)
    assert served.call(lambda: served.store.request_processor.tree.zxid) == before + 3
    assert decode(NamesResponse, client.call(OpCode.GET_CHILDREN, look("/"))[1]).names == []


def test_client_that_has_seen_more_than_is_here_is_refused(served: ServedTree) -> None:
    with RawClient(served.port) as client, pytest.raises(EOFError):
        client.connect(zxid=10**6)


def test_killed_process_comes_back_with_nodes_and_sessions(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    server = BarnabasServer(tmp_path, properties={"coordinator.listeners": address, "num.partitions": "1"})
    with server:
        port = int(address.rpartition(":")[2])
        client = KazooClient(address, timeout=10)
        client.start()
        session = client.client_id
        client.create("/lasting", b"kept")
        client.create("/e", b"mine", ephemeral=True)
        with RawClient(port) as lost:
            lost.connect(ms=1000)
            lost.call(OpCode.CREATE, encode(CreateRequest("/left-behind", b"", OPEN_ACL, CreateFlag.EPHEMERAL)))
            server.kill()
        server.start()
        assert client.retry(client.get, "/lasting")[0] == b"kept"
        assert client.client_id == session
        data, stat = client.get("/e")
        assert (data, stat.ephemeralOwner) == (b"mine", session[0])
        wait_until(lambda: client.exists("/left-behind") is None, timeout_s=60, what="the other session expires")
        assert client.exists("/e") is not None
        client.stop()
        client.close()


def test_sessions_of_others_end_where_the_tree_is_served_no_more(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    with ServedTree(path) as served, RawClient(served.port) as client:
        client.connect()
        client.call(OpCode.CREATE, encode(CreateRequest("/e", b"", OPEN_ACL, CreateFlag.EPHEMERAL)))
    with ServedTree(path) as served:
        assert served.call(lambda: served.store.request_processor.tree.look("/e")) is not None
    with ServedTree(path, keep_sessions=False) as served:
        assert served.call(lambda: served.store.request_processor.tree.look("/e")) is None
        assert served.call(lambda: served.store.request_processor.tree.remote_sessions) == {}


# Watches


def test_client_that_is_back_hears_what_it_missed(served: ServedTree, client: RawClient) -> None:
    for path in ("/kept", "/changed", "/gone", "/parent"):
        seen, _ = client.call(OpCode.CREATE, encode(CreateRequest(path, b"", OPEN_ACL, 0)))
    client.call(OpCode.SET_DATA, encode(SetDataRequest("/changed", b"1", -1)))
    client.call(OpCode.DELETE, encode(VersionRequest("/gone", -1)))
    for path in ("/made", "/parent/child"):
        client.call(OpCode.CREATE, encode(CreateRequest(path, b"", OPEN_ACL, 0)))
    wanted = SetWatchesRequest(seen.zxid, ["/kept", "/changed", "/gone"], ["/made", "/never"], ["/parent", "/kept"])
    client.send(request(OpCode.SET_WATCHES, encode(wanted), xid=-8))
    told = {}
    while (answer := client.reply())[0].xid == -1:
        event = decode(WatcherEvent, answer[1])
        told[event.path] = EventCode(event.type)
    assert (answer[0].xid, answer[0].err) == (-8, 0)
    assert told == {
        "/changed": EventCode.NODE_DATA_CHANGED,
        "/gone": EventCode.NODE_DELETED,
        "/made": EventCode.NODE_CREATED,
        "/parent": EventCode.NODE_CHILDREN_CHANGED,
    }
    client.send(creation("/never", xid=5) + creation("/kept/child", xid=6))
    assert [client.reply()[0].xid for _ in range(4)] == [-1, 5, -1, 6]


def test_lasting_watches_hear_of_everything_below_until_they_are_removed(client: RawClient) -> None:
    assert err(client, OpCode.ADD_WATCH, encode(AddWatchRequest("/a", 1))) == 0
    client.send(creation("/a", xid=1) + creation("/a/b", xid=2) + creation("/c", xid=3))
    answers = [client.reply() for _ in range(5)]
    assert [head.xid for head, _ in answers] == [-1, 1, -1, 2, 3]
    assert [decode(WatcherEvent, answers[at][1]).path for at in (0, 2)] == ["/a", "/a/b"]
    removal = encode(WatcherTypeRequest("/a", WatcherType.ANY))
    assert err(client, OpCode.REMOVE_WATCHES, removal) == 0
    assert err(client, OpCode.REMOVE_WATCHES, removal) == ZkError.NO_WATCHER
    assert err(client, OpCode.CREATE, encode(CreateRequest("/a/d", b"", OPEN_ACL, 0))) == 0


def test_deletion_is_told_once_to_who_watches_data_and_children(client: RawClient) -> None:
    client.call(OpCode.CREATE, encode(CreateRequest("/a", b"", OPEN_ACL, 0)))
    client.call(OpCode.GET_DATA, look("/a", watch=True))
    client.call(OpCode.GET_CHILDREN, look("/a", watch=True))
    client.send(request(OpCode.DELETE, encode(VersionRequest("/a", -1)), xid=7))
    assert [client.reply()[0].xid, client.reply()[0].xid] == [-1, 7]


# Rights


def test_node_is_for_whom_its_acl_names(served: ServedTree) -> None:
    owner = KazooClient(served.address, auth_data=[("digest", "barnabas:secret")])
    stranger = KazooClient(served.address)
    for each in (owner, stranger):
        each.start()
    try:
        owner.create("/mine", b"secret", acl=[make_digest_acl("barnabas", "secret", all=True)])
        with pytest.raises(NoAuthError):
            stranger.get("/mine")
        refused = [
            lambda: stranger.set("/mine", b""),
            lambda: stranger.create("/mine/child"),
            lambda: stranger.get_children("/mine"),
            lambda: stranger.get_acls("/mine"),
            lambda: stranger.set_acls("/mine", [make_digest_acl("x", "y", all=True)]),
        ]
        for attempt in refused:
            with pytest.raises(NoAuthError):
                attempt()
        heard: list[object] = []
        stranger.exists("/mine", watch=heard.append)
        assert owner.get("/mine")[0] == b"secret"
        owner.set("/mine", b"changed")
        stranger.add_auth("digest", "barnabas:secret")
        assert stranger.get("/mine")[0] == b"changed"
        assert heard == []
    finally:
        for each in (owner, stranger):
            each.stop()
            each.close()


def test_creator_stands_for_whom_a_connection_has_proved_to_be(client: RawClient) -> None:
    creator = [Acl(31, Id("auth", ""))]
    nobody = encode(CreateRequest("/a", b"", creator, 0))
    assert err(client, OpCode.CREATE, nobody) == ZkError.INVALID_ACL
    assert err(client, OpCode.AUTH, encode(AuthRequest(0, "digest", b"u:p"))) == 0
    assert err(client, OpCode.CREATE, nobody) == 0
    _, body = client.call(OpCode.GET_ACL, encode(PathRequest("/a")))
    assert decode(GetAclResponse, body).acl == [Acl(31, Id("digest", make_digest_acl_credential("u", "p")))]


@pytest.mark.parametrize(
    "acl", [[], [Acl(31, Id("world", "me"))], [Acl(1, Id("digest", "no-hash"))], [Acl(1, Id("kerberos", "me"))]]
)
def test_acls_that_name_nobody_are_refused(client: RawClient, acl: list[Acl]) -> None:
    assert err(client, OpCode.CREATE, encode(CreateRequest("/a", b"", acl, 0))) == ZkError.INVALID_ACL


def test_hashes_are_shown_to_those_who_may_change_them_only(served: ServedTree, client: RawClient) -> None:
    acl = [Acl(1, Id("world", "anyone")), Acl(31, Id("digest", "u:hash"))]
    client.call(OpCode.CREATE, encode(CreateRequest("/a", b"", OPEN_ACL, 0)))
    client.call(OpCode.SET_ACL, encode(SetAclRequest("/a", acl, 0)))
    _, body = client.call(OpCode.GET_ACL, encode(PathRequest("/a")))
    assert decode(GetAclResponse, body).acl[1].id == Id("digest", "u:x")


def test_wrong_proof_ends_the_connection(client: RawClient) -> None:
    assert err(client, OpCode.AUTH, encode(AuthRequest(0, "kerberos", b""))) == ZkError.AUTH_FAILED
    assert client.is_closed()


def test_acls_and_nulls_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    acl = [Acl(31, Id("digest", "u:hash")), Acl(1, Id("world", "anyone"))]
    with ServedTree(path) as served, RawClient(served.port) as client:
        client.connect()
        client.call(OpCode.CREATE, encode(CreateRequest("/a", None, acl, 0)))
        before = client.call(OpCode.GET_DATA, look("/a"))[1]
        assert decode(GetDataResponse, before).data is None
    with ServedTree(path) as served, RawClient(served.port) as client:
        client.connect()
        assert client.call(OpCode.GET_DATA, look("/a"))[1] == before
        assert err(client, OpCode.SET_DATA, encode(SetDataRequest("/a", b"", -1))) == ZkError.NO_AUTH


# What is not served, and what is asked for with four letters


@pytest.mark.parametrize(
    ("opcode", "body", "code"),
    [
        (OpCode.CREATE_CONTAINER, encode(CreateRequest("/c", b"", OPEN_ACL, 4)), ZkError.UNIMPLEMENTED),
        (OpCode.CREATE_TTL, encode(CreateRequest("/c", b"", OPEN_ACL, 5)) + bytes(8), ZkError.UNIMPLEMENTED),
        (OpCode.CREATE, encode(CreateRequest("/c", b"", OPEN_ACL, 9)), ZkError.BAD_ARGUMENTS),
        (OpCode.CREATE, encode(CreateRequest("/c/", b"", OPEN_ACL, 0)), ZkError.BAD_ARGUMENTS),
        (OpCode.CREATE, encode(CreateRequest("/a\0b", b"", OPEN_ACL, 0)), ZkError.BAD_ARGUMENTS),
        (OpCode.CREATE, encode(CreateRequest("/", b"", OPEN_ACL, 0)), ZkError.NODE_EXISTS),
        (OpCode.DELETE, encode(VersionRequest("/", -1)), ZkError.BAD_ARGUMENTS),
        (OpCode.RECONFIG, b"", ZkError.RECONFIG_DISABLED),
        (OpCode.GET_EPHEMERALS, encode(PathRequest("/")), ZkError.UNIMPLEMENTED),
        (OpCode.SASL, b"", ZkError.AUTH_FAILED),
        (4711, b"", ZkError.UNIMPLEMENTED),
        (OpCode.CREATE, b"\0", ZkError.MARSHALLING_ERROR),
        (OpCode.GET_DATA, b"\0\0\0\5/", ZkError.MARSHALLING_ERROR),
    ],
)
def test_what_is_refused_and_how(client: RawClient, opcode: int, body: bytes, code: int) -> None:
    assert err(client, opcode, body) == code
    assert err(client, OpCode.EXISTS, look("/")) == 0


def test_four_letter_words(served: ServedTree, client: RawClient) -> None:
    def ask(word: bytes) -> str:
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            connection.sendall(word)
            return connection.makefile("rb").read().decode()

    assert ask(b"ruok") == "imok"
    assert ask(b"srvr\r\n").startswith("Zookeeper version: 3.8.4-barnabas\n")
    assert "Clients:\n /127.0.0.1[1](queued=0,recved=" in ask(b"stat")
    assert "zk_num_alive_connections\t2\n" in ask(b"mntr")
    assert ask(b"kill") == "kill is not executed because it is not in the whitelist.\n"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"coordinator.listeners": "0.0.0.0:2181"}, "open to other machines"),
        ({"coordinator.listeners": ":2181"}, "every address is open"),
        ({"coordinator.listeners": "127.0.0.1:2181,10.0.0.1:2181"}, "10.0.0.1 is open"),
        ({"coordinator.listeners": "127.0.0.1"}, "must be host:port"),
        (
            {"coordinator.listeners": "127.0.0.1:2181", "zookeeper.connect": "127.0.0.1:2182"},
            "no metadata store of its own",
        ),
    ],
)
def test_addresses_that_are_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.from_properties(settings)


def test_addresses_that_other_machines_reach_have_to_be_meant() -> None:
    settings = {"coordinator.listeners": "[::1]:2181, 10.0.0.1:2182", "coordinator.allow.remote": "true"}
    assert BrokerConfig.from_properties(settings).coordinator_addresses == (("::1", 2181), ("10.0.0.1", 2182))


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_broker_that_serves_its_tree_refuses_other_users_of_the_machine(tmp_path: Path, is_own: bool) -> None:
    loop = asyncio.get_running_loop()
    ports = dataclasses.replace(host_ports(loop, WorkerPool(loop)), is_own_user=lambda peer, own: is_own)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "coordinator.listeners": "127.0.0.1:0",
        "coordinator.owner.only": "true",
        "broker.id": "1",
    }
    server = BrokerServer(BrokerConfig.from_properties(settings), ports, loop)
    try:
        await server.start()
        host, _, port = (server.config.coordinator_listeners or "").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        new_session = struct.pack(">iqiqi", 0, 0, 10_000, 0, 16) + bytes(16)
        writer.write(framed(new_session))
        answer = b""
        with suppress(ConnectionResetError):
            answer = await asyncio.wait_for(reader.read(4), 60)
        assert bool(answer) is is_own
        writer.close()
    finally:
        await server.stop()

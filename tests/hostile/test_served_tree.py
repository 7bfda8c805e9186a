"""Clients of the served tree that mean harm, or stop in the middle: others are served, and memory is bounded."""

from __future__ import annotations

import gc
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.server.metadata.raw_zookeeper import OPEN_ACL, RawClient, creation, look, request
from tests.server.metadata.served_tree import ServedTree
from tests.server_process import wait_until

from barnabas.protocol.zookeeper.constants import MAX_FRAME, CreateFlag, OpCode, ZkError
from barnabas.protocol.zookeeper.jute import MAX_ITEMS, encode
from barnabas.protocol.zookeeper.multi import MAX_OPERATIONS, encode_results
from barnabas.protocol.zookeeper.records import (
    Acl,
    AuthRequest,
    CreateRequest,
    ErrorResponse,
    Id,
    MultiHeader,
    SetWatchesRequest,
    VersionRequest,
    WatchedRequest,
)
from barnabas.server.metadata.served import connection, requests, session_tracker, tree_server
from barnabas.server.metadata.tree_acls import MAX_ENTRIES


@pytest.fixture
def served() -> Iterator[ServedTree]:
    with ServedTree() as tree:
        yield tree


@pytest.fixture
def bystander(served: ServedTree) -> Iterator[RawClient]:
    """Somebody who was there before, and is served whatever happens."""
    with RawClient(served.port) as client:
        client.connect(ms=60_000)  # it may have nothing to say for as long as others are at it
        yield client
        assert client.call(OpCode.EXISTS, look("/"))[0].err == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        struct.pack(">i", MAX_FRAME + 1),
        struct.pack(">i", 0),
        struct.pack(">i", 20) + bytes(20),
        struct.pack(">i", 28) + b"\x7f" * 28,
        struct.pack(">iiqiqi", 28, 0, 0, 0, 0, 0x7FFFFFFF),
    ],
)
def test_what_is_no_beginning_of_a_session_is_cut_off(served: ServedTree, bystander: RawClient, sent: bytes) -> None:
    with RawClient(served.port) as client:
        client.send(sent)
        assert client.is_closed()


@pytest.mark.parametrize(
    "body",
    [
        encode_results([(OpCode.DELETE, VersionRequest("/x", -1))] * (MAX_OPERATIONS + 1)),
        encode_results([(OpCode.GET_DATA, VersionRequest("/x", -1))]),
        b"",
        struct.pack(">ibi", OpCode.CREATE, 0, -1),
    ],
)
def test_multis_that_are_too_long_or_none_are_refused(served: ServedTree, bystander: RawClient, body: bytes) -> None:
    assert bystander.call(OpCode.MULTI, body)[0].err == ZkError.MARSHALLING_ERROR


def test_lists_are_bounded(served: ServedTree, bystander: RawClient) -> None:
    paths = ["/"] * (MAX_ITEMS + 1)
    watches = encode(SetWatchesRequest(0, paths, [], []))
    assert bystander.call(OpCode.SET_WATCHES, watches)[0].err == ZkError.MARSHALLING_ERROR
    many = [Acl(1, Id("digest", f"user:{number}")) for number in range(MAX_ENTRIES + 1)]
    assert bystander.call(OpCode.CREATE, encode(CreateRequest("/a", b"", many, 0)))[0].err == ZkError.INVALID_ACL
    count = struct.pack(">i", 0x7FFFFFFF)
    body = encode(CreateRequest("/a", b"", OPEN_ACL, 0))[:10] + count
    assert bystander.call(OpCode.CREATE, body)[0].err == ZkError.MARSHALLING_ERROR


def test_half_received_frames_share_a_budget(
    served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_server, "HALF_RECEIVED_BYTES", 1 << 20)
    half = struct.pack(">i", MAX_FRAME) + bytes(MAX_FRAME // 2)
    with ExitStack() as stack:
        slow = [stack.enter_context(RawClient(served.port)) for _ in range(5)]
        for client in slow:
            client.connect()
            client.send(half)
        wait_until(lambda: served.call(lambda: len(served.server.connections)) <= 3, timeout_s=60, what="some are gone")
        assert slow[0].is_closed()
        served.call(lambda: None)
        # Frames that come in one go are taken all the same.
        large = encode(CreateRequest("/large", bytes(900_000), OPEN_ACL, 0))
        assert bystander.call(OpCode.CREATE, large)[0].err == 0


def test_who_says_nothing_is_let_go(served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_server, "PATIENCE_TICKS", 1)
    with RawClient(served.port) as client:
        client.send(b"\0\0\0")
        assert client.is_closed()


def test_connections_are_bounded_and_the_homeless_make_room(
    served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_server, "MAX_CONNECTIONS", 4)
    with ExitStack() as stack:
        idle = [stack.enter_context(RawClient(served.port)) for _ in range(3)]
        wait_until(lambda: served.call(lambda: len(served.server.connections)) == 4, timeout_s=60, what="they are in")
        late = stack.enter_context(RawClient(served.port))
        assert late.connect().session_id > 0
        assert idle[0].is_closed()
        for client in idle[1:]:
            client.connect()
        assert stack.enter_context(RawClient(served.port)).is_closed()


def test_sessions_are_bounded(served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_server, "MAX_SESSIONS", 3)
    with RawClient(served.port) as first, RawClient(served.port) as second, RawClient(served.port) as client:
        first.connect(ms=60_000)
        second.connect(ms=60_000)
        with pytest.raises(EOFError):
            client.connect()


def test_sessions_of_an_address_are_bounded_and_abandoned_ones_make_room(
    served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_server, "MAX_SESSIONS_PER_HOST", 6)
    owners = []
    for number in range(2):
        with RawClient(served.port) as client:
            owners.append(client.connect(ms=60_000).session_id)
            flags = CreateFlag.EPHEMERAL
            assert client.call(OpCode.CREATE, encode(CreateRequest(f"/e{number}", b"", OPEN_ACL, flags)))[0].err == 0

    def connection_count() -> int:
        return served.call(lambda: len(served.server.connections))

    for _ in range(50):
        with RawClient(served.port) as client:
            assert client.connect(ms=60_000).session_id
        wait_until(lambda: connection_count() == 1, timeout_s=60, what="the client is gone")
    assert len(served.call(lambda: dict(served.server.request_processor.tree.remote_sessions))) <= 7
    assert set(owners) <= served.call(lambda: served.server.request_processor.tree.remote_sessions.keys())
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(RawClient(served.port)).connect(ms=60_000)
        with pytest.raises(EOFError):
            stack.enter_context(RawClient(served.port)).connect(ms=60_000)


def test_the_answer_to_a_multi_read_is_bounded(
    served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MULTI_READ_BYTES", 250_000)
    bystander.call(OpCode.CREATE, encode(CreateRequest("/large", bytes(100_000), OPEN_ACL, 0)))
    reads = encode_results([(OpCode.GET_DATA, WatchedRequest("/large", False))] * 1000)
    head, body = bystander.call(OpCode.MULTI_READ, reads)
    assert head.err == 0
    assert 300_000 < len(body) < 320_000
    error = encode(MultiHeader(OpCode.ERROR, False, ZkError.SYSTEM_ERROR)) + encode(ErrorResponse(ZkError.SYSTEM_ERROR))
    assert body.count(error) == 997


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone can become another user")
@pytest.mark.parametrize("is_closed", [False, True])
def test_another_user_of_the_machine_is_refused(served: ServedTree, bystander: RawClient, *, is_closed: bool) -> None:
    """Also if the process has closed the socket before the server looks: Linux lists no owner of it any more."""
    frame = struct.pack(">iiqiqi", 44, 0, 0, 1000, 0, 16) + bytes(16)
    program = (
        "import encodings.idna, os, socket; os.setuid(65534)\n"
        f"one = socket.create_connection(('127.0.0.1', {served.port})); one.sendall(bytes.fromhex('{frame.hex()}'))\n"
        + ("one.close(); print(b'')" if is_closed else "print(one.recv(100))")
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert said.stdout.strip() == "b''" or "ConnectionResetError" in said.stderr, said
    assert len(served.call(lambda: dict(served.server.request_processor.tree.remote_sessions))) == 1


def test_watches_are_bounded(served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WATCH_BYTES", 2000)
    with RawClient(served.port) as client:
        client.connect()
        codes = [client.call(OpCode.EXISTS, look(f"/{number}" * 50, watch=True))[0].err for number in range(20)]
        assert codes.index(ZkError.SYSTEM_ERROR) > 3
        assert set(codes) == {ZkError.NO_NODE, ZkError.SYSTEM_ERROR}
        # The same one a thousand times is one.
    assert {bystander.call(OpCode.EXISTS, look("/none", watch=True))[0].err for _ in range(1000)} == {ZkError.NO_NODE}
    assert served.call(lambda: served.server.request_processor.tree.watches.count) == 1


def test_watches_and_their_memory_go_with_the_connection(served: ServedTree, bystander: RawClient) -> None:
    with RawClient(served.port) as client:
        client.connect()
        for number in range(100):
            client.call(OpCode.EXISTS, look(f"/{number}", watch=True))
        assert served.call(lambda: served.server.request_processor.tree.watches.count) == 100
    wait_until(
        lambda: served.call(lambda: served.server.request_processor.tree.watches.count) == 0,
        timeout_s=60,
        what="they are gone",
    )
    assert served.call(lambda: served.server.request_processor.tree.watches.total_cost) == 0


def test_who_does_not_take_answers_is_not_asked_for_more(
    served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bystander.call(OpCode.CREATE, encode(CreateRequest("/large", bytes(900_000), OPEN_ACL, 0)))
    monkeypatch.setattr(tree_server, "PATIENCE_TICKS", 2)
    with RawClient(served.port) as greedy:
        session = greedy.connect().session_id
        mine = served.call(lambda: next(one for one in served.server.connections if one.session == session))
        greedy.send(request(OpCode.GET_DATA, look("/large")) * 2000)
        wait_until(lambda: mine.choked_tick is not None, timeout_s=60, what="nobody reads")
        assert mine.unsent < 4 << 20
        assert bystander.call(OpCode.EXISTS, look("/large"))[0].err == 0
        wait_until(lambda: mine not in served.server.connections, timeout_s=60, what="it is cut off")


def test_who_does_not_take_notifications_is_cut_off(
    served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "UNHEARD_BYTES", 1 << 16)
    with RawClient(served.port) as deaf:
        session = deaf.connect().session_id
        # A watch that stays, of everything.
        deaf.call(OpCode.ADD_WATCH, b"\0\0\0\1/\0\0\0\1")
        mine = served.call(lambda: next(one for one in served.server.connections if one.session == session))
        name = "x" * 10_000
        for number in range(2000):
            bystander.call(OpCode.CREATE, encode(CreateRequest(f"/{name}{number}", b"", OPEN_ACL, 0)))
            if mine not in served.server.connections:
                break
        assert mine not in served.server.connections


def test_many_small_requests_are_a_portion_in_each_turn(served: ServedTree, bystander: RawClient) -> None:
    with RawClient(served.port) as busy:
        busy.connect()
        busy.send(request(OpCode.EXISTS, look("/")) * 5000)
        assert bystander.call(OpCode.EXISTS, look("/"))[0].err == 0
        assert [busy.reply()[0].err for _ in range(5000)] == [0] * 5000


def test_requests_that_come_faster_than_they_are_handled_stay_in_the_socket(
    served: ServedTree, bystander: RawClient
) -> None:
    with RawClient(served.port) as busy:
        session = busy.connect().session_id
        mine = served.call(lambda: next(one for one in served.server.connections if one.session == session))
        flood = threading.Thread(target=busy.send, args=(request(OpCode.EXISTS, look("/")) * 40_000,))
        flood.start()
        most = 0
        for number in range(40_000):
            busy.reply()
            if number % 500 == 0:
                most = max(most, served.call(lambda: mine._frames.pending))
        flood.join()
        assert most < 2 * connection.READ_AHEAD_BYTES + (1 << 18)


def test_writes_that_wait_are_bounded_for_all(
    served: ServedTree, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_server, "QUEUED_BYTES", 1000)
    with RawClient(served.port) as busy:
        busy.connect()
        busy.send(b"".join(creation("/n_", bytes(900), CreateFlag.PERSISTENT_SEQUENTIAL, xid=n) for n in range(500)))
        assert [busy.reply()[0].xid for _ in range(500)] == list(range(500))
    assert served.server.queued_bytes == 0


def test_refused_requests_leave_no_reference_cycles(served: ServedTree, bystander: RawClient) -> None:
    """The coordinator's collector runs seldom: a cycle per refused write was 576 MB within 25 seconds."""
    multi = encode_results([(OpCode.CREATE, CreateRequest("/", b"", OPEN_ACL, 0))])
    refused = [
        (OpCode.CREATE, encode(CreateRequest("/", b"", OPEN_ACL, 0)), ZkError.NODE_EXISTS),
        (OpCode.CREATE, encode(CreateRequest("/none/x", b"", OPEN_ACL, 0)), ZkError.NO_NODE),
        (OpCode.CREATE, encode(CreateRequest("no path", b"", OPEN_ACL, 0)), ZkError.BAD_ARGUMENTS),
        (OpCode.CREATE, b"", ZkError.MARSHALLING_ERROR),
        (OpCode.DELETE, encode(VersionRequest("/none", -1)), ZkError.NO_NODE),
        (OpCode.MULTI, multi, ZkError.OK),
        (OpCode.MULTI, b"", ZkError.MARSHALLING_ERROR),
        (OpCode.GET_DATA, look("/none"), ZkError.NO_NODE),
        (OpCode.RECONFIG, b"", ZkError.RECONFIG_DISABLED),
    ]

    def call_all() -> None:
        for opcode, body, code in refused:
            assert bystander.call(opcode, body)[0].err == code, opcode

    def collected() -> int:
        """Return the objects in cycles after twenty rounds."""
        gc.collect()
        for _ in range(20):
            call_all()
        return gc.collect()

    call_all()
    gc.disable()
    try:
        # An earlier test's objects may become garbage meanwhile. A cycle per request would be found in each attempt.
        assert min(collected() for _ in range(3)) < 20
    finally:
        gc.enable()


def test_proofs_of_identity_are_bounded(served: ServedTree, bystander: RawClient) -> None:
    with RawClient(served.port) as client:
        client.connect()
        codes: list[int] = []
        while not codes or codes[-1] == 0:
            auth = AuthRequest(0, "digest", f"user:{len(codes)}".encode())
            codes.append(client.call(OpCode.AUTH, encode(auth))[0].err)
        assert (len(codes), codes[-1]) == (connection.MAX_IDENTITIES, ZkError.AUTH_FAILED)
        assert client.is_closed()


def test_frame_that_dribbles_in_keeps_nobody_waiting(served: ServedTree, bystander: RawClient) -> None:
    with RawClient(served.port) as slow:
        slow.connect()
        for byte in creation("/a"):
            slow.send(bytes([byte]))
            if byte == 0x2F:
                assert bystander.call(OpCode.EXISTS, look("/a"))[0].err == ZkError.NO_NODE
        assert slow.reply()[0].err == 0


def test_reset_connections_leave_nothing(served: ServedTree, bystander: RawClient) -> None:
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(creation("/a")[:9])
    wait_until(lambda: len(served.server.connections) == 1, timeout_s=60, what="only the bystander is there")


def test_full_disk_says_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """A lost connection is how a client hears that nobody knows what became of its write."""
    with ServedTree(tmp_path / "metadata.sqlite") as served:
        connection = served.store.request_processor._journal._connection
        with RawClient(served.port) as client, RawClient(served.port) as reader:
            reader.connect()
            client.connect()
            client.call(OpCode.CREATE, encode(CreateRequest("/kept", b"1", OPEN_ACL, 0)))
            client.call(OpCode.CREATE, encode(CreateRequest("/e", b"", OPEN_ACL, CreateFlag.EPHEMERAL)))
            served.call(lambda: connection.execute("PRAGMA max_page_count=1"))
            client.send(creation("/large", bytes(40_000)))
            assert client.is_closed()
            assert reader.call(OpCode.EXISTS, look("/large"))[0].err == ZkError.NO_NODE
            assert reader.call(OpCode.EXISTS, look("/kept"))[0].err == 0
            served.call(lambda: connection.execute("PRAGMA max_page_count=100000"))
            assert reader.call(OpCode.CREATE, encode(CreateRequest("/large", bytes(40_000), OPEN_ACL, 0)))[0].err == 0


@pytest.mark.verify
def test_loop_that_was_busy_for_long_does_not_end_sessions(served: ServedTree) -> None:
    with RawClient(served.port) as client:
        client.connect(ms=1000)
        threading.Timer(0.1, lambda: served.call(lambda: time.sleep(2.5))).start()
        for _ in range(15):
            time.sleep(0.2)
            client.send(request(OpCode.PING, xid=-2))
        assert [client.reply()[0].xid for _ in range(15)] == [-2] * 15


def test_process_that_stood_still_does_not_take_it_for_the_silence_of_others() -> None:
    clock = session_tracker.SessionTracker()
    clock.begin(7, 1000)
    assert [clock.tick() for _ in range(2)] == [[], []]
    # However long it was until this tick, it is one; what has come meanwhile is read before the next.
    clock.touch(7)
    assert [clock.tick() for _ in range(3)] == [[], [], [7]]
    clock.touch(7)
    assert len(clock) == 0

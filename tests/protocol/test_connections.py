"""Both sides of a connection without I/O, back to back: no socket, no clock, bytes cut anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.bare_broker import NEWEST, PASSWORD, BareBroker, ServerConnection

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.client_connection import (
    TRANSITIONS,
    ClientConnection,
    ClientEvent,
    ClientState,
    Introduction,
)
from barnabas.protocol.codec import encode_request, encode_response
from barnabas.protocol.errors import (
    ConnectionLostError,
    ErrorCode,
    KafkaError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.sasl import sasl_exchange
from barnabas.protocol.server_connection import (
    AUTHENTICATING,
    AWAITED,
    ON_ANSWER,
    SERVING,
    SaslEvent,
    SaslState,
    ServerEvent,
    ServerState,
)


def client(mechanism: str | None = None, password: str = PASSWORD) -> ClientConnection[int]:
    sasl = sasl_exchange(mechanism, "ann", password, "n0nce") if mechanism is not None else None
    return ClientConnection("b:1", Introduction("me", "test", "1"), max_response_bytes=1 << 20, sasl=sasl)


def feed(near: ClientConnection[int], data: bytes, most: int = 1 << 20) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        view = near.buffer()
        piece = data[position : position + min(most, len(view))]
        view[: len(piece)] = piece
        position += len(piece)
        yield from near.received(len(piece))


def greet(near: ClientConnection[int], broker: BareBroker, most: int = 1 << 20) -> None:
    """Let both say what they have to until nobody has more."""
    near.connected(deadline=10.0)
    while data := b"".join(map(bytes, near.data_to_send())):
        for start in range(0, len(data), most):
            broker.receive(data[start : start + most])
        answer, broker.out = bytes(broker.out), bytearray()
        assert list(feed(near, answer, most)) == []
        if broker.hung_up:
            return


def ask(near: ClientConnection[int], token: int, version: int = 9, **options: Any) -> bytes:
    body = [encode_request(MetadataRequest(topics=[]), version)]
    options = {"deadline": 20.0, "decoded": True} | options
    return b"".join(map(bytes, near.request(ApiKey.METADATA, version, body, token=token, **options)))


# Versions


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("newest", [0, 1, 2, 3, 4])
def test_versions_are_agreed_with_brokers_of_any_age(newest: int, tells: bool) -> None:
    near, broker = client(), BareBroker(NEWEST | {ApiKey.API_VERSIONS: newest}, tells_its_range=tells)
    greet(near, broker)
    assert near.is_ready and near.state is ClientState.READY
    again = [] if newest == 4 else [(ApiKey.API_VERSIONS, newest if tells else 0)]
    assert broker.asked == [(ApiKey.API_VERSIONS, 4), *again]
    assert near.version_for(ApiKey.METADATA) == 13
    assert near.version_for(ApiKey.METADATA, highest=8) == 8
    with pytest.raises(UnsupportedVersionError, match="does not support FETCH in versions"):
        near.version_for(ApiKey.FETCH)


def test_a_broker_that_refuses_every_version_is_left() -> None:
    """It may go on saying that it knows a newer one: nobody is asked for ever."""
    near, asked = client(), 0
    near.connected(deadline=10.0)
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=3, max_version=9)],
    )
    with pytest.raises(KafkaError, match="rejected ApiVersions"):
        while near.data_to_send():
            asked += 1
            body = asked.to_bytes(4, "big") + b"".join(map(bytes, encode_response(refusal, 0)))
            list(feed(near, len(body).to_bytes(4, "big") + body))
    assert asked <= 5


def test_brokers_before_0_10_hang_up_and_that_is_said() -> None:
    near = client()
    near.connected(deadline=10.0)
    assert "another security.protocol do, and Kafka before 0.10" in str(near.lost())
    greet(other := client(), BareBroker())
    assert str(other.lost("reset")) == "NETWORK_EXCEPTION: broker b:1 closed the connection: reset"


# Authentication


@pytest.mark.parametrize("most", [1, 7, 1 << 20])
@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(mechanism: str, handshake: int, most: int) -> None:
    newest = NEWEST | {ApiKey.SASL_HANDSHAKE: handshake}
    near, broker = client(mechanism), BareBroker(newest, has_sasl=True)
    greet(near, broker, most)
    assert near.is_ready
    assert broker.connection.authentication is SaslState.COMPLETE
    wrapped = 0 if handshake == 0 else 1 if mechanism == "PLAIN" else 2
    assert [key for key, _ in broker.asked] == [
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        *[ApiKey.SASL_AUTHENTICATE] * wrapped,
    ]
    broker.receive(ask(near, 7))
    assert [token for token, _ in feed(near, bytes(broker.out))] == [7]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_said(mechanism: str) -> None:
    near, broker = client(mechanism, "wrong"), BareBroker(has_sasl=True)
    with pytest.raises(KafkaError, match="who are you") as failed:
        greet(near, broker)
    assert failed.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    near, broker = client(mechanism, "wrong"), BareBroker(NEWEST | {ApiKey.SASL_HANDSHAKE: 0}, has_sasl=True)
    greet(near, broker)
    assert broker.connection.authentication is SaslState.FAILED
    assert "as old brokers do if the password is wrong" in str(near.lost())


def test_a_mechanism_that_the_broker_does_not_have() -> None:
    near, broker = client("PLAIN"), BareBroker(has_sasl=True)
    near._sasl = type(near._sasl)("GSSAPI", near._sasl.messages)  # type: ignore[union-attr,misc]
    with pytest.raises(KafkaError, match=r"does not offer GSSAPI\. Set sasl\.mechanism to one of PLAIN") as failed:
        greet(near, broker)
    assert failed.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize("most", [1, 1 << 20])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_an_authentication_is_renewed_between_requests(mechanism: str, most: int) -> None:
    """What was asked before is answered first, and what is asked meanwhile waits."""
    near, broker = client(mechanism), BareBroker(has_sasl=True, session_ms=1000)
    greet(near, broker)
    assert near.session_ms == 1000
    sent = ask(near, 1)
    near.renew(sasl_exchange(mechanism, "ann", PASSWORD, "an0ther"), 30.0)
    assert near.is_ready and not near.is_renewed
    assert near.earliest_deadline == 20.0
    assert (ask(near, 2), near.request_without_response(ApiKey.METADATA, 9, [b"x"]), ask(near, 3)) == (b"", [], b"")
    assert near.in_flight_count == 5  # one, the handshake, and three that wait
    answered = []
    broker.receive(sent)
    while not near.is_renewed:
        broker.receive(b"".join(map(bytes, near.data_to_send())))
        answer, broker.out = bytes(broker.out), bytearray()
        answered += [token for token, _ in feed(near, answer, most)]
    assert answered == [1]
    held = b"".join(map(bytes, near.data_to_send()))
    first, without, third = (len(piece) for piece in _frames(held))
    broker.receive(held[:first] + held[first + without :])
    assert third and [token for token, _ in feed(near, bytes(broker.out), most)] == [2, 3]
    assert near.in_flight_count == 0 and near.earliest_deadline == inf


def test_who_is_not_let_in_again_hears_why_and_what_waited_is_told() -> None:
    near, broker = client("PLAIN"), BareBroker(has_sasl=True, session_ms=1000)
    greet(near, broker)
    near.renew(sasl_exchange("PLAIN", "ann", "changed", "n"), 30.0)
    ask(near, 7)
    with pytest.raises(KafkaError, match="who are you"):
        for _ in range(3):
            broker.receive(b"".join(map(bytes, near.data_to_send())))
            answer, broker.out = bytes(broker.out), bytearray()
            list(feed(near, answer))
    assert near.close() == [7]


def _frames(data: bytes) -> Iterator[bytes]:
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        yield data[:size]
        data = data[size:]


def test_nothing_is_served_before_the_client_is_admitted() -> None:
    broker = BareBroker(has_sasl=True)
    header = RequestHeader(ApiKey.METADATA, 9, 1, "me")
    with pytest.raises(KafkaError) as failed:
        broker.connection.check(ApiKey(header.api_key))
    assert failed.value.code is ErrorCode.ILLEGAL_SASL_STATE
    broker.connection.check(ApiKey.API_VERSIONS)
    broker.connection.check(ApiKey.SASL_HANDSHAKE)
    broker.connection.on_authentication(SaslEvent.FAILURE)
    with pytest.raises(KafkaError):
        broker.connection.check(ApiKey.SASL_HANDSHAKE)


# Requests


@given(st.lists(st.integers(0, 13), max_size=40), st.integers(1, 500), st.integers(1, 500))
@settings(deadline=None)
def test_requests_are_pipelined_and_answered_in_order(versions: list[int], cut: int, cut_back: int) -> None:
    near, broker = client(), BareBroker()
    greet(near, broker)
    data = b"".join(ask(near, token, version) for token, version in enumerate(versions))
    assert near.in_flight_count == len(versions)
    for start in range(0, len(data), cut):
        broker.receive(data[start : start + cut])
    assert [token for token, _ in feed(near, bytes(broker.out), cut_back)] == list(range(len(versions)))
    assert near.in_flight_count == 0 and near.close() == []


def test_a_frame_may_be_wanted_as_it_came_and_acks_0_wants_none() -> None:
    near, broker = client(), BareBroker()
    greet(near, broker)
    near.request_without_response(ApiKey.PRODUCE, 9, [b"body"])
    assert near.in_flight_count == 0
    broker.receive(ask(near, 1, decoded=False))
    ((_, frame),) = feed(near, bytes(broker.out))
    assert bytes(frame) == bytes(broker.out[4:])


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\x04\0\0\0\x63",
        b"\0\0\0\x02\0\0",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x08\0\0\0\x02\0\0\0\0",
    ],
)
def test_an_illegal_response_ends_the_connection_and_all_that_wait_are_told(answer: bytes) -> None:
    near, broker = client(), BareBroker()
    greet(near, broker)
    broker.receive(ask(near, 1))
    ask(near, 2)
    ask(near, 3)
    got = []
    with pytest.raises(ConnectionLostError, match="broker b:1 sent an invalid response"):
        for token, _ in feed(near, bytes(broker.out) + answer):
            got.append(token)
    assert got == [1]
    assert near.close() == [2, 3]
    with pytest.raises(ConnectionLostError, match="is not open"):
        ask(near, 4)


def test_a_response_that_nobody_asked_for() -> None:
    near = client()
    greet(near, BareBroker())
    with pytest.raises(ConnectionLostError, match="a response without a request"):
        list(feed(near, b"\0\0\0\x04\0\0\0\x01"))


def test_correlation_ids_start_over() -> None:
    near, broker = client(), BareBroker()
    greet(near, broker)
    near._correlation_id = 0x7FFFFFFE
    broker.receive(b"".join(ask(near, token) for token in range(3)))
    ids = [response.controller_id for _, response in feed(near, bytes(broker.out))]
    assert ids == [0x7FFFFFFF, 0, 1]


def test_deadlines() -> None:
    near = client()
    near.connected(deadline=10.0)
    assert near.earliest_deadline == 10.0
    assert isinstance(near.expired(10.0), RequestTimeoutError)
    greet(near := client(), BareBroker())
    assert near.expired(1e9) is None
    ask(near, 1, deadline=60.0)
    ask(near, 2, deadline=30.0)
    assert near.earliest_deadline == 30.0
    assert near.expired(29.0) is None
    assert "did not answer a METADATA request in time" in str(near.expired(30.0))


@given(
    mechanism=st.sampled_from([None, "PLAIN", "SCRAM-SHA-256"]),
    handshake=st.integers(0, 1),
    exchanges=st.integers(0, 4),
    bodies=st.lists(st.binary(max_size=60), min_size=1, max_size=4),
    is_numbered=st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_no_bytes_do_more_than_end_the_connection(
    mechanism: str | None, handshake: int, exchanges: int, bodies: list[bytes], is_numbered: bool
) -> None:
    """A broker that goes mad after a few sound answers, under the correlation id that is due or another."""
    near = client(mechanism)
    broker = BareBroker(NEWEST | {ApiKey.SASL_HANDSHAKE: handshake}, has_sasl=mechanism is not None)
    near.connected(deadline=10.0)
    for _ in range(exchanges):
        broker.receive(b"".join(map(bytes, near.data_to_send())))
        answer, broker.out = bytes(broker.out), bytearray()
        list(feed(near, answer))
    if near.is_ready:
        ask(near, 1)
    for body in bodies:
        frame = near._correlation_id.to_bytes(4, "big") + body if is_numbered else body
        try:
            list(feed(near, len(frame).to_bytes(4, "big") + frame))
        except KafkaError:
            near.close()
            return
        near.data_to_send()


# The tables


def test_every_state_can_be_reached_and_left() -> None:
    for table, begin in ((TRANSITIONS, ClientState.CONNECTING), (SERVING, ServerState.OPEN)):
        rows: dict[Any, dict[Any, Any]] = table  # type: ignore[assignment]
        reached, todo = {begin}, [begin]
        while todo:
            new = set(rows[todo.pop()].values()) - reached
            reached |= new
            todo += new
        assert reached == set(rows) == set(type(begin))
    assert set(AUTHENTICATING) == set(SaslState) == {*AWAITED, SaslState.COMPLETE}
    assert all(row[ClientEvent.END] is ClientState.CLOSED for row in TRANSITIONS.values())
    assert all(row[ServerEvent.LOST] is ServerState.CLOSED for row in SERVING.values())


@given(st.lists(st.sampled_from(ServerEvent)))
def test_one_request_at_a_time_whatever_happens(events: list[ServerEvent]) -> None:
    """Held against plain variables."""
    connection = ServerConnection(BareBroker().connection.frames, SaslState.COMPLETE)
    busy = muted = frozen = closing = lost = False
    for event in events:
        if event not in SERVING[connection.state]:
            assert event in (ServerEvent.REQUEST, ServerEvent.ANSWER, ServerEvent.UNMUTE)
            continue
        if event is ServerEvent.ANSWER:
            assert ON_ANSWER[connection.state] is SERVING[connection.state][event]
        connection.on(event)
        lost |= event is ServerEvent.LOST
        closing |= event is ServerEvent.CLOSE
        frozen |= event is ServerEvent.FREEZE
        muted = event is ServerEvent.MUTE or (muted and event is not ServerEvent.UNMUTE)
        busy = event is ServerEvent.REQUEST or (busy and event is not ServerEvent.ANSWER)
        assert (not connection.state) == (not (busy or muted or frozen or closing or lost))
        assert (connection.state is ServerState.CLOSED) == lost
        assert connection.state is not ServerState.CLOSING or closing


def test_an_answer_to_no_request_is_a_mistake() -> None:
    connection = ServerConnection(BareBroker().connection.frames, SaslState.COMPLETE)
    with pytest.raises(KeyError):
        connection.on(ServerEvent.ANSWER)

"""Who somebody is: SASL on the wire, what fails and how, and what is served before that."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.frames import framed
from tests.server.data_plane import RawClient

from barnabas.clients import connection
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.security import Security, security_of
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl import sasl_exchange
from barnabas.protocol.sasl_server import FIRST_REQUEST_BYTES, LARGEST_MESSAGE_BYTES, REQUEST_HEAD_BYTES
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.network import admission, socket_server
from barnabas.server.security.sasl_server_authenticator import EXCHANGE_SECONDS
from barnabas.testing.broker import Broker

K = ApiKey
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORDS = {"anna": 'se"cr\\et', "ben, = the=second": "x", "carl": "y"}
FAST = {"connection.failed.authentication.delay.ms": "0"}
PATIENCE = 60
METADATA_OF_T = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
PRODUCE_TO_T = ProduceRequest(
    acks=1,
    topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"")])],
)
VERSIONS_OF_A = ApiVersionsRequest(client_software_name="a", client_software_version="1")


@asynccontextmanager
async def serving(**settings: str) -> AsyncIterator[Broker]:
    config = FAST | {key.replace("_", "."): value for key, value in settings.items()}
    async with asyncio.timeout(PATIENCE), Broker(sasl=PASSWORDS, config=config) as broker:
        yield broker


async def connect(
    broker: Broker, mechanism: str | None, user: str = "anna", password: str | None = None
) -> BrokerConnection:
    word = PASSWORDS.get(user, "") if password is None else password
    security = Security(None, mechanism, user, word)
    return await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions(security=security))


async def raw(broker: Broker) -> RawClient:
    return RawClient(*await asyncio.open_connection("127.0.0.1", broker.port))


async def said(client: RawClient, key: ApiKey, version: int, request: Any) -> Any:
    client.send(key, version, request)
    return (await client.receive(key, version))[1]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_who_knows_the_password_is_let_in_and_has_a_name(mechanism: str) -> None:
    async with serving() as broker:
        # A name with blanks is none of a JAAS option.
        for user in PASSWORDS if mechanism != "PLAIN" else ["anna"]:
            connection = await connect(broker, mechanism, user)
            assert (await connection.send(MetadataRequest(topics=None), 12)).brokers
            (served,) = [one for one in broker.server.sockets._connections if one.session.principal.name == user]
            connection.close()
            assert str(served.session.principal) == f"User:{user}"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("anna", "wrong"), ("nobody", "x"), ("anna", "x" * 5000)])
async def test_who_does_not_hears_the_same_whether_there_is_such_a_user(
    mechanism: str, user: str, password: str
) -> None:
    async with serving() as broker:
        with pytest.raises(KafkaError) as caught:
            await connect(broker, mechanism, user, password)
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        by_scram = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        by_plain = "Authentication failed: Invalid username or password"
        assert caught.value.message == (by_plain if mechanism == "PLAIN" else by_scram + mechanism)


async def test_the_salt_of_a_user_who_is_not_there_stays_the_same() -> None:
    async with serving() as broker:
        salts = set()
        for _ in range(2):
            client = await raw(broker)
            await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
            request = SaslAuthenticateRequest(auth_bytes=b"n,,n=nobody,r=abc")
            answer = await said(client, K.SASL_AUTHENTICATE, 2, request)
            salts.add(bytes(answer.auth_bytes).split(b",")[1])
        assert len(salts) == 1


@pytest.mark.parametrize(
    "message",
    [b"", b"\0", b"\0\0\0\0", b"\0anna\0", b"\0\0x", b'ben\0anna\0se"cr\\et', b"\0\xff\0x", b"x" * 8_000],
)
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_garbage_fails_the_authentication_and_ends_the_connection(message: bytes, version: int) -> None:
    async with serving() as broker:
        for mechanism in MECHANISMS:
            client = await raw(broker)
            assert not (await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))).error_code
            answer = await said(client, K.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=message))
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_messages_without_headers_after_the_first_version_of_the_handshake(mechanism: str) -> None:
    async with serving() as broker:
        for password in (PASSWORDS["anna"], "wrong"):
            client = await raw(broker)
            await said(client, K.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism=mechanism))
            messages = sasl_exchange(mechanism, "anna", password, "nonce").messages
            message = next(messages)
            try:
                while True:
                    client.writer.write(framed(message))
                    message = messages.send(await client.frame())
            except StopIteration:
                assert password != "wrong"
                assert (await said(client, K.METADATA, 9, MetadataRequest(topics=None))).brokers
            except asyncio.IncompleteReadError:
                assert password == "wrong"


@pytest.mark.parametrize("key", [K.METADATA, K.SASL_AUTHENTICATE, K.PRODUCE, 99])
async def test_nothing_else_is_served_before(key: int) -> None:
    async with serving() as broker:
        client = await raw(broker)
        body = struct.pack(">hhih", key, 0, 1, -1) + bytes(8)
        client.writer.write(framed(body))
        assert await client.is_closed()


async def test_versions_may_be_asked_and_mechanisms_are_told() -> None:
    async with serving() as broker:
        client = await raw(broker)
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        told = await said(client, K.API_VERSIONS, 3, request)
        assert {K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE} <= {one.api_key for one in told.api_keys}
        answer = await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="GSSAPI"))
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
        assert await client.is_closed()
        client = await raw(broker)
        for _ in range(4):
            await said(client, K.API_VERSIONS, 3, request)
        client.send(K.API_VERSIONS, 3, request)
        assert await client.is_closed()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(
    ("key", "version", "body", "expected"),
    # As Kafka 4.4.0 answers them, in hex.
    [
        (K.FIND_COORDINATOR, 0, FindCoordinatorRequest(key="g1"), "0022ffffffff0000ffffffff"),
        (K.METADATA, 1, METADATA_OF_T, "00000000ffffffff0000000100220001740000000000"),
        (K.METADATA, 12, METADATA_OF_T, f"000000000100ffffffff0200220274{'00' * 16}0001800000000000"),
        (K.PRODUCE, 7, PRODUCE_TO_T, f"0000000100017400000001000000000022{'ff' * 24}00000000"),
        (K.FETCH, 11, FetchRequest(), "0000000000220000000000000000"),
        (K.FETCH, 13, FetchRequest(), "000000000022000000000100"),
        (K.JOIN_GROUP, 5, JoinGroupRequest(), "000000000022ffffffff00000000000000000000"),
        (K.CREATE_TOPICS, 5, CreateTopicsRequest(), "000000000100"),
        (K.API_VERSIONS, 0, ApiVersionsRequest(), "002200000000"),
        (K.API_VERSIONS, 3, VERSIONS_OF_A, "0022010000000000"),
        (K.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"), "002200000000"),
        (K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), "002200000000"),
        (K.OFFSET_FETCH, 5, OffsetFetchRequest(topics=[]), "00000000000000000022"),
        (K.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[]), "000000000100"),
        (K.INIT_PRODUCER_ID, 4, InitProducerIdRequest(), "000000000022ffffffffffffffffffff00"),
    ],
)
async def test_a_request_between_handshake_and_authentication_is_answered_in_its_own_form(
    mechanism: str, key: ApiKey, version: int, body: Any, expected: str
) -> None:
    async with serving() as broker:
        client = await raw(broker)
        await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
        client.send(key, version, body)
        frame = await client.frame()
        _, position = decode_response_header(key, version, frame, 0, len(frame))
        assert frame[position:].hex() == expected
        assert await client.is_closed()


async def test_a_request_during_authentication_is_answered_while_requests_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("DEBUG", "barnabas.apis"):
        async with serving() as broker:
            client = await raw(broker)
            await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            client.send(K.METADATA, 5, MetadataRequest(topics=[]))
            assert await client.frame()
            assert await client.is_closed()
    assert "Metadata v5 from 127.0.0.1" in caplog.text


async def test_a_request_before_the_handshake_and_one_without_a_response_close_the_connection() -> None:
    async with serving() as broker:
        client = await raw(broker)
        client.send(K.FIND_COORDINATOR, 0, FindCoordinatorRequest(key="g1"))
        assert await client.is_closed()
        no_response = ProduceRequest(acks=0, topic_data=PRODUCE_TO_T.topic_data)
        many = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 200)] * 50)
        for key, version, body in ((K.PRODUCE, 7, no_response), (K.METADATA, 1, many)):
            client = await raw(broker)
            await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            client.send(key, version, body)
            assert await client.is_closed()


@pytest.mark.parametrize(("version", "success"), [(0, "0000000000000000"), (1, "00" * 16), (2, "00000101" + "00" * 9)])
async def test_a_successful_authentication_has_an_empty_error_message(version: int, success: str) -> None:
    """As Kafka 4.4.0 answers it, in hex: null fails in clients that expect a string."""
    async with serving() as broker:
        client = await raw(broker)
        await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        password = f"\0anna\0{PASSWORDS['anna']}".encode()
        client.send(K.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=password))
        frame = await client.frame()
        _, position = decode_response_header(K.SASL_AUTHENTICATE, version, frame, 0, len(frame))
        assert frame[position:].hex() == success


async def test_on_a_listener_without_it_sasl_is_an_error() -> None:
    async with asyncio.timeout(PATIENCE), Broker() as broker:
        connection = await connect(broker, None)
        answer = await connection.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await connection.send(SaslAuthenticateRequest(), 2)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await connection.send(DescribeClusterRequest(), 1)).brokers


async def authenticate(client: RawClient, user: str, password: str) -> Any:
    answer = await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
    if answer.error_code:
        return answer
    request = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    return await said(client, K.SASL_AUTHENTICATE, 1, request)


async def test_a_session_has_an_end_unless_the_client_proves_again_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(connections_max_reauth_ms="50000") as broker:
        client = await raw(broker)
        answer = await authenticate(client, "anna", PASSWORDS["anna"])
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 50_000)
        (served,) = broker.server.sockets._connections
        authentication = served.session.authentication
        assert authentication is not None
        first = authentication.ends_at
        assert (await authenticate(client, "anna", PASSWORDS["anna"])).session_lifetime_ms == 50_000
        assert first is not None and authentication.ends_at is not None and authentication.ends_at > first
        assert (await said(client, K.METADATA, 9, MetadataRequest(topics=None))).brokers
        authentication.ends_at = 0.0
        # Too late for anything else, and still in time for this.
        assert not (await authenticate(client, "anna", PASSWORDS["anna"])).error_code
        authentication.ends_at = 0.0
        client.send(K.METADATA, 9, MetadataRequest(topics=None))
        assert await client.is_closed()
        client = await raw(broker)
        await authenticate(client, "anna", PASSWORDS["anna"])
        refused = await authenticate(client, "carl", PASSWORDS["carl"])
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in refused.error_message
        assert await client.is_closed()


async def test_a_challenge_is_not_answered_a_day_later() -> None:
    """With a password that was changed meanwhile: it is read once."""
    async with serving() as broker:
        client = await raw(broker)
        exchange = sasl_exchange("SCRAM-SHA-256", "anna", PASSWORDS["anna"], "n")
        await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        request = SaslAuthenticateRequest(auth_bytes=next(exchange.messages))
        challenge = await said(client, K.SASL_AUTHENTICATE, 1, request)
        (served,) = broker.server.sockets._connections
        assert served.session.authentication is not None
        served.session.authentication._deadline -= EXCHANGE_SECONDS
        proof = SaslAuthenticateRequest(auth_bytes=exchange.messages.send(challenge.auth_bytes))
        answer = await said(client, K.SASL_AUTHENTICATE, 1, proof)
        assert (answer.error_code, answer.error_message) == (58, "Authentication failed: it took too long")
        assert await client.is_closed()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_our_client_proves_again_on_the_same_connection(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, while it asks without a pause; each answer is the one that was asked for."""
    monkeypatch.setattr(connection, "_BEFORE_THE_END", 0.0001)
    async with asyncio.timeout(60), serving(connections_max_reauth_ms="50000") as broker:
        client = await connect(broker, mechanism)
        (served,) = broker.server.sockets._connections
        authentication = served.session.authentication
        assert authentication is not None
        ends = {authentication.ends_at}
        while len(ends) < 5:
            asked = [client.send(MetadataRequest(topics=None), 9), client.send(DescribeClusterRequest(), 0)]
            metadata, cluster = await asyncio.gather(*asked)
            assert metadata.brokers and metadata.cluster_id == cluster.cluster_id
            ends.add(authentication.ends_at)
        assert client.is_open
        assert set(broker.server.sockets._connections) == {served}
        client.close()


async def test_without_an_end_nobody_authenticates_twice() -> None:
    async with serving() as broker:
        client = await raw(broker)
        assert (await authenticate(client, "anna", PASSWORDS["anna"])).session_lifetime_ms == 0
        answer = await said(client, K.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = await said(client, K.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=b"\0a\0b"))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await said(client, K.METADATA, 9, MetadataRequest(topics=None))).brokers


async def test_strangers_are_few_and_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_UNAUTHENTICATED_CONNECTIONS", 5)
    monkeypatch.setattr(socket_server, "CHECK_SECONDS", 0.01)
    async with serving() as broker:
        known = await connect(broker, "PLAIN")
        monkeypatch.setattr(admission, "AUTHENTICATION_SECONDS", 0.05)
        clients = [await raw(broker) for _ in range(9)]
        for client in clients:
            assert await client.is_closed()
        assert (await known.send(MetadataRequest(topics=None), 12)).brokers
        assert len(broker.server.sockets._unauthenticated) == 0


async def test_a_stranger_sends_little(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(sasl_server_max_receive_size="1000") as broker:
        client = await raw(broker)
        client.writer.write(struct.pack(">i", 1001))
        assert await client.is_closed()
        known = await connect(broker, "PLAIN")
        assert (await known.send(MetadataRequest(topics=[]), 12)).brokers
        (served,) = broker.server.sockets._connections
        assert served._reader.max_size == 104_857_600


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_messages_before_authentication_are_bounded_by_mechanism(mechanism: str) -> None:
    most = LARGEST_MESSAGE_BYTES[mechanism]
    async with serving() as broker:
        before_mechanism = await raw(broker)
        before_mechanism.writer.write(struct.pack(">i", FIRST_REQUEST_BYTES + 1))
        assert await before_mechanism.is_closed()
        too_large = await raw(broker)
        await said(too_large, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
        too_large.writer.write(struct.pack(">i", most + REQUEST_HEAD_BYTES + 1))
        assert await too_large.is_closed()
        # A bare message has no head: within the bound of the request, it is beyond that of the message.
        bare = await raw(broker)
        await said(bare, ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism=mechanism))
        bare.writer.write(struct.pack(">i", most + 1) + bytes(most + 1))
        assert await bare.is_closed()
        large = await raw(broker)
        await said(large, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
        answer = await said(large, ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=bytes(most)))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_password_near_the_bound_of_its_mechanism_is_taken() -> None:
    password = "p" * (15 << 10)
    broker = Broker(sasl={"anna": password})
    async with broker:
        settings = broker.client_settings(None, "PLAIN")
        options = ConnectionOptions(security=security_of(settings))
        client = await BrokerConnection.open("127.0.0.1", broker.port, options)
        assert (await client.send(MetadataRequest(topics=None), 12)).brokers
        client.close()


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096, word: str = "new") -> ScramCredentialUpsertion:
    algorithm = "sha256" if mechanism == 1 else "sha512"
    salted = hashlib.pbkdf2_hmac(algorithm, word.encode(), b"salt", iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


async def test_passwords_are_set_used_changed_and_taken_back() -> None:
    async with serving() as broker:
        admin = await connect(broker, "PLAIN")

        async def alter(
            *upsertions: ScramCredentialUpsertion, deletions: Sequence[ScramCredentialDeletion] = ()
        ) -> dict[str, int]:
            request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
            return {one.user: one.error_code for one in (await admin.send(request, 0)).results}

        wrong = [
            upsertion(""),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("twice"),
            upsertion("twice"),
            upsertion("odd", mechanism=3),
        ]
        gone = [ScramCredentialDeletion(name="gone", mechanism=1)]
        assert await alter(*wrong, upsertion("dora"), upsertion("dora", 2, 8192), deletions=gone) == {
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
            "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "gone": ErrorCode.RESOURCE_NOT_FOUND,
            "dora": ErrorCode.NONE,
        }
        flood = {f"user-{number}": ErrorCode.INVALID_REQUEST for number in range(1001)}
        assert await alter(deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in flood]) == flood
        for mechanism in MECHANISMS[1:]:
            (await connect(broker, mechanism, "dora", "new")).close()
        described = await admin.send(DescribeUserScramCredentialsRequest(users=None), 0)
        infos = {
            one.user: {info.mechanism: info.iterations for info in one.credential_infos} for one in described.results
        }
        assert infos["dora"] == {1: 4096, 2: 8192}
        assert await alter(upsertion("dora", word="newer")) == {"dora": 0}
        (await connect(broker, "SCRAM-SHA-256", "dora", "newer")).close()
        (await connect(broker, "SCRAM-SHA-512", "dora", "new")).close()
        assert await alter(deletions=[ScramCredentialDeletion(name="dora", mechanism=1)]) == {"dora": 0}
        with pytest.raises(KafkaError, match="SCRAM-SHA-256"):
            await connect(broker, "SCRAM-SHA-256", "dora", "newer")
        (await connect(broker, "SCRAM-SHA-512", "dora", "new")).close()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, r"barnabas\[gssapi\]|no service name"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "mechanism PLAIN is enabled and no"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "SASL mechanism SCRAM-SHA-1: expected one of"),
    ],
)
async def test_a_listener_that_could_let_nobody_in_is_not_opened(settings: dict[str, str], reason: str) -> None:
    broker = Broker(config={"listeners": "SASL_PLAINTEXT://127.0.0.1:0"} | settings)
    with pytest.raises(ConfigError, match=reason):
        async with broker:
            pass


def test_passwords_of_one_listener() -> None:
    key = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    config = BrokerConfig({key: "any"})
    assert config.free_value(key) == "any"
    assert config.startup_warnings == ()

"""TLS of a listener: certificates in every form, their owners, protocols, and handshakes that come to nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.waiting import until

from barnabas.clients.certificates import DAYS, Authority
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.errors import BrokerUnreachableError
from barnabas.clients.security import security_of
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ConnectionLostError
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.network import tls
from barnabas.server.runtime.host import now_ms
from barnabas.server.security.ssl_principal_mapper import SslPrincipalMapper, distinguished_name
from barnabas.server.security.tls_listener import TlsListener
from barnabas.testing.broker import Broker

PATIENCE = 60
LISTENER = {"listeners": "SSL://127.0.0.1:0"}
NEWER = "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"
OLDER = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


class Files:
    """What an operator has made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.new("test CA")
        self.ca = folder / "ca.pem"
        self.authority.write(self.ca)
        self.broker = self.identity("broker", ["localhost", "127.0.0.1"])
        self.anna = self.identity("anna")

    def identity(self, name: str, hosts: list[str] = [], authority: Authority | None = None) -> Path:  # noqa: B006
        path = self.folder / f"{name}.pem"
        (authority or self.authority).issue(name, hosts).write(path)
        return path

    @property
    def listener(self) -> dict[str, str]:
        return LISTENER | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.broker)}

    @property
    def trusting(self) -> dict[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}

    @property
    def client(self) -> dict[str, str]:
        return {"security.protocol": "SSL", **self.trusting}

    def shows(self, path: Path) -> dict[str, str]:
        return self.client | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[[Any, dict[str, str]], None]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.SelectorEventLoop,
        "uvloop": uvloop.new_event_loop,
    }

    def run(talk: Any, config: dict[str, str]) -> None:
        async def main() -> None:
            async with asyncio.timeout(PATIENCE), Broker(config=config) as broker:
                await talk(broker)

        with asyncio.Runner(loop_factory=loops[request.param]) as runner:
            runner.run(main())

    return run


async def connect(broker: Broker, settings: dict[str, str], host: str = "127.0.0.1") -> BrokerConnection:
    connection = await BrokerConnection.open(host, broker.port, ConnectionOptions(security=security_of(settings)))
    assert (await connection.send(MetadataRequest(topics=None), 12)).brokers
    return connection


def principal(broker: Broker) -> str:
    (served,) = broker.server.sockets._connections
    return str(served.session.principal)


def test_who_shows_a_certificate_has_its_name(files: Files, play: Any) -> None:
    async def talk(broker: Broker) -> None:
        connection = await connect(broker, files.shows(files.anna))
        assert principal(broker) == "User:CN=anna"
        connection.close()
        stranger = files.identity("eve", authority=Authority.new("another CA"))
        for settings in (files.client, files.shows(stranger)):
            with pytest.raises((BrokerUnreachableError, ConnectionLostError)):
                await connect(broker, settings)

    play(talk, files.listener | files.trusting | {"ssl.client.auth": "required"})


def test_who_need_not_show_one_is_anonymous(files: Files, play: Any) -> None:
    async def talk(broker: Broker) -> None:
        connection = await connect(broker, files.client)
        assert principal(broker) == "User:ANONYMOUS"
        connection.close()
        with pytest.raises(BrokerUnreachableError):
            await connect(broker, {"security.protocol": "SSL"})  # whoever trusts the world does not trust this one
        with pytest.raises((BrokerUnreachableError, ConnectionLostError)):
            await connect(broker, {"security.protocol": "PLAINTEXT"})

    play(talk, files.listener)


def test_a_name_is_mapped_and_whom_no_rule_fits_is_refused(files: Files, play: Any) -> None:
    async def talk(broker: Broker) -> None:
        connection = await connect(broker, files.shows(files.anna))
        assert principal(broker) == "User:ANNA"
        connection.close()
        with pytest.raises((BrokerUnreachableError, ConnectionLostError)):
            await connect(broker, files.shows(files.identity("carl")))

    rules = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(a.*)$/$1/U"}
    play(talk, files.listener | files.trusting | rules)


def test_certificates_are_replaced_while_clients_stay(files: Files, play: Any) -> None:
    async def talk(broker: Broker) -> None:
        old = await connect(broker, files.client)
        other = Authority.new("new CA")
        files.identity("broker", ["127.0.0.1"], authority=other)
        tls = broker.server.state.security.listener_security["SSL"].tls
        assert tls is not None
        before = tls.context
        broker.server.state.security.reload()
        while tls.context is before:
            await asyncio.sleep(0.005)
        assert (await old.send(MetadataRequest(topics=None), 12)).brokers
        with pytest.raises(BrokerUnreachableError):
            await connect(broker, files.client)
        other.write(files.ca)
        (await connect(broker, files.client)).close()
        # What cannot be read changes nothing.
        files.broker.write_text("nothing")
        present = tls.context
        broker.server.state.security.reload()
        await broker.server._ports.work.run("certificates", lambda: None)
        await asyncio.sleep(0)
        assert tls.context is present
        (await connect(broker, files.client)).close()
        old.close()

    play(talk, files.listener)


def test_handshakes_that_come_to_nothing_are_counted_and_ended(
    files: Files, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who say nothing by number and by time; who does it right has time, however slow the machine is."""
    monkeypatch.setattr(tls, "MAX_HANDSHAKES", 5)
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", PATIENCE)

    async def talk(broker: Broker) -> None:
        async def come() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", broker.port)

        async def are_cut_off(*peers: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
            for reader, writer in peers:
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()

        (acceptor,) = broker.server.sockets._acceptors
        silent = [await come() for _ in range(12)]
        await are_cut_off(*silent[:7])
        assert acceptor.handshakes == 5
        (await connect(broker, files.client)).close()
        await are_cut_off(silent[7])
        garbage = await come()
        garbage[1].write(struct.pack(">ihhih", 100, 18, 0, 1, -1) + bytes(90))
        await are_cut_off(garbage)
        for _, writer in silent[8:]:
            writer.close()
        await until(lambda: not acceptor.handshakes)
        monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.3)
        await are_cut_off(*[await come() for _ in range(3)])
        monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", PATIENCE)
        await until(lambda: not acceptor.handshakes)
        (await connect(broker, files.client)).close()

    play(talk, files.listener)


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


def ask(
    context: ssl.SSLContext, port: int, session: ssl.SSLSession | None = None
) -> tuple[bool, ssl.SSLSession | None]:
    """Whether a session was resumed, and the one to resume. Raises OSError if nothing is answered."""
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as stream,
    ):
        stream.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1))
        if not stream.recv(4):
            raise ConnectionResetError
        return bool(stream.session_reused), stream.session


@VERSIONS
def test_who_is_refused_hears_why(files: Files, play: Any, version: ssl.TLSVersion) -> None:
    """Java's clients tell their user, and go on asking a broker that hangs up without a word."""
    expired = files.folder / "expired.pem"
    files.authority.issue("anna", days=0).write(expired)
    stranger = files.identity("eve", authority=Authority.new("another CA"))

    def hear(port: int, shown: Path | None) -> None:
        context = ssl.create_default_context(cafile=str(files.ca))
        context.minimum_version = context.maximum_version = version
        if shown is not None:
            context.load_cert_chain(shown)
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as stream,
        ):
            stream.recv(1)

    async def talk(broker: Broker) -> None:
        for shown, reason in (
            (expired, "certificate expired"),
            (stranger, "unknown ca"),
            (None, "certificate required|handshake failure"),
        ):
            with pytest.raises(ssl.SSLError, match=reason):
                await asyncio.to_thread(hear, broker.port, shown)

    play(talk, files.listener | files.trusting | {"ssl.client.auth": "required"})


@VERSIONS
def test_a_session_is_resumed_until_there_is_a_new_certificate(files: Files, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.minimum_version = context.maximum_version = version
    with Broker(config=files.listener) as broker:
        is_resumed, session = ask(context, broker.port)
        assert not is_resumed
        is_resumed, _ = ask(context, broker.port, session)
        assert is_resumed
        tls = broker.server.state.security.listener_security["SSL"].tls
        assert tls is not None
        tls.take(tls.build())
        is_resumed, _ = ask(context, broker.port, session)
        assert not is_resumed


@VERSIONS
def test_no_session_outlives_the_clients_certificate(files: Files, version: ssl.TLSVersion) -> None:
    """OpenSSL looks at it when it is shown; each session that is resumed gives a ticket for another."""
    context = ssl.create_default_context(cafile=str(files.ca))
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(files.anna)
    with Broker(config=files.listener | files.trusting | {"ssl.client.auth": "required"}) as broker:
        _, session = ask(context, broker.port)
        is_resumed, session = ask(context, broker.port, session)
        assert is_resumed
        tls = broker.server.state.security.listener_security["SSL"].tls
        assert tls is not None
        tls._now_ms = lambda: now_ms() + DAYS * 86_400_000
        with pytest.raises(OSError):
            ask(context, broker.port, session)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_only_protocols_that_are_enabled_are_spoken(files: Files, version: str) -> None:
    """Older ones never are."""
    config = files.listener | {"ssl.enabled.protocols": version}

    def attempt(port: int, lowest: ssl.TLSVersion, highest: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=str(files.ca))
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = lowest, highest
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as stream,
        ):
            return stream.version()

    with Broker(config=config) as broker:
        assert attempt(broker.port, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3) == version
        other = ssl.TLSVersion.TLSv1_2 if version == "TLSv1.3" else ssl.TLSVersion.TLSv1_3
        for wrong in (other, ssl.TLSVersion.TLSv1_1):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                attempt(broker.port, wrong, wrong)


def test_keys_as_text_and_in_stores(files: Files, tmp_path: Path) -> None:
    identity = files.authority.issue("store", ["127.0.0.1"])
    store = tmp_path / "store.jks"
    identity.write_pkcs12(store, "sesame")
    pem = identity.pem()
    end = pem.index("-----BEGIN CERTIFICATE")
    one_line = pem[end:].replace("\n", " ")
    forms: list[dict[str, str]] = [
        {"ssl.keystore.location": str(store), "ssl.keystore.password": "sesame", "ssl.keystore.type": "JKS"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": pem[:end], "ssl.keystore.certificate.chain": pem[end:]},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": pem[:end], "ssl.keystore.certificate.chain": one_line},
    ]
    for form in forms:
        TlsListener(BrokerConfig(LISTENER | form), "SSL", now_ms)
        TlsListener(BrokerConfig(LISTENER | {f"listener.name.ssl.{key}": form[key] for key in form}), "SSL", now_ms)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "no private key"),
        ({"ssl.keystore.location": "nowhere.pem"}, "No such file"),
        ({"ssl.keystore.location": "CA"}, "listener SSL"),
        ({"ssl.keystore.location": "JKS"}, "keytool -importkeystore"),
        ({"ssl.keystore.location": "BROKER", "ssl.client.auth": "required"}, "without a trust store"),
        ({"ssl.keystore.location": "BROKER", "ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2"),
        (
            {"ssl.keystore.location": "BROKER", "ssl.cipher.suites": "TLS_NO_WITH_SUCH"},
            "not supported by OpenSSL",
        ),
        ({"ssl.keystore.location": "BROKER", "ssl.cipher.suites": "ALL"}, "expected names of cipher suites"),
        ({"ssl.keystore.location": "BROKER", "ssl.cipher.suites": "@SECLEVEL=0"}, "not supported"),
        ({"ssl.keystore.location": "BROKER", "ssl.cipher.suites": f"{OLDER},TLS_NONE"}, "not supported.*: TLS_NONE"),
        (
            {"ssl.keystore.location": "BROKER", "ssl.cipher.suites": OLDER, "ssl.enabled.protocols": "TLSv1.3"},
            "none of these suites belongs to it",
        ),
        (
            {"ssl.keystore.location": "BROKER", "ssl.cipher.suites": NEWER, "ssl.enabled.protocols": "TLSv1.2"},
            "which is not enabled",
        ),
        ({"ssl.keystore.location": "BROKER", "ssl.principal.mapping.rules": "RULE:a"}, "invalid rule"),
        ({"ssl.keystore.location": "BROKER", "ssl.principal.mapping.rules": "RULE:(/a/"}, "unterminated"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(files: Files, settings: dict[str, str], reason: str) -> None:
    jks = files.folder / "old.jks"
    jks.write_bytes(b"\xce\xce\xce\xce" + bytes(20))
    places = {"CA": str(files.ca), "BROKER": str(files.broker), "JKS": str(jks)}
    config = {key: places.get(value, value) for key, value in settings.items()}
    with pytest.raises(ConfigError, match=reason):
        TlsListener(BrokerConfig(LISTENER | config), "SSL", now_ms)


def test_java_names_of_cipher_suites(files: Files) -> None:
    suites = (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,"
        f"TLS_RSA_WITH_AES_256_CBC_SHA256,TLS_EMPTY_RENEGOTIATION_INFO_SCSV,{NEWER}"
    )
    listener = TlsListener(BrokerConfig(files.listener | {"ssl.cipher.suites": suites}), "SSL", now_ms)
    names = {one["name"] for one in listener.context.get_ciphers() if one["protocol"] == "TLSv1.2"}
    names |= {one["name"] for one in listener.context.get_ciphers() if one["protocol"] == "SSLv3"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305", "AES256-SHA256"}


@pytest.mark.parametrize(
    ("suites", "agreed"),
    [
        (NEWER, {"TLSv1.3": "TLS_", "TLSv1.2": None}),
        (OLDER, {"TLSv1.3": None, "TLSv1.2": "ECDHE-ECDSA-AES256-GCM-SHA384"}),
        (f"{OLDER},{NEWER}", {"TLSv1.3": "TLS_", "TLSv1.2": "ECDHE-ECDSA-AES256-GCM-SHA384"}),
    ],
)
def test_no_suite_is_negotiated_but_those_named(files: Files, suites: str, agreed: dict[str, str | None]) -> None:
    server = TlsListener(BrokerConfig(files.listener | {"ssl.cipher.suites": suites}), "SSL", now_ms).context
    client = security_of({**files.client, "ssl.cipher.suites": suites}).tls
    assert client is not None
    for version, name in agreed.items():
        free = ssl.create_default_context(cafile=str(files.ca))
        free.set_ciphers("ALL:@SECLEVEL=0")
        free.minimum_version = free.maximum_version = getattr(ssl.TLSVersion, version.replace(".", "_"))
        negotiated = negotiate(free, server)
        assert negotiated is None if name is None else negotiated is not None and negotiated.startswith(name)
        default = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        default.load_cert_chain(files.broker)
        default.minimum_version = default.maximum_version = free.minimum_version
        negotiated = negotiate(client, default)
        assert negotiated is None if name is None else negotiated is not None and negotiated.startswith(name)


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="Python restricts TLS 1.3")
def test_some_suites_of_tls_1_3_are_refused_where_they_cannot_be_enforced(files: Files) -> None:
    for suites in ("TLS_AES_256_GCM_SHA384", f"TLS_AES_256_GCM_SHA384,{OLDER}"):
        with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites: .*name all of TLS_AES_128_GCM_SHA256"):
            TlsListener(BrokerConfig(files.listener | {"ssl.cipher.suites": suites}), "SSL", now_ms)
        with pytest.raises(ValueError, match=r"ssl\.cipher\.suites: .*name all of"):
            security_of({**files.client, "ssl.cipher.suites": suites})


def negotiate(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """The cipher suite that two contexts agree on, None if they do not."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
    found = ends[0].cipher()
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ((("countryName", "DE"),), "C=DE"),
        ((("commonName", 'a,b+"c"\\<d>;'),), r"CN=a\,b\+\"c\"\\\<d\>\;"),
        ((("commonName", "#a "),), r"CN=\#a\ "),
        ((("userId", "u"), ("commonName", "c")), "CN=c,UID=u"),
        ((("emailAddress", "a@b"),), "1.2.840.113549.1.9.1=#160361" + "4062"),
    ],
)
def test_names_are_written_as_java_writes_them(subject: Any, name: str) -> None:
    assert distinguished_name([(pair,) for pair in subject]) == name


def test_rules_in_their_order() -> None:
    """The example of Kafka's documentation."""
    rules = SslPrincipalMapper(
        r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
        r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
        r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
        "DEFAULT"
    )
    tail = "O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
    assert rules.name_of(f"CN=serviceuser,OU=ServiceUsers,{tail}") == "serviceuser"
    assert rules.name_of(f"CN=adminUser,OU=Admin,{tail}") == "adminuser@admin"
    assert rules.name_of("OU=x,CN=Foo") == "foo"
    assert rules.name_of("O=nobody") == "O=nobody"
    assert SslPrincipalMapper("RULE:^CN=(a)$/$1/").name_of("CN=b") is None

"""Clients of every make that show tickets of a real KDC: a good one writes, one of nobody's or a void one does not."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from tests.compat import one_record
from tests.compat.one_record import WRITTEN
from tests.foreign_tools import require_tool
from tests.kafka import KafkaTools
from tests.kdc import REALM, Kdc, require_kerberos
from tests.server.config.config_client import ConfigClient
from tests.server_process import wait_until

from barnabas.clients.security import security_of
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.server.config.keys.validators import ConfigError
from barnabas.testing import Broker, Cluster

pytestmark = pytest.mark.verify

PATIENCE = 60
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
JAAS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
RULES = {
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2](job-.*)s/job-(.*)/$1/U,DEFAULT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:anna;User:NIGHTLY",
    "connection.failed.authentication.delay.ms": "0",
}


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    require_kerberos()
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        yield kdc


@pytest.fixture(scope="module")
def secured(kdc: Kdc) -> Iterator[Broker]:
    """One that lets anna do everything, and the job `job/nightly`, and nobody else anything."""
    keytab, own = kdc.keytab("kafka/localhost"), f"kafka/localhost@{REALM}"
    jaas = f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{own}";'
    listener = {"listeners": "SASL_PLAINTEXT://localhost:0", "advertised.listeners": "SASL_PLAINTEXT://localhost:0"}
    with Broker({"t": 1}, config=RULES | listener | {JAAS: jaas}) as broker:
        yield broker


def settings_of(kdc: Kdc, user: str) -> dict[str, str]:
    keytab = kdc.folder / f"{user.replace('/', '-')}.keytab"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{user}@{REALM}";',
    }


def by_ours(broker: Broker, kdc: Kdc, user: str) -> str:
    return one_record.by_ours(f"localhost:{broker.port}", security_of(settings_of(kdc, user)))


def of_python(broker: Broker) -> dict[str, Any]:
    address = f"localhost:{broker.port}"
    return {"bootstrap_servers": address, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


def by_aiokafka(broker: Broker, kdc: Kdc, user: str) -> str:
    return one_record.by_aiokafka(of_python(broker))


def by_kafka_python(broker: Broker, kdc: Kdc, user: str) -> str:
    return one_record.by_kafka_python(of_python(broker) | {"max_block_ms": PATIENCE * 1000})


def by_java(broker: Broker, kdc: Kdc, user: str, version: str = "4.4.0") -> str:
    tools = KafkaTools(version)
    tools.flags = [*tools.flags, f"-Djava.security.krb5.conf={kdc.config}"]
    properties = kdc.folder / "client.properties"
    text = settings_of(kdc, user) | {"max.block.ms": str(PATIENCE * 1000), "retries": "0"}
    properties.write_text("".join(f"{key}={value}\n" for key, value in text.items()))
    where = ["--bootstrap-server", f"localhost:{broker.port}", "--topic", "t"]
    result = tools.run("kafka-console-producer", *where, "--producer.config", str(properties), stdin="v\n")
    said = result.stdout + result.stderr
    if result.returncode == 0 and "Exception" not in said and "ERROR" not in said:
        return WRITTEN
    refusals = ("TopicAuthorizationException", "SaslAuthenticationException", "LoginException")
    return "refused" if any(refusal in said for refusal in refusals) else said


CLIENTS: dict[str, Callable[[Broker, Kdc, str], str]] = {
    "ours": by_ours,
    "aiokafka": by_aiokafka,
    "kafka-python": by_kafka_python,
}
REFUSED = {"TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError", "refused"}


def check(write: Callable[[Broker, Kdc, str], str], secured: Broker, kdc: Kdc) -> None:
    for user in ("anna", "job/nightly", "ben"):
        kdc.log_in(user, kdc.keytab(user))
        before = len(secured.records("t"))
        heard = write(secured, kdc, user)
        if user == "ben":
            assert heard in REFUSED
        else:
            assert heard == WRITTEN, user
        assert len(secured.records("t")) == before + (user != "ben")


@pytest.mark.parametrize("client", CLIENTS)
def test_who_has_a_ticket_writes_if_they_may(client: str, secured: Broker, kdc: Kdc) -> None:
    check(CLIENTS[client], secured, kdc)


@pytest.mark.java
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["4.4.0", "3.9.1"])
def test_java_writes_by_a_ticket_if_it_may(secured: Broker, kdc: Kdc, version: str) -> None:
    check(partial(by_java, version=version), secured, kdc)
    # Its keys are taken back.
    keytab = kdc.keytab("anna")
    old = keytab.read_bytes()
    kdc.keytab("anna")
    keytab.write_bytes(old)
    assert by_java(secured, kdc, "anna", version) == "refused"


def test_librdkafka_writes_by_a_ticket(secured: Broker, kdc: Kdc) -> None:
    """Debian's kcat: the wheels of confluent-kafka have no GSSAPI."""
    kcat = require_tool("kcat", "apt-get install kcat")
    if "sasl_gssapi" not in subprocess.run([kcat, "-X", "list"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("this kcat has no GSSAPI")
    keytab = kdc.keytab("anna")
    kdc.log_in("anna", keytab)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(keytab),
        "sasl.kerberos.principal": f"anna@{REALM}",
    }
    options = [part for pair in settings.items() for part in ("-X", "=".join(pair))]
    command = [kcat, "-b", f"localhost:{secured.port}", *options, "-P", "-t", "t"]
    before = len(secured.records("t"))
    result = subprocess.run(command, input="v", capture_output=True, text=True, timeout=PATIENCE, check=False)
    if "No worthy mechs found" in result.stderr:
        pytest.skip("apt-get install libsasl2-modules-gssapi-mit")
    assert result.returncode == 0, result.stderr
    assert len(secured.records("t")) == before + 1


def test_a_void_key_gets_no_ticket(secured: Broker, kdc: Kdc) -> None:
    old = kdc.keytab("anna").read_bytes()
    path = kdc.keytab("anna")
    path.write_bytes(old)
    assert by_ours(secured, kdc, "anna") == "SASL_AUTHENTICATION_FAILED"


def test_a_ticket_for_a_key_that_the_broker_does_not_have_is_refused(secured: Broker, kdc: Kdc) -> None:
    """Somebody else's service, or this one's before its key was changed."""
    kdc.keytab("anna")
    stale = (kdc.folder / "kafka-localhost.keytab").read_bytes()
    current = kdc.keytab("kafka/localhost")
    fresh = current.read_bytes()
    current.write_bytes(stale)
    assert by_ours(secured, kdc, "anna") == "SASL_AUTHENTICATION_FAILED"
    current.write_bytes(fresh)  # read again for each client
    assert by_ours(secured, kdc, "anna") == WRITTEN


def test_a_keytab_that_is_gone_is_told_as_this_brokers_own_fault(
    secured: Broker, kdc: Kdc, caplog: pytest.LogCaptureFixture
) -> None:
    kdc.log_in("anna", kdc.keytab("anna"))
    keytab = kdc.folder / "kafka-localhost.keytab"
    keys = keytab.read_bytes()
    keytab.unlink()
    try:
        assert by_ours(secured, kdc, "anna") == "SASL_AUTHENTICATION_FAILED"
    finally:
        keytab.write_bytes(keys)
    (line,) = [one for one in caplog.records if "all GSSAPI authentications fail" in one.message]
    assert line.levelno == logging.ERROR
    assert str(keytab) in line.message
    assert by_ours(secured, kdc, "anna") == WRITTEN


def own_jaas(kdc: Kdc, host: str, more: str = "") -> str:
    own = f"kafka/{host}"
    return f'{MODULE} useKeyTab=true keyTab="{kdc.keytab(own)}" principal="{own}@{REALM}"{more};'


def test_two_names_of_the_service_are_refused_at_the_start(kdc: Kdc) -> None:
    jaas = own_jaas(kdc, "127.0.0.2", " serviceName=other")
    listener = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", JAAS: jaas}
    with pytest.raises(ConfigError, match="kafka: serviceName of the JAAS string is other"):
        Broker(config=RULES | listener).start()
    with pytest.raises(ValueError, match="kafka: serviceName of the JAAS string is other"):
        security_of(settings_of(kdc, "anna") | {"sasl.jaas.config": jaas})


def test_a_keytab_that_cannot_be_used_is_told_at_the_start(kdc: Kdc) -> None:
    jaas = own_jaas(kdc, "127.0.0.2")
    listener = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    (kdc.folder / "kafka-127.0.0.2.keytab").unlink()
    with pytest.raises(ConfigError, match=r"kafka-127\.0\.0\.2\.keytab has no key of"):
        Broker(config=RULES | listener | {JAAS: jaas}).start()
    with pytest.raises(OSError, match="kafka-127"):
        security_of(settings_of(kdc, "anna") | {"sasl.jaas.config": jaas})


def test_brokers_come_to_each_other_by_tickets(kdc: Kdc) -> None:
    config = RULES | {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "super.users": "User:kafka",
        JAAS: own_jaas(kdc, "127.0.0.1"),
    }
    with Cluster(brokers=2, topics={"t": 1}, config=config) as cluster:
        assert cluster.wait_for_isr("t", brokers=2, timeout=PATIENCE) == (1, 2)

        def names() -> set[str]:
            servers = map(cluster.server, cluster.brokers)
            return {str(one.session.principal) for server in servers for one in list(server.sockets._connections)}

        # A connection may just have come, and not have shown its ticket yet.
        wait_until(lambda: names() == {"User:kafka"}, timeout_s=PATIENCE, what="all are known by their tickets")


def test_garbage_is_refused_and_the_next_is_served(secured: Broker, kdc: Kdc) -> None:
    kdc.log_in("anna", kdc.keytab("anna"))
    for message in (b"", b"\0" * 5000, b"\x60\x82", bytes(range(256))):
        with closing(ConfigClient(f"127.0.0.1:{secured.port}")) as client:
            assert client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="GSSAPI")).error_code == 0
            said = client.call(ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=message))
            assert said.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert by_ours(secured, kdc, "anna") == WRITTEN

"""What a configuration says of an ensemble, and what is refused before anybody is asked."""

from __future__ import annotations

import pytest

from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.config.zookeeper import zookeeper_settings
from barnabas.server.metadata.zookeeper_settings import ZooKeeperSettings

CONNECT = {"zookeeper.connect": "a:1,b:2/kafka/one/"}


def settings(properties: dict[str, str]) -> ZooKeeperSettings:
    found = zookeeper_settings(BrokerConfig({**CONNECT, **properties}))
    assert found is not None
    return found


def test_a_broker_alone_has_none() -> None:
    assert zookeeper_settings(BrokerConfig()) is None


def test_addresses_path_and_timeouts() -> None:
    found = settings({"zookeeper.session.timeout.ms": "7000"})
    assert (found.hosts, found.root) == ("a:1,b:2", "/kafka/one")
    assert (found.session_timeout_ms, found.connection_timeout_ms) == (7000, 7000)
    assert ZooKeeperSettings("a:1").root == ZooKeeperSettings("a:1/").root == ""


@pytest.mark.parametrize("connect", ["localhost:xx", "a:1,:2181", "a:70000", "a:1,,b:2", "/kafka"])
def test_addresses_that_are_none_are_refused(connect: str) -> None:
    with pytest.raises(ConfigError, match=r"for configuration zookeeper\.connect: .*: expected host:port"):
        settings({"zookeeper.connect": connect})


def test_addresses_without_a_port_and_of_the_newer_protocol() -> None:
    assert settings({"zookeeper.connect": "a, [::1]:2181/x"}).hosts == "a, [::1]:2181"


def test_tls_with_pem_files() -> None:
    found = settings(
        {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": "/key.pem",
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.truststore.location": "/ca.pem",
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
            "zookeeper.set.acl": "true",
        }
    )
    assert (found.tls, found.ca_file, found.certificate_file, found.check_hostname) == (
        True,
        "/ca.pem",
        "/key.pem",
        False,
    )


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl"),
        ({"zookeeper.ssl.keystore.location": "/a.jks"}, "zookeeper.ssl.keystore.type"),
        ({"zookeeper.ssl.truststore.location": "/a", "zookeeper.ssl.truststore.type": "JKS"}, "truststore.type"),
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable"),
        ({"zookeeper.ssl.cipher.suites": "A"}, "zookeeper.ssl.cipher.suites"),
    ],
)
def test_what_would_be_less_safe_than_it_was_meant_is_refused(properties: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        settings({"zookeeper.ssl.client.enable": "true", **properties})

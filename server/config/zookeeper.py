"""The connection settings of the ZooKeeper ensemble, and the keys for it that have no effect in Barnabas."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from ..metadata.zookeeper_settings import ZooKeeperSettings
from .broker_config import BrokerConfig
from .keys.validators import ConfigError


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings | None:
    """Return the settings of `zookeeper.connect` and related keys; None for a standalone broker.

    Raises ConfigError for settings with less protection than they suggest: ACLs without an identity, certificate
    checks that kazoo does not implement, keystores that it cannot read.
    """
    if not config.zookeeper_connect:
        return None
    _check_addresses(config.zookeeper_connect)
    timeout_ms = config.zookeeper_connection_timeout_ms
    digest = config.zookeeper_digest_auth
    if config.zookeeper_set_acl and not digest and not config.zookeeper_ssl_keystore_location:
        reason = "the nodes would belong to no identity. Set zookeeper.digest.auth"
        raise ConfigError("zookeeper.set.acl", "true", reason)
    settings = ZooKeeperSettings(
        connect=config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_session_timeout_ms if timeout_ms is None else timeout_ms,
        max_in_flight=config.zookeeper_max_in_flight_requests,
        set_acl=config.zookeeper_set_acl,
        digest=digest,
    )
    return _with_tls(config, settings) if config.zookeeper_ssl_client_enable else settings


def _check_addresses(connect: str) -> None:
    for address in connect.partition("/")[0].split(","):
        try:
            found = urlsplit(f"//{address.strip()}")
            if found.hostname and found.port != 0:
                continue
        except ValueError:
            found = None
        raise ConfigError("zookeeper.connect", connect, f"{address!r}: expected host:port")


def _with_tls(config: BrokerConfig, settings: ZooKeeperSettings) -> ZooKeeperSettings:
    stores = (
        ("keystore", config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_keystore_type),
        ("truststore", config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_truststore_type),
    )
    for store, location, kind in stores:
        if location and kind != "PEM":
            raise ConfigError(f"zookeeper.ssl.{store}.type", kind, "only PEM is supported for connections to ZooKeeper")
    beyond = {
        "zookeeper.ssl.cipher.suites": config.zookeeper_ssl_cipher_suites,
        "zookeeper.ssl.crl.enable": config.zookeeper_ssl_crl_enable,
        "zookeeper.ssl.ocsp.enable": config.zookeeper_ssl_ocsp_enable,
    }
    for name, value in beyond.items():
        if value:
            raise ConfigError(name, value, "not supported by Barnabas")
    return replace(
        settings,
        tls=True,
        ca_file=config.zookeeper_ssl_truststore_location,
        certificate_file=config.zookeeper_ssl_keystore_location,
        key_password=config.zookeeper_ssl_keystore_password,
        check_hostname=bool(config.zookeeper_ssl_endpoint_identification_algorithm),
    )

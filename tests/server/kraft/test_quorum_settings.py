"""The settings of a broker for its controllers."""

from __future__ import annotations

import pytest

from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.kraft.quorum_settings import controller_listener, metadata_log_dir, quorum_config

KRAFT = {"process.roles": "broker", "node.id": "2", "controller.listener.names": "CONTROLLER"}


def test_controllers_are_found_by_bootstrap_servers_or_voters() -> None:
    config = BrokerConfig({**KRAFT, "controller.quorum.voters": "3000@one:9093,3001@two:9094"})
    assert config.is_kraft
    assert quorum_config(config).bootstrap_servers == (("one", 9093), ("two", 9094))
    both = {"controller.quorum.voters": "1@one:9093", "controller.quorum.bootstrap.servers": "two:9094"}
    assert quorum_config(BrokerConfig({**KRAFT, **both})).bootstrap_servers == (("two", 9094),)
    with pytest.raises(ConfigError, match="addresses of its controllers"):
        quorum_config(BrokerConfig(KRAFT))


def test_a_broker_with_both_roles_is_alone() -> None:
    assert not BrokerConfig({**KRAFT, "process.roles": "broker,controller"}).is_kraft
    assert not BrokerConfig({}).is_kraft


def test_the_listener_of_controllers_has_the_protocol_of_the_map() -> None:
    assert controller_listener(BrokerConfig(KRAFT)).security_protocol == "PLAINTEXT"
    mapped = "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"
    config = BrokerConfig({**KRAFT, "listener.security.protocol.map": mapped})
    assert (controller_listener(config).name, controller_listener(config).security_protocol) == (
        "CONTROLLER",
        "SASL_SSL",
    )
    with pytest.raises(ConfigError, match="no security protocol"):
        controller_listener(BrokerConfig({**KRAFT, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}))
    with pytest.raises(ConfigError, match="listener of its controllers"):
        controller_listener(BrokerConfig({"process.roles": "broker"}))


def test_the_metadata_log_is_in_one_of_the_log_directories() -> None:
    assert metadata_log_dir(BrokerConfig({**KRAFT, "log.dirs": "/a,/b"})) == "/a"
    assert metadata_log_dir(BrokerConfig({**KRAFT, "log.dirs": "/a,/b", "metadata.log.dir": "/b"})) == "/b"
    with pytest.raises(ConfigError, match=r"one of the directories in log\.dirs"):
        metadata_log_dir(BrokerConfig({**KRAFT, "log.dirs": "/a", "metadata.log.dir": "/c"}))


@pytest.mark.parametrize("roles", ["broker", "broker,controller"])
def test_listeners_that_start_early_are_listeners_of_the_broker_or_of_the_controllers(roles: str) -> None:
    listeners = {"listeners": "PLAINTEXT://:9092,INTERNAL://127.0.0.1:9094", "allow.insecure.listeners": "true"}
    mapped = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    properties = {**KRAFT, **listeners, **mapped, "process.roles": roles}
    for names in ("CONTROLLER", "internal, CONTROLLER", ""):
        BrokerConfig({**properties, "early.start.listeners": names})
    with pytest.raises(ConfigError, match=r"EXTERNAL is not contained in listeners or controller\.listener\.names"):
        BrokerConfig({**properties, "early.start.listeners": "CONTROLLER,EXTERNAL"})

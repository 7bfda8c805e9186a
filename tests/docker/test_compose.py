"""The compose file, without an engine: brokers would start with what it gives them, and find each other.

`make containers` runs it for real where there is an engine.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.kafka import ZooKeeperServer
from tests.server_process import free_port, wait_until

from barnabas.clients.cli.start import parser
from barnabas.protocol.properties import parse_properties
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.zookeeper import zookeeper_settings

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MEMBERS = ["broker-1", "broker-2", "broker-3"]
IMAGE_COMMAND = re.compile(r'ENTRYPOINT (\[.*"start".*\])')
DEADLINE_S = 60


def with_defaults(text: str) -> str:
    """What a variable of the compose file becomes where nobody sets it."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def properties(service: str) -> dict[str, str]:
    """The settings with which a broker of the compose file starts."""
    image = yaml.safe_load(IMAGE_COMMAND.findall((DOCKER / "Dockerfile").read_text())[0])
    command = [*SERVICES[service].get("entrypoint", image), *SERVICES[service]["command"]]
    assert command[:2] == ["barnabas", "start"]
    options = parser().parse_args([with_defaults(argument) for argument in command[2:]])
    file = DOCKER / Path(options.properties).name
    assert options.properties == f"/etc/barnabas/{file.name}"
    overrides = dict(override.split("=", 1) for override in options.override)
    return {**parse_properties(file.read_text()), **overrides}


def config(service: str) -> BrokerConfig:
    return BrokerConfig.from_properties(properties(service))


def published(service: str) -> dict[int, int]:
    """Ports of the host by those of the container; nobody from another machine reaches them."""
    found = {}
    for mapping in SERVICES[service]["ports"]:
        host, outside, inside = with_defaults(mapping).split(":")
        assert host == "127.0.0.1"
        found[int(inside)] = int(outside)
    return found


@pytest.mark.parametrize("service", ["broker", *MEMBERS])
def test_a_broker_is_reached_where_it_says(service: str) -> None:
    listeners = {listener.name: listener for listener in config(service).listeners}
    host, containers = listeners["HOST"], listeners["CONTAINERS"]
    assert (host.advertised_host, host.advertised_port) == ("localhost", published(service)[host.port])
    assert (containers.advertised_host, containers.advertised_port) == (SERVICES[service]["hostname"], containers.port)
    assert SERVICES[service]["hostname"] == service
    told = [
        notice for notice in config(service).notices if "docs/security.md" not in notice and "port 9404" not in notice
    ]
    assert told == [], "every setting is known"
    (volume,) = SERVICES[service]["volumes"]
    name, folder = volume.split(":")
    assert name in COMPOSE["volumes"]
    assert config(service).log_dirs == [folder]


def test_three_brokers_are_one_cluster() -> None:
    configs = [config(service) for service in MEMBERS]
    assert [one.configured_broker_id for one in configs] == [1, 2, 3]
    assert {one.inter_broker_listener.name for one in configs} == {"CONTAINERS"}
    assert len({port for service in MEMBERS for port in published(service).values()}) == 3
    assert len({volume for service in MEMBERS for volume in SERVICES[service]["volumes"]}) == 3
    for one in configs:
        settings = zookeeper_settings(one)
        assert settings is not None
        assert settings.connect.split(":")[0] in SERVICES
        assert one.default_replication_factor == 3


def test_the_demo_starts_without_the_cluster_and_the_cluster_without_the_demo() -> None:
    of_cluster = {name for name, service in SERVICES.items() if service.get("profiles") == ["cluster"]}
    assert of_cluster == {*MEMBERS, "zookeeper"}
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            assert (needed in of_cluster) == (name in of_cluster)
            assert how == {"condition": "service_healthy"}


@pytest.mark.verify
@pytest.mark.java
def test_the_three_brokers_run(tmp_path: Path) -> None:
    """With the settings of the compose file; only addresses and folders are this machine's."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(tmp_path / "zk")).address
        ports = {service: free_port() for service in MEMBERS}
        for service in MEMBERS:
            here = properties(service)
            inside = free_port()
            here["listeners"] = f"HOST://127.0.0.1:{ports[service]},CONTAINERS://127.0.0.1:{inside}"
            here["advertised.listeners"] = here["listeners"]
            here["zookeeper.connect"] = zookeeper
            here["log.dirs"] = str(tmp_path / service)
            here["health.port"] = "0"
            here["metrics.listeners"] = "127.0.0.1:0"
            file = tmp_path / f"{service}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in here.items()))
            stack.enter_context(BarnabasServer(tmp_path / f"{service}-run", settings=file, port=ports[service]))
        admin = AdminClient({"bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports.values())})
        wait_until(lambda: len(admin.list_topics(timeout=5).brokers) == 3, timeout_s=DEADLINE_S, what="three brokers")
        (created,) = admin.create_topics([NewTopic("orders", 3)]).values()
        created.result(DEADLINE_S)

        def in_sync() -> bool:
            topic = admin.list_topics("orders", timeout=5).topics["orders"]
            return all(len(partition.isrs) == 3 for partition in topic.partitions.values())

        wait_until(in_sync, timeout_s=DEADLINE_S, what="all replicas are in sync")

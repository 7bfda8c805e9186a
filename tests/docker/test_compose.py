"""The compose file, without an engine: brokers would start with what it gives them, and find each other.

`make containers` runs it for real where there is an engine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer, start_command
from tests.kafka import ZooKeeperServer
from tests.server_process import ServerProcess, free_port, wait_until, wait_until_all_registered
from tests.testing.test_cluster import partitions_told

from barnabas import Broker
from barnabas.common.properties import parse_properties
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.zookeeper import zookeeper_settings
from barnabas.tools.cli.container.broker_start import OWN_PROPERTIES
from barnabas.tools.cli.start import environment_properties, parser

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE: dict[str, Any] = yaml.load((DOCKER / "docker-compose.yml").read_text(), yaml.CSafeLoader)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ALONE: dict[str, Any] = yaml.load((DOCKER / "broker.yml").read_text(), yaml.CSafeLoader)
MEMBERS = ["broker-1", "broker-2", "broker-3"]
SECURED, SECURED_CLIENT = "secured", "secured-client"
CERTS = "/etc/barnabas/certs"
DEADLINE_S = 60


def with_defaults(text: str) -> str:
    """What a variable of the compose file becomes where nobody sets it."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def properties(service: str) -> dict[str, str]:
    """The settings with which a broker of the compose file starts."""
    image = ["barnabas", "start", OWN_PROPERTIES]  # without variables, the entry point of the image starts this
    command = [*SERVICES[service].get("entrypoint", image), *SERVICES[service].get("command", ())]
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


@pytest.mark.parametrize("service", ["broker", *MEMBERS, SECURED])
def test_a_broker_is_reached_where_it_says(service: str) -> None:
    listeners = {listener.name: listener for listener in config(service).listeners}
    host, containers = listeners["HOST"], listeners["CONTAINERS"]
    assert (host.advertised_host, host.advertised_port) == ("localhost", published(service)[host.port])
    assert (containers.advertised_host, containers.advertised_port) == (SERVICES[service]["hostname"], containers.port)
    assert SERVICES[service]["hostname"] == service
    told = [
        notice
        for notice in config(service).startup_warnings
        if "docs/security.md" not in notice and "Port 9404" not in notice
    ]
    assert told == [], "every setting is known"
    volume, *others = SERVICES[service]["volumes"]
    mounted = [f"certs:{CERTS}:ro", "./secured.properties:/etc/barnabas/secured.properties:ro"]
    assert others == (mounted if service == SECURED else [])
    name, folder = volume.split(":")
    assert name in COMPOSE["volumes"]
    assert config(service).log_dirs == [folder]


def test_a_broker_alone_is_reached_where_it_says() -> None:
    (name,) = ALONE["services"]
    broker = ALONE["services"][name]
    environment = {key: with_defaults(value) for key, value in broker["environment"].items()}
    settings = {**parse_properties((DOCKER / "server.properties").read_text()), **environment_properties(environment)}
    advertised = {
        one.name: (one.advertised_host, one.advertised_port) for one in BrokerConfig.from_properties(settings).listeners
    }
    host, *_ = (with_defaults(mapping).split(":") for mapping in broker["ports"])
    assert advertised == {"HOST": ("localhost", int(host[1])), "CONTAINERS": (name, 29092)}
    assert broker["hostname"] == name
    assert "ulimits" not in broker, "an engine that may not grant them starts nothing; the broker raises its own"


def test_the_broker_to_keep_has_no_name_of_the_demo() -> None:
    """Files of one folder are one project for compose: `down --volumes` of the demo would take the kept data along."""
    for names in ("services", "volumes"):
        assert not ALONE[names].keys() & COMPOSE[names].keys()


def test_a_port_of_the_host_that_is_taken_can_be_another() -> None:
    for service in (*SERVICES.values(), *ALONE["services"].values()):
        for mapping in service.get("ports", ()):
            assert re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", mapping)


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


def test_the_demo_starts_without_the_profiles_and_each_of_them_without_the_demo() -> None:
    of_profile = {
        profile: {name for name, service in SERVICES.items() if service.get("profiles", [None]) == [profile]}
        for profile in (None, "cluster", "secured", "table", "metrics")
    }
    assert of_profile["cluster"] == {*MEMBERS, "zookeeper"}
    assert of_profile["secured"] == {"certificates", SECURED, SECURED_CLIENT}
    assert set().union(*of_profile.values()) == set(SERVICES)
    for members in of_profile.values():
        for name in members:
            for needed, how in SERVICES[name].get("depends_on", {}).items():
                assert needed in members or (name, needed) == ("table", "broker")
                ends = needed == "certificates"
                assert how == {"condition": "service_completed_successfully" if ends else "service_healthy"}


def test_the_follower_of_the_profile_table_runs(tmp_path: Path) -> None:
    """With its own arguments; only addresses and folders are this machine's."""
    pytest.importorskip("pyiceberg", reason="pip install 'barnabas[iceberg]'")
    service = SERVICES["table"]
    (volume,) = service["volumes"]
    name, folder = volume.split(":")
    assert name in COMPOSE["volumes"]
    containers = next(one for one in config("broker").listeners if one.name == "CONTAINERS")
    address = f"{containers.advertised_host}:{containers.advertised_port}"
    assert service["environment"] == {"BARNABAS_BOOTSTRAP_SERVER": address}
    assert [f"--topic={service['command'][0]}:4"] == [one for one in SERVICES["broker"]["command"] if "--topic" in one]
    (metrics,) = [one.partition("=")[2] for one in service["command"] if one.startswith("--metrics-port=")]
    assert list(published("table")) == [int(metrics)]
    recipe = (DOCKER / "Dockerfile").read_text()
    stage = recipe[recipe.index("FROM runtime AS table\n") :].partition("\n\n")[0]
    command = json.loads(stage[stage.index("ENTRYPOINT ") + len("ENTRYPOINT ") :])
    assert command[0] == "barnabas"
    given = [one.replace(folder, str(tmp_path)).replace(f"={metrics}", "=0") for one in service["command"]]
    with Broker(topics=["flights"]) as broker:
        broker.produce("flights", [b"1,2", b"3,4"])
        arguments = [*command[1:], *given, "-b", broker.bootstrap]
        process = ServerProcess([sys.executable, "-m", "barnabas.tools.cli", *arguments], tmp_path / "follower.log")
        try:
            is_committed = "committed 2 rows"
            process.wait_ready(lambda: is_committed in process.log_tail(), timeout_s=DEADLINE_S, what=is_committed)
        finally:
            status = process.end()
    assert status == 128 + signal.SIGTERM
    from pyiceberg.catalog.sql import SqlCatalog

    lake = tmp_path / "lake"
    catalog = SqlCatalog("local", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
    rows = catalog.load_table("demo.flights").scan().to_arrow()
    assert sorted(rows["value"].to_pylist()) == ["1,2", "3,4"]


def test_the_follower_of_the_profile_table_is_kept_as_by_its_unit() -> None:
    unit = (DOCKER.parent / "tools/service/barnabas-table.service").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    service = SERVICES["table"]
    assert (settings["Restart"], settings["KillSignal"]) == (service["restart"], "SIGTERM")
    assert f"{settings['TimeoutStopSec']}s" == service["stop_grace_period"]
    assert service["mem_limit"] == "1g" and service["init"] is True


def test_the_secured_broker_lets_nobody_in_unasked() -> None:
    secured = config(SECURED)
    assert {listener.security_protocol for listener in secured.listeners} == {"SASL_SSL"}
    assert not secured.allow_insecure_listeners
    assert secured.static["authorizer.class.name"] and not secured.startup_warnings
    image = (DOCKER / "Dockerfile").read_text()
    for service, file in (
        (SECURED, SERVICES[SECURED]["entrypoint"][-1]),
        (SECURED_CLIENT, SERVICES[SECURED_CLIENT]["environment"]["BARNABAS_COMMAND_CONFIG"]),
    ):
        name = Path(file).name
        assert f"./{name}:{file}:ro" in SERVICES[service]["volumes"]
        assert name not in image
    copied = [word for line in image.splitlines() if line.startswith("COPY ") for word in line.split()]
    files = [DOCKER.parent / word for word in copied if word.startswith("docker/")]
    texts = [file.read_text() for file in files if file.is_file()]
    assert texts and not [text for text in texts if "password" in text.lower() or "secret" in text.lower()]
    assert f" {CERTS}\n" in image, "what a new volume takes its owner from"


def shell(service: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run what a service of the compose file runs, with the certificates of a folder of this machine."""
    (script,) = SERVICES[service]["command"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [*SERVICES[service]["entrypoint"], script],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_the_secured_profile_runs(tmp_path: Path) -> None:
    """With its own commands and files; only addresses and folders are this machine's."""
    certs = tmp_path / "certs"
    certs.mkdir()
    for _ in range(2):
        made = shell("certificates", certs)
        assert made.returncode == 0, made.stderr
    assert made.stdout == "", "the second start keeps them"
    here = {key: value.replace(CERTS, str(certs)) for key, value in properties(SECURED).items()}
    here |= {"listeners": "HOST://localhost:0,CONTAINERS://localhost:0", "log.dirs": str(tmp_path / "data")}
    here |= {"health.port": "0"}
    del here["advertised.listeners"]
    settings = tmp_path / "secured.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in here.items()))
    client = tmp_path / "client.properties"
    client.write_text((DOCKER / "client.properties").read_text().replace(CERTS, str(certs)))
    stranger = tmp_path / "stranger.properties"
    stranger.write_text(client.read_text().replace("alice-secret", "guessed"))
    broker = ServerProcess([*start_command(), str(settings)], tmp_path / "broker.log")
    try:
        broker.wait_ready(lambda: "\nready " in broker.log_tail(), timeout_s=DEADLINE_S, what="ready")
        (address,) = re.findall(r"^listening CONTAINERS://(\S+)$", broker.log_tail(), re.MULTILINE)
        where = {"BARNABAS_BOOTSTRAP_SERVER": address}
        read = shell(SECURED_CLIENT, tmp_path, BARNABAS_COMMAND_CONFIG=str(client), **where)
        assert (read.returncode, read.stdout.splitlines()) == (0, ["998", "999", "1000"]), read.stderr
        refused = shell(SECURED_CLIENT, tmp_path, BARNABAS_COMMAND_CONFIG=str(stranger), **where)
        assert refused.returncode == 1 and "Authentication failed" in refused.stderr
    finally:
        broker.end()


@pytest.mark.verify
@pytest.mark.java
@pytest.mark.timeout(240)
def test_the_three_brokers_run(tmp_path: Path) -> None:
    """With the settings of the compose file; only addresses and folders are this machine's."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(tmp_path / "zk")).address
        ports = {service: free_port() for service in MEMBERS}
        brokers: list[BarnabasServer] = []
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
            brokers.append(BarnabasServer(tmp_path / f"{service}-run", settings=file, port=ports[service]))
            stack.enter_context(brokers[-1])
        wait_until_all_registered(brokers, DEADLINE_S)
        admin = AdminClient({"bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports.values())})
        (created,) = admin.create_topics([NewTopic("orders", 3)]).values()
        created.result(DEADLINE_S)

        def in_sync() -> bool:
            found = partitions_told(admin, "orders")
            return bool(found) and all(len(partition.isrs) == 3 for partition in found)

        wait_until(in_sync, timeout_s=DEADLINE_S, what="all replicas are in sync")

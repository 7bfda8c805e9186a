"""Grafana's dashboard: what it asks for is told, and Prometheus understands the question."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from tests.docker.test_compose import COMPOSE, DOCKER, MEMBERS, SERVICES, config
from tests.foreign_tools import require_tool
from tests.server.metrics.test_metrics import at_work, read, values
from tests.server.telemetry.test_pushed_by_clients import SETTINGS, of_client, subscribe, until

from barnabas.testing import Broker

DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana" / "dashboard.json").read_text())
PATIENCE_S = 60
METRIC = re.compile(r"\b((?:kafka|barnabas|process)_\w+)\{([^}]*)\}")
BOUND = re.compile(r"\bby \(([^)]*)\)")
INSTANCE = "instance"


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    """As Grafana would ask, with all brokers chosen."""
    return [
        target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
        for panel in panels()
        for target in panel["targets"]
    ]


def test_every_metric_and_label_of_the_dashboard_is_in_a_scrape() -> None:
    with Broker({"t": 2}, config=SETTINGS | {"acks.all.durability": "disk"}) as broker:
        asyncio.run(subscribe(broker.bootstrap, {"metrics": "*", "interval.ms": "100"}))
        at_work(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "app", "log_level": 0})
        until(broker, lambda told: of_client(told, "barnabas_client_info", "app"))
        told = values(read(broker))
        producer.flush(PATIENCE_S)
    labels: dict[str, set[str]] = {}
    for name, pairs in told:
        labels.setdefault(name, {INSTANCE}).update(label for label, _ in pairs)
    asked = 0
    for expression in expressions():
        for name, matchers in METRIC.findall(expression):
            asked += 1
            assert name in labels, expression
            assert set(re.findall(r"(\w+)(?==|!=)", matchers)) <= labels[name], expression
            for by in BOUND.findall(expression):
                assert set(by.split(", ")) <= labels[name], expression
    assert asked >= len(expressions()) > 25


def test_prometheus_understands_every_question_and_its_own_settings(tmp_path: Path) -> None:
    promtool = require_tool("promtool", "apt-get install prometheus")
    rules = [{"record": f"question:{number}", "expr": one} for number, one in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    for command in (["rules", str(file)], ["config", "--syntax-only", str(DOCKER / "prometheus.yml")]):
        done = subprocess.run([promtool, "check", *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_panels_lie_beside_each_other_and_ids_are_their_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_prometheus_and_grafana_find_what_they_need() -> None:
    assert {name for name, one in SERVICES.items() if one.get("profiles") == ["metrics"]} == {"prometheus", "grafana"}
    for service in ("prometheus", "grafana"):
        for volume in SERVICES[service]["volumes"]:
            assert (DOCKER / volume.split(":")[0]).is_file()
    (job,) = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    for name in found["names"]:
        assert SERVICES[name]["hostname"] == name
        assert config(name).metrics_addresses == (("", found["port"]),)
    assert set(found["names"]) == {"broker", *MEMBERS}
    (source,) = yaml.safe_load((DOCKER / "grafana" / "datasource.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((DOCKER / "grafana" / "provisioning.yml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/barnabas.json" in mounted
    assert COMPOSE["services"]["grafana"]["ports"] == ["127.0.0.1:${GRAFANA_PORT:-3000}:3000"]

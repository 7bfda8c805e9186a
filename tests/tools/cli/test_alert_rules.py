"""The alert rules of `barnabas service alerts` in Prometheus' promtool: when each fires, and when it does not."""

from __future__ import annotations

import asyncio
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.foreign_tools import require_tool
from tests.server.metrics.test_metrics import families, read
from tests.waiting import until

from barnabas.clients import Admin, NewTopic, TopicPartition
from barnabas.clients.security import security_of
from barnabas.testing import Broker

RULES = Path(__file__).parents[3] / "tools" / "service" / "alerts.yml"
SICK, HEALTHY = "sick:9404", "healthy:9404"
OF_PROMETHEUS = {"instance", "job"}
PROMTOOL_SECONDS = 60


@dataclass(frozen=True)
class Case:
    """Series of a broker with a problem and of a broker without it, one value per minute, in Prometheus' notation.

    `a+bxn` is `a`, and n values that grow by `b`. The alert does not fire in the minute before `fires_at`.
    """

    sick: dict[str, str]
    healthy: dict[str, str]
    fires_at: int
    summary: str
    labels: dict[str, str] = field(default_factory=dict)


def gauge(name: str, fires_at: int, summary: str, *, labels: str = "", value: str = "3") -> Case:
    """Return a case of a gauge that has to be 0, and is not from the third minute on."""
    written = f"{name}{{{labels}}}"
    found = dict(re.findall(r'(\w+)="(.*?)"', labels))
    return Case({written: f"0 0 {value}+0x40"}, {written: "0+0x40"}, fires_at, summary, found)


def series(name: str, **labels: str) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


FREE, TOTAL = "barnabas_log_directory_free_bytes", "barnabas_log_directory_total_bytes"
DIRECTORY = {"log_directory": "/data"}
LOGIN = {"listener": "CLIENTS", "mechanism": "PLAIN"}
ERRORS = "kafka_network_requestmetrics_errors_total"
FAILED = {"request": "Produce", "error": "KAFKA_STORAGE_ERROR"}
LAG = {"consumergroup": "billing", "topic": "orders"}

CASES = {
    "BarnabasDown": Case(
        {series("up", job="barnabas"): "1 1 0+0x40"},
        {series("up", job="barnabas"): "1+0x40", series("up", job="other"): "0+0x40"},
        3,
        f"broker {SICK} does not answer",
        {"job": "barnabas"},
    ),
    "BarnabasLogDirectoryOffline": gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        2,
        f"broker {SICK} has an offline log directory: its disk failed",
    ),
    "BarnabasOfflinePartitions": gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount", 3, "3 partitions have no leader"
    ),
    "BarnabasUnderMinIsr": gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        3,
        f"3 partitions of {SICK} refuse records with acks=all",
    ),
    "BarnabasUnderReplicated": gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        7,
        f"3 partitions of {SICK} have replicas that are not in sync",
    ),
    "BarnabasEventLoopSlow": Case(
        {series("barnabas_loop_lag_seconds", quantile="0.99"): "0 0 0.5+0x40"},
        {
            series("barnabas_loop_lag_seconds", quantile="0.99"): "0.25+0x40",
            series("barnabas_loop_lag_seconds", quantile="0.999"): "9+0x40",  # a single step
        },
        7,
        f"the event loop of {SICK} is late by 0.5 s",
        {"quantile": "0.99"},
    ),
    "BarnabasFailedRequests": Case(
        {"barnabas_failed_requests_total": "0 0 1+1x40"},
        {"barnabas_failed_requests_total": "5+0x40"},
        7,
        f"requests to {SICK} fail with unexpected errors; its log has them",
    ),
    "BarnabasLogCleanerStopped": gauge(
        "kafka_log_logcleaner_deadthreadcount", 7, f"compaction has stopped on {SICK}", value="1"
    ),
    "BarnabasUncleanablePartitions": gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        17,
        f"3 partitions of {SICK} cannot be compacted",
        labels='logDirectory="/data"',
    ),
    "BarnabasConsumerLagGrows": Case(
        {series("kafka_consumergroup_lag_sum", **LAG): "9000+1500x40"},
        {
            series("kafka_consumergroup_lag_sum", **LAG): "90000-600x40",
            series("kafka_consumergroup_lag_sum", consumergroup="slow", topic="orders"): "50000+0x40",
            series("kafka_consumergroup_lag_sum", consumergroup="new", topic="orders"): "0+100x40",
        },
        16,
        "the lag of group billing grows by 25 records per second",
        LAG,
    ),
    "BarnabasDiskFull": gauge(
        "barnabas_log_directory_full",
        2,
        f"/data of {SICK} is full: produce requests fail",
        labels='log_directory="/data"',
        value="1",
    ),
    "BarnabasDiskAlmostFull": Case(
        {series(FREE, **DIRECTORY): "200 200 50+0x40", series(TOTAL, **DIRECTORY): "1000+0x40"},
        {series(FREE, **DIRECTORY): "100+0x40", series(TOTAL, **DIRECTORY): "1000+0x40"},
        7,
        f"5% of /data of {SICK} is free",
        DIRECTORY,
    ),
    "BarnabasDiskFullSoon": Case(
        {series(FREE, **DIRECTORY): "10000-50x40"},
        {series(FREE, **DIRECTORY): "100000-50x40"},
        16,
        f"/data of {SICK} will be full within four hours",
        DIRECTORY,
    ),
    "BarnabasCertificateExpiresSoon": Case(
        {series("barnabas_certificate_expiry_seconds", listener="CLIENTS"): "1209600-60x40"},
        {series("barnabas_certificate_expiry_seconds", listener="CLIENTS"): "1300000-60x40"},
        6,
        f"the certificate of listener CLIENTS of {SICK} expires in 13d 23h 54m 0s",
        {"listener": "CLIENTS"},
    ),
    "BarnabasFailedLogins": Case(
        {series("barnabas_failed_authentications_total", **LOGIN): "0 0 0+30x40"},
        {series("barnabas_failed_authentications_total", **LOGIN): "0+3x40"},
        9,
        f"0.5 logins per second fail on listener CLIENTS of {SICK}",
        LOGIN,
    ),
    "BarnabasRequestErrors": Case(
        {series(ERRORS, **FAILED): "0 0 1+1x40"},
        {
            series(ERRORS, **FAILED): "5+0x40",
            series(ERRORS, request="Produce", error="NOT_LEADER_OR_FOLLOWER"): "0+9x40",
        },
        7,
        f"Produce requests to {SICK} fail with KAFKA_STORAGE_ERROR",
        FAILED,
    ),
    "BarnabasTransactionOpen": Case(
        {"barnabas_oldest_open_transaction_seconds": "0+60x40"},
        {"barnabas_oldest_open_transaction_seconds": "900+0x40"},
        21,
        f"a transaction on {SICK} is open for 21m 0s: read_committed consumers wait",
    ),
    "BarnabasLateTransactions": gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        7,
        f"3 partitions of {SICK} have a transaction that no producer ends",
    ),
    "BarnabasThrottled": Case(
        {series("barnabas_throttled_requests_total", quota="Produce"): "0 0 1+1x40"},
        {series("barnabas_throttled_requests_total", quota="Produce"): "7+0x40"},
        17,
        f"quota Produce of {SICK} throttles clients",
        {"quota": "Produce"},
    ),
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def of_instance(written: str, instance: str) -> str:
    """Return a series with the label that Prometheus adds."""
    name, _, labels = written.removesuffix("}").partition("{")
    return f'{name}{{{labels}{"," if labels else ""}instance="{instance}"}}'


def promtool_test(rule: dict[str, Any], case: Case) -> dict[str, Any]:
    """Return the case as a test of promtool."""
    alert = {
        "exp_labels": case.labels | {"instance": SICK, "severity": rule["labels"]["severity"]},
        "exp_annotations": {"summary": case.summary},
    }
    return {
        "interval": "1m",
        "input_series": [
            {"series": of_instance(written, instance), "values": values}
            for instance, all_series in ((SICK, case.sick), (HEALTHY, case.healthy))
            for written, values in all_series.items()
        ],
        "alert_rule_test": [
            {"eval_time": f"{case.fires_at - 1}m", "alertname": rule["alert"]},
            {"eval_time": f"{case.fires_at}m", "alertname": rule["alert"], "exp_alerts": [alert]},
        ],
    }


def test_each_rule_has_a_case() -> None:
    assert [rule["alert"] for rule in rules()] == list(CASES)


def test_each_rule_fires_on_its_condition_only(tmp_path: Path) -> None:
    promtool = require_tool("promtool", "apt-get install prometheus")
    tests = [promtool_test(rule, CASES[rule["alert"]]) for rule in rules()]
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(file)]):
        done = subprocess.run(
            [promtool, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PROMTOOL_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def labels_of(rule: dict[str, Any]) -> set[str]:
    """Return the labels that a rule selects, groups by or prints, without the labels that Prometheus adds."""
    selected = re.findall(r"(\w+)=~?\"", rule["expr"])
    grouped = [label for labels in re.findall(r"\bby \((.*?)\)", rule["expr"]) for label in labels.split(", ")]
    printed = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    return {*selected, *grouped, *printed} - OF_PROMETHEUS


def series_of(rule: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\b(?:kafka|barnabas)_[a-z_]+\b", rule["expr"]))


def published(broker: Broker) -> dict[str, set[str]]:
    """Return the labels of each series that a broker publishes."""
    return {sample.name: set(sample.labels) for family in families(read(broker)) for sample in family.samples}


def test_a_broker_publishes_the_series_of_the_rules() -> None:
    with Broker({"orders": 1}, sasl={"ann": "secret"}, tls=True, config={"metrics.listeners": "127.0.0.1:0"}) as broker:
        settings = broker.client_settings("ann")
        del settings["bootstrap.servers"]

        async def work() -> None:
            async with Admin(broker.bootstrap, security=security_of(settings)) as admin:
                await admin.create_topics([NewTopic("orders", 1)])  # an error that is counted
                await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})

        broker._call(work())
        # The lag of the loop, for example, is measured once in a second.
        everything = set().union(*map(series_of, rules()))
        asyncio.run(until(lambda: everything <= published(broker).keys(), "all series of the rules are published"))
        labels = published(broker)
    for rule in rules():
        for name in series_of(rule):
            assert labels_of(rule) <= labels[name], f"{rule['alert']}: {name} has the labels {labels[name]}"

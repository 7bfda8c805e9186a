"""What docs/testing.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.testing import Broker, Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def test_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole, methods, secured, faults = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    told: list[str] = []
    exec(whole, {"run_my_service": told.append})
    assert told[0].startswith("127.0.0.1:")
    with Broker({"orders": 3}) as broker:
        exec(methods, {"broker": broker})
        assert (tmp_path / "tests" / "data" / "orders" / "orders-0").is_dir()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 1})
        producer.produce("orders", b"v", partition=0)
        exec(faults, {"broker": broker, "producer": producer})
    exec(secured, {"Broker": Broker})


def test_every_method_of_a_cluster_is_told_of() -> None:
    public = {name for name in dir(Cluster) if not name.startswith("_")} - {"server"}
    blocking = {name for name in public if f"a{name}" in public} | {"leader", "isr"}
    assert {name for name in blocking if f"`{name}(" not in PAGE} == set()
    assert "`controller`" in PAGE


def test_every_fault_is_told_of() -> None:
    with Broker() as broker:
        public = {name for name in dir(broker.faults) if not name.startswith("_")}
    public -= {"attach", "detach", "disk", "points", "remove"}
    assert {name for name in public if f"`{name}(" not in PAGE and f"faults.{name}(" not in PAGE} == set()

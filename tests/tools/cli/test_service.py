"""`barnabas service`, and a broker that systemd would start."""

from __future__ import annotations

import configparser
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from barnabas.server.metrics.catalogue import METRICS
from barnabas.tools.cli.app import app

runner = CliRunner()
SECONDS = 60


def unit_of(*arguments: str) -> configparser.ConfigParser:
    shown = runner.invoke(app, ["service", "print", *arguments])
    assert shown.exit_code == 0, shown.output
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(shown.output)
    return unit


def test_a_unit_of_the_machine_has_a_user_and_a_sandbox() -> None:
    unit = unit_of("--system", "--data", "/srv/kafka logs/100%")
    service = unit["Service"]
    command = service["ExecStart"]
    assert command.endswith(' start /etc/barnabas/server.properties --data "/srv/kafka logs/100%%"')
    assert Path(command.split()[0]).name == "barnabas"
    assert (service["Type"], service["User"], service["ProtectSystem"]) == ("notify", "barnabas", "strict")
    assert "StateDirectory" not in service
    assert unit_of("--system")["Service"]["StateDirectory"] == "barnabas"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_install_writes_the_unit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done = runner.invoke(app, ["service", "install", "--user"])
    assert done.exit_code == 0, done.output
    unit = tmp_path / "config" / "systemd" / "user" / "barnabas.service"
    properties = tmp_path / "config" / "barnabas" / "server.properties"
    assert f"start {properties} --data {tmp_path / 'data' / 'barnabas'}" in unit.read_text()
    assert stat.S_IMODE(properties.stat().st_mode) == 0o600
    properties.write_text("num.partitions=3\n")
    again = runner.invoke(app, ["service", "install", "--user"])
    assert again.exit_code == 1
    assert "exists. Use --force to replace it" in again.output
    assert runner.invoke(app, ["service", "install", "--user", "--force"]).exit_code == 0
    assert properties.read_text() == "num.partitions=3\n"


def test_alerts_use_metrics_that_exist() -> None:
    shown = runner.invoke(app, ["service", "alerts"])
    rules = [rule for group in yaml.safe_load(shown.output)["groups"] for rule in group["rules"]]
    assert len(rules) >= 10
    names = {f"{name}_total" if metric.kind == "counter" else name for name, metric in METRICS.items()}
    for rule in rules:
        used = set(re.findall(r"\b(?:kafka|barnabas)_[a-z_]+\b", rule["expr"]))
        assert used <= names, rule
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert used or "up{" in rule["expr"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd")
def test_a_broker_notifies_systemd(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS)
        environment = {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        broker = subprocess.Popen(
            [sys.executable, "-m", "barnabas.tools.cli", "start", "--data", str(tmp_path / "data"), "--port", "0"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert "EXTEND_TIMEOUT_USEC=60000000" in manager.recv(4096).decode()
            message = ""
            while "READY=1" not in message:
                message = manager.recv(4096).decode()
            assert "STATUS=serves clients as broker" in message
            began = time.monotonic()
            for _ in range(3):
                assert manager.recv(4096) == b"WATCHDOG=1"
            assert time.monotonic() - began < SECONDS
            # A stopped process sends nothing, so that systemd would restart it.
            broker.send_signal(signal.SIGSTOP)
            manager.settimeout(1)
            with pytest.raises(TimeoutError):
                while True:
                    manager.recv(4096)
            broker.send_signal(signal.SIGCONT)
            manager.settimeout(SECONDS)
            broker.terminate()
            while "STOPPING=1" not in message:
                message = manager.recv(4096).decode()
            assert broker.wait(SECONDS) == 0
        finally:
            broker.kill()
            broker.wait()


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    try:
        subprocess.run(["systemd-analyze", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("systemd-analyze is not installed")
    for scope in ("--system", "--user"):
        path = tmp_path / scope.strip("-") / "barnabas.service"
        path.parent.mkdir()
        path.write_text(runner.invoke(app, ["service", "print", scope]).output)
        done = subprocess.run(
            ["systemd-analyze", scope, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
        )
        complaints = [
            line for line in done.stderr.splitlines() if "barnabas.service" in line and "not executable" not in line
        ]
        assert complaints == []

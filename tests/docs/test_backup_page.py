"""The units of the page about backups: systemd's syntax, and the command that the timer runs."""

from __future__ import annotations

import configparser
import shlex
import subprocess
from pathlib import Path

from tests.barnabas_server import BarnabasServer, cli_command
from tests.docs.page import blocks_of

PROGRAM, TARGET = "/opt/barnabas/bin/barnabas", "/var/backups/barnabas"


def unit_of(name: str) -> configparser.ConfigParser:
    (text,) = (block.code for block in blocks_of("how-to/backup.md") if block.file == name)
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    return unit


def test_the_command_of_the_timer_takes_a_backup(tmp_path: Path) -> None:
    words = shlex.split(unit_of("barnabas-backup.service")["Service"]["ExecStart"])
    assert words[:3] == [PROGRAM, "backup", TARGET]
    with BarnabasServer(tmp_path / "broker") as broker:
        command = cli_command("backup", str(tmp_path / "backups"), *words[3:], "-b", broker.bootstrap)
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    assert len(list((tmp_path / "backups" / "backups").iterdir())) == 1


def test_the_timer_starts_the_service_of_its_name() -> None:
    timer = unit_of("barnabas-backup.timer")
    assert timer["Timer"]["OnCalendar"] == "hourly"
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert unit_of("barnabas-backup.service")["Service"]["Type"] == "oneshot"

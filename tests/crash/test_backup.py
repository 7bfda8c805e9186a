"""Backups of a broker that clients work on, and of one whose backups are killed: each complete backup restores."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer, cli_command
from tests.crash.backup_load import SETTINGS, Acknowledged, BackupLoad, check_restored

BACKUPS = int(os.environ.get("BARNABAS_BACKUPS", "2"))
KILLED = int(os.environ.get("BARNABAS_KILLED_BACKUPS", "4"))


async def command(*words: str) -> tuple[int, str]:
    """Run a command in a process of its own; return its status and output."""
    process = await asyncio.create_subprocess_exec(
        *cli_command(*words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode is not None
    return process.returncode, output.decode()


async def check_backup(load: BackupLoad, before: Acknowledged, target: Path, backup: str, folder: Path) -> None:
    """Restore a backup, start a broker on it, check it, and stop it."""
    status, output = await command("restore", str(target), "--backup", backup, "--to", str(folder / "data"))
    assert status == 0, output
    restored = BarnabasServer(folder, properties=SETTINGS)
    try:
        await asyncio.to_thread(restored.start)
        await asyncio.wait_for(check_restored(restored.bootstrap, load, before), 120)
        assert await asyncio.to_thread(restored.stop) == 0
    finally:
        await asyncio.to_thread(restored.kill)
    shutil.rmtree(folder)


@pytest.mark.verify
@pytest.mark.timeout(600)
async def test_backups_of_a_broker_at_work_restore_to_one_moment(tmp_path: Path) -> None:
    target = tmp_path / "backups"
    broker = BarnabasServer(tmp_path / "broker", properties=SETTINGS)
    await asyncio.to_thread(broker.start)
    try:
        load = BackupLoad(broker.bootstrap)
        await load.start()
        for number in range(BACKUPS):
            before = load.acknowledged()
            status, output = await command("backup", str(target), "--keep", "3", "-b", broker.bootstrap, "--json")
            assert status == 0, output
            load.check_running()
            await check_backup(load, before, target, json.loads(output)["backup"], tmp_path / f"restored-{number}")
        await load.stop()
        status, output = await command("backup", "verify", str(target))
        assert status == 0, output
        assert await asyncio.to_thread(broker.stop) == 0
        assert not list(broker.log_dir.glob("*.backup-*")), "no copy of the metadata is left"
    finally:
        await asyncio.to_thread(broker.kill)


@pytest.mark.verify
@pytest.mark.timeout(900)
async def test_a_killed_backup_leaves_the_last_one(tmp_path: Path) -> None:
    target, rng = tmp_path / "backups", random.Random(3)
    broker = BarnabasServer(tmp_path / "broker", properties=SETTINGS)
    await asyncio.to_thread(broker.start)
    try:
        load = BackupLoad(broker.bootstrap)
        await load.start()
        before, began = load.acknowledged(), time.monotonic()
        status, output = await command("backup", str(target), "-b", broker.bootstrap, "--json")
        assert status == 0, output
        seconds = time.monotonic() - began
        last, was_killed = json.loads(output)["backup"], 0
        for number in range(KILLED):
            now = load.acknowledged()
            process = subprocess.Popen(
                cli_command("backup", str(target), "--keep", "2", "-b", broker.bootstrap),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                await asyncio.to_thread(process.wait, rng.uniform(0.1, 0.8) * seconds)
            except subprocess.TimeoutExpired:
                process.kill()
            status = await asyncio.to_thread(process.wait)
            assert status in (0, -signal.SIGKILL)
            was_killed += status != 0
            load.check_running()
            status, output = await command("backup", "list", str(target), "--json")
            assert status == 0, output
            listed = json.loads(output)
            assert {row["state"] for row in listed} == {"complete"}
            if listed[-1]["backup"] != last:
                last, before = listed[-1]["backup"], now
            if number % 5 == 0 or number == KILLED - 1:
                await check_backup(load, before, target, last, tmp_path / f"restored-{number}")
            else:
                status, output = await command("backup", "verify", str(target))
                assert status == 0, output
        print(f"{was_killed} of {KILLED} backups were killed", file=sys.stderr)
        status, output = await command("backup", str(target), "--keep", "1", "-b", broker.bootstrap)
        assert status == 0, output
        assert not any((target / "temporary").iterdir())
        await load.stop()
        assert await asyncio.to_thread(broker.stop) == 0
    finally:
        await asyncio.to_thread(broker.kill)

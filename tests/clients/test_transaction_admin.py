"""Transactions as an operator sees them: listed, described, found hanging, and ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable

import pytest
from tests.server.coordinator.transaction.producers import RawProducer
from tests.server.data_plane import DataPlane, play

from barnabas import Broker
from barnabas.clients import Admin, Producer, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.simulation.machines import HOST, PORT
from barnabas.tools.cli import main

ADDRESS = f"{HOST}:{PORT}"
PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_what_hangs_is_found_and_ended() -> None:
    async def talk(plane: DataPlane) -> None:
        good = await RawProducer.open(plane)
        await good.send(b"open")
        stray = RawProducer(await plane.connect(), "stray", 1)
        stray.producer_id, stray.epoch = 99, 3
        assert await stray.append(b"nobody's", index=1) == ErrorCode.NONE
        async with Admin(ADDRESS, rng=plane.world.random) as admin:
            assert [(one.partition, one.producer_id) for one in await admin.open_transactions(PLACES)] == [
                (PLACES[0], good.producer_id),
                (PLACES[1], 99),
            ]
            now = plane.now_ms()
            assert await admin.find_hanging(PLACES, older_than_ms=3_600_000, now_ms=now) == []
            (hanging,) = await admin.find_hanging(PLACES, older_than_ms=0, now_ms=now)
            assert (hanging.partition, hanging.producer_id, hanging.start_offset) == (PLACES[1], 99, 0)
            await admin.abort_transaction(hanging)
            assert plane.partition(index=1).log.last_stable_offset == 2
            assert await admin.find_hanging(PLACES, older_than_ms=0, now_ms=now) == []
            (listed,) = await admin.list_transactions(states=["Ongoing"])
            assert (listed.transactional_id, listed.coordinator_id) == ("x", 1)
            described = await admin.describe_transactions(["x", "unknown"])
            known, unknown = described["x"], described["unknown"]
            assert not isinstance(known, KafkaError) and known.partitions == [PLACES[0]]
            assert isinstance(unknown, KafkaError) and unknown.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    play(talk, settings={"transaction.partition.verification.enable": "false"})


def test_what_a_coordinator_does_not_tell_of_is_not_taken_for_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(admin: Admin, names: Iterable[str]) -> dict[str, KafkaError]:
        return dict.fromkeys(names, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "is gone"))

    async def talk(plane: DataPlane) -> None:
        await (await RawProducer.open(plane)).send(b"open")
        async with Admin(ADDRESS, rng=plane.world.random) as admin:
            assert await admin.find_hanging(PLACES, older_than_ms=0, now_ms=plane.now_ms()) == []
            monkeypatch.setattr(Admin, "describe_transactions", silent)
            with pytest.raises(KafkaError, match="is gone"):
                await admin.find_hanging(PLACES, older_than_ms=0, now_ms=plane.now_ms())

    play(talk)


def test_the_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", broker.bootstrap)
        monkeypatch.setenv("COLUMNS", "160")
        broker.create_topic("t", 1)

        async def in_transaction(work: Callable[[], None]) -> None:
            async with Producer(broker.bootstrap, transactional_id="mine") as producer:
                with pytest.raises(KafkaError):
                    async with producer.transaction():
                        await producer.send_and_wait("t", b"v")
                        await asyncio.to_thread(work)

        def look() -> None:
            def run(*arguments: str) -> tuple[int, str]:
                capfd.readouterr()
                try:
                    status = main(["transactions", *arguments])
                except SystemExit as end:
                    status = int(end.code or 0)
                return status, capfd.readouterr().out

            (row,) = json.loads(run("list", "--state", "Ongoing", "--json")[1])
            assert (row["transactional_id"], row["state"]) == ("mine", "Ongoing")
            (row,) = json.loads(run("describe", "mine", "--json")[1])
            assert (row["partitions"], row["timeout_ms"]) == ("t-0", 60_000)
            assert run("describe", "unknown")[0] == 1
            assert json.loads(run("find-hanging", "--older-than", "0", "--json")[1]) == []
            assert run("abort", "t", "0", "--start-offset", "5")[0] == 1
            assert run("abort", "t", "0", "--start-offset", "0")[0] == 0
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "enough")

        asyncio.run(in_transaction(look))

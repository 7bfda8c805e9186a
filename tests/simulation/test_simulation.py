"""Scenarios of users under simulation: they end, they fail with their seed, and a seed always does the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.scenarios import RECORDS, follow, produce_all, two_topics_in_a_storm

from barnabas.clients.admin import Admin, NewTopic
from barnabas.simulation import Simulation, SimulationError, simulate, simulated

ROOT = Path(__file__).parents[2]
SEED = 5


def digest(hash_seed: int) -> str:
    """Of the same seed in a process of its own."""
    code = (
        "from tests.simulation.scenarios import two_topics_in_a_storm; from barnabas.simulation import simulate; "
        f"print(simulate(two_topics_in_a_storm, seeds=[{SEED}])[0].digest)"
    )
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT / '.src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first, other, again = simulate(two_topics_in_a_storm, seeds=[SEED, SEED + 1, SEED])
    assert first == again
    assert first.digest != other.digest
    assert first.log
    assert digest(hash_seed=7) == str(first.digest)


def test_an_hour_passes_at_once() -> None:
    async def scenario(sim: Simulation) -> None:
        found: list[bytes] = []
        await sim.cluster.create_topic("orders")
        before, wall, monotonic = sim.time, time.time(), time.monotonic()
        await asyncio.sleep(600)
        await produce_all(sim, "orders")
        sim.program("reader", follow, sim.bootstrap, ["orders"], found)
        await sim.until(lambda: len(found) == RECORDS)
        assert sim.time - before == pytest.approx(time.time() - wall) == pytest.approx(time.monotonic() - monotonic)
        records = await sim.cluster.records("orders")
        assert [record.value for record in records] == found
        assert all(abs(record.timestamp / 1000 - time.time()) < 100 for record in records)

    real = time.time()
    (run,) = simulate(scenario, seeds=1)
    assert 600 < run.seconds < 700
    assert abs(time.time() - real) < 600


def test_one_broker_is_a_cluster_too() -> None:
    async def scenario(sim: Simulation) -> None:
        async with Admin(sim.bootstrap) as admin:
            await admin.create_topics([NewTopic("orders", 2)])
        await produce_all(sim, "orders")
        assert len(await sim.cluster.records("orders")) == RECORDS
        apart = [*await sim.cluster.records("orders", 0), *await sim.cluster.records("orders", 1)]
        assert apart == await sim.cluster.records("orders")
        assert sim.cluster.brokers == [1]

    simulate(scenario, seeds=1, brokers=1, config={"num.network.threads": 5})


CHANCE = """
import os, random, uuid
from barnabas.simulation import simulate

drawn = []

async def scenario(sim):
    drawn.append((random.random(), random.Random().random(), uuid.uuid4(), os.urandom(4), sim.random.random()))

state = random.getstate()
simulate(scenario, seeds=[3, 3, 4], brokers=1)
assert drawn[0] == drawn[1] != drawn[2], drawn
assert random.getstate() == state
"""


def test_chance_is_the_seeds() -> None:
    """In a process of its own: threads that other tests have left may draw from the generator that all share."""
    subprocess.run([sys.executable, "-c", CHANCE], check=True, timeout=100)


def test_a_failure_says_which_seed_and_what_had_happened() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.note(f"this is {sim.seed}")
        sim.faults.kill(2)
        assert sim.seed < 2, "two is too many"

    with pytest.raises(SimulationError, match=r"seed 2 fails after .*two is too many") as failed:
        simulate(scenario, seeds=5)
    assert failed.value.seed == 2
    assert isinstance(failed.value.__cause__, AssertionError)
    assert "this is 2" in str(failed.value) and "kill broker 2" in str(failed.value)
    assert "seeds=[2]" in str(failed.value)


def test_the_environment_names_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(sim: Simulation) -> None:
        assert sim.seed == 17

    monkeypatch.setenv("BARNABAS_SEED", "17")
    assert [run.seed for run in simulate(scenario, brokers=1)] == [17]


@simulated(seeds=2, brokers=1)
async def test_a_scenario_is_a_test_with_fixtures(sim: Simulation, tmp_path: Path) -> None:
    (tmp_path / f"{sim.seed}").touch()
    await asyncio.sleep(60)
    assert len(list(tmp_path.iterdir())) == sim.seed + 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"brokers": 0}, "expected at least one broker, not 0"),
        ({"seeds": 0}, "expected at least one seed"),
        ({"seeds": iter(())}, "expected at least one seed"),
        ({"config": {"log.retention.hour": 1}}, "did you mean 'log.retention.hours'"),
    ],
)
def test_arguments_that_mean_nothing(arguments: dict[str, Any], complaint: str) -> None:
    async def scenario(_: Simulation) -> None:
        raise AssertionError("it is played")

    with pytest.raises(ValueError, match=complaint):
        simulate(scenario, **arguments)

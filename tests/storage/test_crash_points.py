"""A crash at every file-system call of every storage operation keeps what was promised.

`python -m pytest tests/storage/test_crash_points.py -k "append"` narrows to one operation; a failure names the image
(call, mode, seed), which `test_one_image` takes to replay it.
"""

import os
import random

import pytest
from tests.nightly import mark_rest_nightly
from tests.storage.crash_points import Image, check_image, count_calls, images, prepare, run_until
from tests.storage.crash_scenarios import BY_NAME, SCENARIOS, Scenario, random_steps

from barnabas.storage.log_manager import LogManager

IMAGES_OF_FAST_RUN = 1500
IMAGES_OF_VERIFY_RUN = 10_000
ROUNDS = 2
"""How often the verify run goes over each call, with other survivors each time."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_spread_of_crashes_keeps_every_promise(scenario: Scenario) -> None:
    prepared = prepare(scenario)
    total = count_calls(scenario, prepared)
    assert total >= 1, "a scenario has to reach the disk"
    stride = max(1, total * 8 * len(SCENARIOS) // IMAGES_OF_FAST_RUN)
    checked = sum(1 for _ in images(scenario, prepared, range(1, total + 2, stride)))
    assert checked >= 8 * ((total + 1) // stride)


@pytest.mark.parametrize("seed", range(8))
def test_crashes_in_random_walks_keep_every_promise(seed: int) -> None:
    scenario = random_steps(seed)
    prepared = prepare(scenario)
    total = count_calls(scenario, prepared)
    for call in range(1 + seed % 3, total + 2, 1 + total // 6):
        for _ in images(scenario, prepared, range(call, call + 1)):
            pass


@pytest.mark.verify
@pytest.mark.parametrize("round_number", range(ROUNDS))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_at_every_call_keeps_every_promise(scenario: Scenario, round_number: int) -> None:
    prepared = prepare(scenario)
    total = count_calls(scenario, prepared)
    checked = sum(1 for _ in images(scenario, prepared, range(1, total + 2), round_number=round_number))
    assert checked == (total + 1) * 8


@pytest.mark.verify
@pytest.mark.parametrize("first", mark_rest_nightly(range(100, 300, 10), 10))
def test_crashes_in_many_random_walks_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 10):
        scenario = random_steps(seed)
        prepared = prepare(scenario)
        total = count_calls(scenario, prepared)
        rng = random.Random(seed)
        for _ in range(5):
            call = rng.randint(1, total + 1)
            for _ in images(scenario, prepared, range(call, call + 1)):
                pass


@pytest.mark.verify
def test_the_crash_run_is_large_enough() -> None:
    calls = sum(count_calls(scenario, prepare(scenario)) + 1 for scenario in SCENARIOS)
    assert calls * 8 * ROUNDS >= IMAGES_OF_VERIFY_RUN


def test_one_image() -> None:
    """Replays BARNABAS_IMAGE="scenario:call:mode:seed"; without it, one that shows the replay works."""
    name, call, mode, seed = os.environ.get("BARNABAS_IMAGE", "append:20:B:1").split(":")
    scenario = BY_NAME[name]
    disk, promises = run_until(scenario, prepare(scenario), int(call), LogManager)
    assert mode in ("A", "B", "kill")
    check_image(scenario, disk, promises, Image(int(call), mode, int(seed)), LogManager)  # type: ignore[arg-type]

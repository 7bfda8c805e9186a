"""A crash at every file-system call of cleaning and swapping leaves a log that opens and reads the same.

A failure names the scenario and the image; `images(BY_NAME[scenario], range(call, call + 1))` makes it again.
"""

import pytest
from tests.cleaning.crash_images import SCENARIOS, Scenario, count_calls, images, walk_of
from tests.nightly import mark_rest_nightly
from tests.storage.crash_points import SURVIVORS

CALLS_OF_FAST_RUN = 5
WALKS = 12


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_spread_of_crashes_keeps_every_promise(scenario: Scenario) -> None:
    total = count_calls(scenario)
    assert total > 50, "a scenario has to reach the disk"
    checked = sum(1 for _ in images(scenario, range(1, total + 2, 1 + total // CALLS_OF_FAST_RUN)))
    assert checked >= CALLS_OF_FAST_RUN * len(SURVIVORS)


@pytest.mark.verify
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", mark_rest_nightly(range(4), 2))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_at_every_call_keeps_every_promise(scenario: Scenario, part: int) -> None:
    total = count_calls(scenario)
    calls = range(1 + part, total + 2, 4)
    assert sum(1 for _ in images(scenario, calls)) == len(calls) * len(SURVIVORS)


@pytest.mark.verify
@pytest.mark.parametrize("seed", mark_rest_nightly(range(WALKS), 6))
def test_crashes_in_random_walks_keep_every_promise(seed: int) -> None:
    scenario = walk_of(seed)
    total = count_calls(scenario)
    for _ in images(scenario, range(1 + seed, total + 2, 1 + total // 12)):
        pass

"""The tests of the cleaner prove themselves: each planted bug is found, within a bounded number of histories."""

import pytest
from soak.cleaning.walks import walk
from tests.cleaning.crash_images import BY_NAME, count_calls, images
from tests.cleaning.far_apart import OFFSETS, check_far_apart
from tests.cleaning.mutants import MUTANTS, Mutant

WALKS = 400
CRASHES = 120


def find(mutant: Mutant) -> None:
    """Look for the bug where it has to show. Raises AssertionError when it does."""
    if mutant.is_far_apart:
        check_far_apart(use_native=False)
    elif mutant.crashes:
        for name in mutant.crashes:
            total = count_calls(BY_NAME[name])
            for _ in images(BY_NAME[name], range(2, total + 2, 1 + total // CRASHES)):
                pass
    else:
        for seed in range(WALKS):
            walk(seed, use_native=False)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    with pytest.raises(AssertionError):
        find(mutant)


@pytest.mark.parametrize("use_native", [True, False], ids=["native", "python"])
def test_no_segment_gets_offsets_out_of_its_reach(use_native: bool) -> None:
    bases = check_far_apart(use_native=use_native)
    assert bases[0] == 0 and bases[-1] == OFFSETS[-1] + 2
    assert len(bases) < len(OFFSETS), "neighbours within reach become one segment"

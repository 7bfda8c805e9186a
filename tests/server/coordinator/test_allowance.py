"""How much of the broker's memory clients may have for names that they make up."""

from __future__ import annotations

import pytest

from barnabas.server.coordinator import allowance
from barnabas.server.coordinator.allowance import Allowance, Maker

ONE, OTHER, ELSEWHERE = Maker("h", "one"), Maker("h", "other"), Maker("i", "one")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "MOST_OF_A_CLIENT", 100)
    monkeypatch.setattr(allowance, "MOST_OF_A_HOST", 150)


@pytest.mark.parametrize(("length", "most"), [(10, 100), (499, 100), (500, 50), (32_767, 2)])
def test_a_long_name_counts_as_several(length: int, most: int) -> None:
    """Twenty thousand groups with names of 32 KB would be hundreds of megabytes."""
    names, made = Allowance(), 0
    while names.has_room(ONE):
        names.made(f"{made}".ljust(length), ONE)
        made += 1
    assert made == most
    names.gone("0".ljust(length))
    assert names.has_room(ONE)


def test_so_does_a_name_of_whose_client_has_a_long_one() -> None:
    """Each of its names keeps that of the client: two hundred thousand of 32 KB would be gigabytes."""
    names, made = Allowance(), 0
    while names.has_room(maker := Maker("h", f"{made}".ljust(32_767))):
        names.made(f"{made}", maker)
        made += 1
    assert made == 3
    names.gone("0")
    assert names.has_room(maker)


def test_who_shares_an_address_shares_what_it_may_have() -> None:
    names = Allowance()
    for number in range(100):
        names.made(f"{number}", ONE)
    assert (names.has_room(ONE), names.has_room(OTHER), names.has_room(ELSEWHERE)) == (False, True, True)
    for number in range(100, 150):
        names.made(f"{number}", OTHER)
    assert (names.has_room(OTHER), names.has_room(ELSEWHERE)) == (False, True)
    # Who makes it anew has it.
    names.made("0", ELSEWHERE)
    assert names.has_room(ONE) and names.has_room(OTHER)


def test_nothing_is_known_of_whose_names_are_all_gone() -> None:
    names, none = Allowance(), Allowance()
    for length in (1, 5000):
        names.made("x" * length, ONE)
        names.gone("x" * length)
    names.made("x", Maker("h", "y" * 5000))
    names.gone("x")
    names.gone("never made")
    assert vars(names) == vars(none)

"""How much of the broker's memory clients may have for names that they make up."""

from __future__ import annotations

import pytest

from barnabas.server.coordinator import creation_limiter
from barnabas.server.coordinator.creation_limiter import ClientIdentity, CreationLimiter

ONE, OTHER, ELSEWHERE = ClientIdentity("h", "one"), ClientIdentity("h", "other"), ClientIdentity("i", "one")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_limiter, "NAMES_PER_CLIENT", 100)
    monkeypatch.setattr(creation_limiter, "NAMES_PER_HOST", 150)


@pytest.mark.parametrize(("length", "most"), [(10, 100), (499, 100), (500, 50), (32_767, 2)])
def test_a_long_name_counts_as_several(length: int, most: int) -> None:
    """Twenty thousand groups with names of 32 KB would be hundreds of megabytes."""
    names, made = CreationLimiter(), 0
    while names.can_create(ONE):
        names.record_creation(f"{made}".ljust(length), ONE)
        made += 1
    assert made == most
    names.record_deletion("0".ljust(length))
    assert names.can_create(ONE)


def test_so_does_a_name_of_whose_client_has_a_long_one() -> None:
    """Each of its names keeps that of the client: two hundred thousand of 32 KB would be gigabytes."""
    names, made = CreationLimiter(), 0
    while names.can_create(client := ClientIdentity("h", f"{made}".ljust(32_767))):
        names.record_creation(f"{made}", client)
        made += 1
    assert made == 3
    names.record_deletion("0")
    assert names.can_create(client)


def test_who_shares_an_address_shares_what_it_may_have() -> None:
    names = CreationLimiter()
    for number in range(100):
        names.record_creation(f"{number}", ONE)
    assert (names.can_create(ONE), names.can_create(OTHER), names.can_create(ELSEWHERE)) == (False, True, True)
    for number in range(100, 150):
        names.record_creation(f"{number}", OTHER)
    assert (names.can_create(OTHER), names.can_create(ELSEWHERE)) == (False, True)
    # Who makes it anew has it.
    names.record_creation("0", ELSEWHERE)
    assert names.can_create(ONE) and names.can_create(OTHER)


def test_nothing_is_known_of_whose_names_are_all_gone() -> None:
    names, none = CreationLimiter(), CreationLimiter()
    for length in (1, 5000):
        names.record_creation("x" * length, ONE)
        names.record_deletion("x" * length)
    names.record_creation("x", ClientIdentity("h", "y" * 5000))
    names.record_deletion("x")
    names.record_deletion("never made")
    assert vars(names) == vars(none)

"""Whose quota counts for a client, and with whom its rate is shared."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from tests.cases import in_one_test

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.quotas.client_quota_manager import (
    ClientLimits,
    ClientQuotaManager,
    ConnectionRateQuotaManager,
    ControllerMutationQuotaManager,
)
from barnabas.server.quotas.entities import Entity, check_quota, entity_of, quota_text
from barnabas.server.quotas.rates import MAX_UNTHROTTLED_SENSORS, QuotaWindow

WINDOW = QuotaWindow(11, 1)
PRECEDENCE: list[tuple[Entity, tuple[str | None, str | None]]] = [
    ({"user": "anna", "client-id": "app"}, ("anna", "app")),
    ({"user": "anna", "client-id": None}, ("anna", "app")),
    ({"user": "anna"}, ("anna", None)),
    ({"user": None, "client-id": "app"}, ("anna", "app")),
    ({"user": None, "client-id": None}, ("anna", "app")),
    ({"user": None}, ("anna", None)),
    ({"client-id": "app"}, (None, "app")),
    ({"client-id": None}, (None, "app")),
]
OTHERS: list[Entity] = [{"user": "bert"}, {"user": "anna", "client-id": "other"}, {"client-id": "other"}]


@in_one_test("present", [set(pair) for pair in combinations(range(8), 2)])
def test_of_two_quotas_the_closer_one_counts(present: set[int]) -> None:
    limits = ClientLimits()
    for entity in OTHERS:
        limits.set(entity, 1.0)
    for rank in present:
        limits.set(PRECEDENCE[rank][0], 100.0 + rank)
    first, second = sorted(present)
    assert limits.find("anna", "app") == (100.0 + first, PRECEDENCE[first][1])
    limits.set(PRECEDENCE[first][0], None)
    assert limits.find("anna", "app") == (100.0 + second, PRECEDENCE[second][1])
    limits.set(PRECEDENCE[second][0], None)
    assert limits.find("anna", "app") is None


def test_limits_are_true_as_long_as_there_is_one() -> None:
    limits = ClientLimits()
    for entity in OTHERS:
        assert not limits
        limits.set(entity, 1.0)
        assert limits
        limits.set(entity, None)


def test_clients_of_one_user_share_its_quota_and_those_of_a_default_do_not() -> None:
    shared, apart = ClientQuotaManager(WINDOW), ClientQuotaManager(WINDOW)
    shared.limits.set({"user": "anna"}, 100.0)
    apart.limits.set({"client-id": None}, 100.0)
    for quota in (shared, apart):
        assert quota.record("anna", "one", 1000.0, 0.0) == 0.0
    assert shared.record("anna", "two", 500.0, 0.0) == pytest.approx(5.0)
    assert apart.record("anna", "two", 500.0, 0.0) == 0.0
    assert shared.max_value_in_quota_window("anna", "any") == 1000.0
    assert shared.max_value_in_quota_window("bert", "any") == math.inf


def test_a_changed_quota_counts_at_once_for_what_was_used_before() -> None:
    quota = ClientQuotaManager(WINDOW, max_wait=1.0)
    quota.limits.set({"user": None}, 1000.0)
    assert quota.record("anna", "app", 5000.0, 0.0) == 0.0
    quota.limits.set({"user": None}, 499.0)
    assert 0 < quota.record("anna", "app", 0.0, 0.0) <= 1.0
    quota.limits.set({"user": None}, 1.0)
    assert quota.record("anna", "app", 0.0, 0.0) == 1.0, "no wait is longer than the longest"


def test_changes_are_paid_from_a_bucket() -> None:
    quota = ControllerMutationQuotaManager(WINDOW)
    assert quota.record("anna", "app", 10**6, 0.0) == 0.0
    quota.limits.set({"client-id": "app"}, 2.0)
    assert quota.record("anna", "app", 24, 0.0) == pytest.approx(1.0)
    assert quota.debt("bert", "app", 0.5) == pytest.approx(0.5)
    assert quota.debt("bert", "other", 0.5) == 0.0


@pytest.mark.parametrize("kind", [ClientQuotaManager, ControllerMutationQuotaManager])
def test_no_number_of_other_names_gets_a_client_out_of_debt(
    kind: type[ClientQuotaManager | ControllerMutationQuotaManager],
) -> None:
    quota, alone = kind(WINDOW), kind(WINDOW)
    for each in (quota, alone):
        each.limits.set({"client-id": None}, 2.0)
        assert each.record("", "debtor", 60, 0.0) > 0
    for number in range(3 * MAX_UNTHROTTLED_SENSORS):
        assert quota.record("", f"name-{number}", 1, number / (3 * MAX_UNTHROTTLED_SENSORS)) == 0.0
    assert quota.record("", "debtor", 0, 1.0) == alone.record("", "debtor", 0, 1.0) > 0


def test_connections_over_the_rate_of_their_address_are_put_off_and_not_counted() -> None:
    quota = ConnectionRateQuotaManager(WINDOW)
    quota.limits.update({"10.0.0.1": 1.0, None: 2.0})
    waits = [quota.wait("10.0.0.1", 0.0) for _ in range(30)]
    assert [wait > 0 for wait in waits] == [False] * 10 + [True] * 20
    assert max(waits) <= WINDOW.seconds
    assert [quota.wait("10.0.0.2", 0.0) > 0 for _ in range(21)] == [False] * 20 + [True]
    assert quota.wait("10.0.0.1", 11.0) == 0.0
    quota.limits["10.0.0.3"] = 10.0
    waits = [quota.wait("10.0.0.3", 0.0) for _ in range(150)][100:]
    assert waits == [pytest.approx(0.1)] * 50, "who is put off makes nobody wait longer"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([("user", "a"), ("user", "b")], "Invalid client quota entity, duplicate entity entry user"),
        ([("ip", "10.0.0.1"), ("user", "a")], "Invalid quota entity combination, IP entity should not be combined"),
    ],
)
def test_what_is_no_entity(parts: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        entity_of(parts)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        ({"user": "a"}, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ({"ip": None}, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, "SCRAM-SHA-256", 1.0, "Invalid configuration key SCRAM-SHA-256"),
        ({"user": "a"}, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, "request_percentage", -1.0, "Quota request_percentage must be greater than 0"),
        ({"user": "a"}, "request_percentage", math.nan, "Quota request_percentage must be greater than 0"),
        ({"user": "a"}, "consumer_byte_rate", 1.5, "consumer_byte_rate cannot be a fractional value."),
        ({"user": "a"}, "consumer_byte_rate", 1e30, "Proposed value for consumer_byte_rate is too large for a LONG."),
        ({"ip": "1.2.3.4"}, "connection_creation_rate", 2.0**31, "is too large for an INT."),
    ],
)
def test_what_is_no_quota(entity: Entity, key: str, value: float, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        check_quota(entity, key, value)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("producer_byte_rate", 1024.0, "1024"),
        ("producer_byte_rate", 1024.0000001, "1024"),
        ("request_percentage", 12.5, "12.5"),
        ("controller_mutation_rate", 10.0, "10.0"),
    ],
)
def test_how_a_quota_is_stored(key: str, value: float, text: str) -> None:
    check_quota({"user": "a"}, key, value)
    assert quota_text({"user": "a"}, key, value) == text

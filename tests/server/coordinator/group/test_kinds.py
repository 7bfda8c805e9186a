"""Which kind a group is decides what happens to it, and whether whoever asks for a kind gets it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.coordinator.group.consumer.group import ConsumerGroup
from barnabas.server.coordinator.group.group import Group
from barnabas.server.coordinator.group.kinds import GroupKinds, as_consumer_group, classic_group, consumer_group

CLASSIC, CONSUMER = Group("c", 0), ConsumerGroup("k")


def test_a_group_has_what_its_kind_has() -> None:
    classic: Any = object()
    consumer: Any = object()
    kinds = GroupKinds(classic, consumer)
    assert kinds.of(CLASSIC) is classic and kinds.of(CONSUMER) is consumer
    assert list(kinds) == [classic, consumer]


def test_who_asks_for_a_kind_gets_it_or_hears_that_it_is_another() -> None:
    assert classic_group(CLASSIC) is CLASSIC and consumer_group(CONSUMER) is CONSUMER
    assert as_consumer_group(CONSUMER) is CONSUMER
    assert as_consumer_group(CLASSIC) is None and as_consumer_group(None) is None
    with pytest.raises(KafkaError, match="Group k is not a classic group") as refusal:
        classic_group(CONSUMER)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError, match="Group c is not a consumer group") as refusal:
        consumer_group(CLASSIC)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND

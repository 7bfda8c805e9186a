"""The first offset of a share group by its settings."""

from __future__ import annotations

import pytest

from barnabas.protocol.special_timestamps import EARLIEST, LATEST
from barnabas.server.config.keys.validators import OffsetReset
from barnabas.server.share.share_group_config_provider import reset_timestamp

NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("by_duration:PT1H", NOW_MS - HOUR_MS),
        ("by_duration:pt1h", NOW_MS - HOUR_MS),
        ("by_duration:+PT1H", NOW_MS - HOUR_MS),
        ("by_duration:PT+5M", NOW_MS - 300_000),
        ("by_duration:PT1,5S", NOW_MS - 1500),
        ("by_duration:PT1.S", NOW_MS - 1000),
        ("by_duration:P2DT-3H", NOW_MS - 45 * HOUR_MS),
        ("by_duration:PT0S", NOW_MS),
        ("by_duration:P99999D", 0),
    ],
)
def test_each_valid_offset_reset_has_its_timestamp(value: str, expected: int) -> None:
    OffsetReset().check("share.auto.offset.reset", value)
    assert reset_timestamp(value, NOW_MS) == expected

"""Topic settings as the log reads them: Kafka's keys, defaults, bounds, and what is derived from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.log_config import NEVER, LogConfig


def test_without_properties_the_defaults_hold() -> None:
    assert LogConfig.from_props({}) == LogConfig()
    assert LogConfig().flush_messages == NEVER
    assert (LogConfig().compact, LogConfig().delete, LogConfig().message_magic) == (False, True, 2)


def test_properties_lie_over_the_given_defaults() -> None:
    defaults = LogConfig(segment_ms=5, retention_ms=7)
    config = LogConfig.from_props({"segment.ms": " 6 ", "preallocate": "TRUE", "nobody.knows": "x"}, defaults)
    assert (config.segment_ms, config.retention_ms, config.preallocate) == (6, 7, True)
    assert defaults.segment_ms == 5


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [("delete", False, True), ("compact", True, False), (" compact , delete", True, True), ("", False, False)],
)
def test_the_cleanup_policy_is_a_list(policy: str, *, compact: bool, delete: bool) -> None:
    config = LogConfig.from_props({"cleanup.policy": policy})
    assert (config.compact, config.delete) == (compact, delete)


@pytest.mark.parametrize(
    ("version", "magic"), [("0.9.0", 0), ("0.10.0", 1), ("0.10.2-IV0", 1), ("0.11.0", 2), ("1.0", 2), ("3.0-IV1", 2)]
)
def test_a_message_format_is_a_magic(version: str, magic: int) -> None:
    config = LogConfig.from_props({"message.format.version": version})
    assert config.message_magic == magic
    assert replace(config, segment_ms=9).message_magic == magic
    assert LogConfig.from_props({"segment.ms": "9"}, config).message_magic == magic


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "shrink"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "10"),
        ("flush.messages", "0"),
        ("index.interval.bytes", "-1"),
        ("max.message.bytes", str(2**31)),
        ("message.format.version", "new"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.insync.replicas", "0"),
        ("preallocate", "yes"),
        ("retention.ms", "-2"),
        ("segment.bytes", "13"),
        ("segment.ms", "soon"),
    ],
)
def test_an_illegal_value_is_named(key: str, value: str) -> None:
    with pytest.raises(KafkaError, match=key) as caught:
        LogConfig.from_props({key: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_every_key_is_read() -> None:
    keys = LogConfig.keys()
    assert len(keys) == len(set(keys))
    for key in keys:
        default = getattr(LogConfig(), key.replace(".", "_"))
        if default is None:
            continue
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert LogConfig.from_props({key: text}) == LogConfig()

"""The cleaner's settings: Kafka's rules between them, and that a change holds at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.cleaning.test_log_cleaner import COMPACT, TOPIC, TP, churn, cleaner_of, fill, until

from barnabas import Broker
from barnabas.clients.admin import Admin, ConfigChange, ConfigResource, raise_first
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.server.cleaning.worker import Throttler
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.dynamic_config import check_cleaner_threads
from barnabas.server.config.keys.validators import ConfigError

ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")


async def alter(broker: Broker, **settings: str) -> None:
    changes = [ConfigChange(name.replace("_", "."), value) for name, value in settings.items()]
    async with Admin(broker.bootstrap) as admin:
        raise_first(await admin.alter_configs({ALL_BROKERS: changes}))


@pytest.mark.parametrize(
    ("now", "wanted", "reason"),
    [
        (1, "2", None),
        (4, "2", None),
        (4, "8", None),
        (4, "9", "more than double the current value 4"),
        (4, "1", "less than half the current value 4"),
        (2, "0", "at least 1"),
    ],
)
def test_threads_change_by_a_factor_of_two_at_most(now: int, wanted: str, reason: str | None) -> None:
    config = BrokerConfig({"log.cleaner.threads": str(now)})
    if reason is None:
        check_cleaner_threads(config, {"log.cleaner.threads": wanted})
    else:
        with pytest.raises(ConfigError, match=reason):
            check_cleaner_threads(config, {"log.cleaner.threads": wanted})


async def test_what_cannot_be_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        for settings in (
            {"log_cleaner_threads": "5"},
            {"log_cleaner_dedupe_buffer_size": "1000"},
            {"log_cleaner_hash_algorithm": "CRC"},
            {"log_cleaner_min_cleanable_ratio": "2"},
        ):
            with pytest.raises(KafkaError):
                await alter(broker, **settings)
        config = broker.server.config
        assert (config.log_cleaner_threads, config.log_cleaner_dedupe_buffer_size) == (1, 134_217_728)


async def test_a_shorter_backoff_wakes_the_cleaner(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config={"log.cleaner.backoff.ms": "3600000"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await fill(broker, churn())
        assert TP not in cleaner_of(broker).reports
        await alter(broker, log_cleaner_backoff_ms="50")
        await until(lambda: TP in cleaner_of(broker).reports, "a pass of the cleaner")


async def test_a_pass_takes_what_is_set_when_it_begins(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path, config={"log.cleaner.enable": "false"}) as broker:
        await broker.acreate_topic(TOPIC, 1, COMPACT)
        await alter(broker, log_cleaner_hash_algorithm="exact", log_cleaner_dedupe_buffer_size=str(1 << 20))
        await fill(broker, churn())
        await alter(broker, log_cleaner_threads="2", log_cleaner_dedupe_buffer_size=str(2 << 20))
        settings = cleaner_of(broker)._settings()
        assert (settings.hash_name, settings.dedupe_buffer_bytes) == ("exact", 1 << 20)
        reports = await broker.acompact(TOPIC)
        assert sum(report.stats.messages_written for report in reports[-1:]) == 20


def test_the_throttle_keeps_to_its_rate_on_average() -> None:
    now, slept = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        now += seconds
        slept += seconds

    yields: list[float] = []
    throttle = Throttler(lambda: now, sleep, lambda: yields.append(now))
    throttle(1 << 40)
    assert (slept, yields) == (0.0, [0.0]), "no limit, but others come first"
    throttle.pause = 0.25
    throttle(1)
    assert (now, slept, yields) == (0.25, 0.25, [0.0]), "others come first and get their time"
    now = slept = throttle.pause = 0.0
    throttle.bytes_per_second = 1000.0
    for _ in range(500):
        throttle(10)
    assert now == pytest.approx(5.0, abs=0.05)
    now += 100.0
    before = slept
    throttle(1000)
    assert slept - before == pytest.approx(1.0, abs=0.05), "rest is no credit"

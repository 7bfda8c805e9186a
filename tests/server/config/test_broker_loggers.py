"""Kafka's names of loggers are aliases of Barnabas's loggers."""

from __future__ import annotations

import logging

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.config.broker_loggers import check_level, logger_levels, set_level


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("kafka.controller.KafkaController", "barnabas.controller"),
        ("kafka.server.KafkaApis", "barnabas.apis"),
        ("kafka.server.SomethingElse", "barnabas.broker"),
        ("kafka.log.LogCleaner$CleanerThread", "barnabas.storage"),
        ("kafka.log.LogCleaner", "barnabas.cleaner"),
        ("kafka.log.UnifiedLog$", "barnabas.storage"),
        ("org.apache.kafka.coordinator.group.GroupMetadataManager", "barnabas.groups"),
        ("org.apache.kafka.storage.internals.log.LogCleaner", "barnabas.cleaner"),
        ("state.change.logger", "barnabas.controller"),
        ("kafka", "barnabas"),
        ("barnabas.apis", "barnabas.apis"),
    ],
)
def test_an_alias_sets_and_resets_the_level_of_its_logger(alias: str, name: str) -> None:
    logger, listed = logging.getLogger(name), set(logger_levels())
    before = logger.level
    try:
        check_level(alias, "ERROR")
        set_level(alias, "ERROR")
        assert logger.level == logging.ERROR
        assert logger_levels()[name] == "ERROR"
        check_level(alias, None)
        set_level(alias, None)
        assert logger.level == logging.NOTSET
        assert set(logger_levels()) - {name} == listed - {name}
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize("name", ["nonsense", "kafkaesque", "barnabas.nonsense", "org.apache", "a" * 1000 + "." * 1000])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_level(name, "INFO")
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_an_alias_does_not_permit_an_unknown_level() -> None:
    with pytest.raises(KafkaError, match="not a supported log level"):
        check_level("kafka.server.KafkaApis", "LOUD")

"""What these tests demand of every cleaning, Apache Kafka's own cleaner does: they ask for no more than that."""

import random
from pathlib import Path

import pytest
from tests.cleaning.history import History
from tests.cleaning.kafka_cleaner import KafkaCleaner
from tests.cleaning.passes import kafka_pass
from tests.cleaning.promises import Promises
from tests.cleaning.walk import random_settings, random_step
from tests.kafka import LAST_WITH_ZOOKEEPER, NEWEST

from barnabas.storage.filesystem import OsFileSystem

pytestmark = [pytest.mark.java, pytest.mark.timeout(120)]

HISTORIES = 60
# Kafka's cleaner throws where a cleaned segment has more index entries than its file may have.
INDEX_SIZES = (400, 4000)


@pytest.mark.parametrize("version", [NEWEST, LAST_WITH_ZOOKEEPER])
def test_kafka_keeps_every_promise(version: str, fast_folder: Path) -> None:
    passes = 0
    with KafkaCleaner(version) as kafka:
        cleaning = kafka_pass(kafka)
        for seed in range(HISTORIES):
            rng = random.Random(seed)
            # Kafka 4 makes v2 of the old formats when it cleans them.
            settings = random_settings(rng, 2 if version == NEWEST else None, INDEX_SIZES)
            history = History(OsFileSystem(), str(fast_folder / f"history-{seed}"), settings)
            promises = Promises(history)
            for _ in range(rng.randint(10, 70)):
                if rng.random() < 0.08 and (done := cleaning(history, rng.choice((8, 40, 2000)))):
                    promises.check_pass(done)
                    passes += 1
                random_step(history, rng)
            promises.check()
            history.log.close_handles()
    assert passes > HISTORIES

"""The few keys that are ours alone."""

from __future__ import annotations

from ....storage.cleaning.clean_job import HASHES
from .builders import CLUSTER_WIDE, HIGH, MEDIUM, boolean, integer, password, string
from .definition import ConfigKey
from .validators import OneOf, Range

OWN_KEYS: tuple[ConfigKey, ...] = (
    string("acks.all.durability", "disk", HIGH, OneOf("disk", "page-cache")),
    boolean("allow.insecure.listeners", False, HIGH),
    boolean("coordinator.allow.remote", False, HIGH),
    string("coordinator.listeners", None, HIGH),
    integer("health.port", None, MEDIUM, Range(0, 65535)),
    string("log.cleaner.hash.algorithm", "MD5", MEDIUM, OneOf(*HASHES, "exact"), mode=CLUSTER_WIDE),
    string("log.cleaner.worker", "process", MEDIUM, OneOf("process", "thread")),
    string("metrics.listeners", None, MEDIUM),
    string("metrics.otlp.endpoint", None, MEDIUM),
    integer("metrics.otlp.interval.ms", 60_000, MEDIUM, Range(1000)),
    string("metadata.store.path", None, MEDIUM),
    password("zookeeper.digest.auth", None, MEDIUM),
)

"""Kafka's AutoTopicCreationManager for the internal topics of streams groups, which are created in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ..quotas.request_quota_usage import ControllerMutationQuota
from .admin_manager import MAX_PARTITIONS_PER_REQUEST, TopicCreation, check_partition_count

logger = room_logger("controller")

MAX_ERRORS = 1000
"""The limit on the remembered errors of creations; the oldest error is dropped first."""


class CreateTopics(Protocol):
    """Creates topics, and returns the error of each; None for each success. Raises KafkaError."""

    async def __call__(
        self, creations: Sequence[TopicCreation], *, mutation_quota: ControllerMutationQuota
    ) -> Mapping[str, KafkaError | None]: ...


class AutoTopicCreationManager:
    """The creations of internal topics in progress, and the errors of creations that failed.

    Owned by `KafkaController` and used on the loop's thread only.
    """

    def __init__(self, create_topics: CreateTopics) -> None:
        self._create_topics = create_topics
        self._in_flight: set[str] = set()
        self._errors: dict[str, tuple[float, str]] = {}
        """The deadline and the message of each error, the oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Cancel the creations in progress."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_tried(self, name: str) -> bool:
        """Return whether a topic is being created, or its last creation failed with a remembered error."""
        return name in self._in_flight or self._error(name) is not None

    def create_streams_internal_topics(
        self, creations: Iterable[TopicCreation], error_ms: int, mutation_quota: ControllerMutationQuota
    ) -> None:
        """Begin to create topics, without topics that are being created and topics with a remembered error.

        A call creates as many partitions as one CreateTopics request may create; a later heartbeat creates the other
        topics. Each topic has a number of partitions. An error is remembered for `error_ms`: another attempt follows
        when members send heartbeats after that time.
        """
        wanted: list[TopicCreation] = []
        room = MAX_PARTITIONS_PER_REQUEST
        for creation in creations:
            if self.is_tried(creation.name):
                continue
            try:
                check_partition_count(creation.num_partitions)
            except KafkaError as error:
                self._on_failure(creation.name, error, error_ms)
                continue
            if creation.num_partitions <= room:
                wanted.append(creation)
                room -= creation.num_partitions
        if wanted:
            self._in_flight.update(creation.name for creation in wanted)
            task = asyncio.get_running_loop().create_task(self._create(wanted, error_ms, mutation_quota))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def streams_internal_topic_errors(self, names: Iterable[str]) -> dict[str, str]:
        """Return the remembered error messages of these topics, by name."""
        found = ((name, self._error(name)) for name in names)
        return {name: message for name, message in found if message is not None}

    def _error(self, name: str) -> str | None:
        error = self._errors.get(name)
        if error is None:
            return None
        if asyncio.get_running_loop().time() >= error[0]:
            del self._errors[name]
            return None
        return error[1]

    async def _create(
        self, creations: list[TopicCreation], error_ms: int, mutation_quota: ControllerMutationQuota
    ) -> None:
        names = [creation.name for creation in creations]
        try:
            results = await self._create_topics(creations, mutation_quota=mutation_quota)
        except KafkaError as error:
            results = dict.fromkeys(names, error)
        finally:
            self._in_flight.difference_update(names)
        for name in names:
            failure = results.get(name)
            if failure is not None and failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                self._on_failure(name, failure, error_ms)

    def _on_failure(self, name: str, failure: KafkaError, error_ms: int) -> None:
        logger.warning("internal topic %s could not be created: %s", name, failure.message)
        self._errors.pop(name, None)
        self._errors[name] = (asyncio.get_running_loop().time() + error_ms / 1000, failure.message)
        while len(self._errors) > MAX_ERRORS:
            del self._errors[next(iter(self._errors))]

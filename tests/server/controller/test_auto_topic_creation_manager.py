"""The creation of internal topics: within the limit of one request, with remembered errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.controller.admin_manager import MAX_PARTITIONS_PER_REQUEST, TopicCreation
from barnabas.server.controller.auto_topic_creation_manager import AutoTopicCreationManager
from barnabas.server.quotas.request_quota_usage import ControllerMutationQuota, unbounded_controller_mutation_quota

ERROR_MS = 10_000


class Controller:
    """A controller that charges the quota and creates all topics."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def create_topics(
        self, creations: Sequence[TopicCreation], *, mutation_quota: ControllerMutationQuota
    ) -> dict[str, KafkaError | None]:
        self.calls.append([creation.name for creation in creations])
        for creation in creations:
            mutation_quota(creation.num_partitions)
        return dict.fromkeys(self.calls[-1])


def test_a_call_creates_as_many_partitions_as_a_request_may_create() -> None:
    async def main() -> None:
        controller, charged = Controller(), list[int]()
        manager = AutoTopicCreationManager(controller.create_topics)
        sizes = {"a": 6000, "b": 6000, "c": 4000, "d": 1}
        for _ in range(2):
            created = {name for call in controller.calls for name in call}
            missing = [TopicCreation(name, size) for name, size in sizes.items() if name not in created]
            manager.create_streams_internal_topics(missing, ERROR_MS, charged.append)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert controller.calls == [["a", "c"], ["b", "d"]]
        assert charged == [6000, 4000, 6000, 1]

    asyncio.run(main())


def test_a_topic_beyond_the_limit_of_a_request_has_failed() -> None:
    async def main() -> None:
        controller = Controller()
        manager = AutoTopicCreationManager(controller.create_topics)
        creations = [TopicCreation("large", MAX_PARTITIONS_PER_REQUEST + 1), TopicCreation("small", 1)]
        manager.create_streams_internal_topics(creations, ERROR_MS, unbounded_controller_mutation_quota)
        await asyncio.sleep(0)
        assert controller.calls == [["small"]]
        assert manager.streams_internal_topic_errors(["large", "small"]) == {
            "large": f"Excessively large number of partitions per request: {MAX_PARTITIONS_PER_REQUEST + 1}."
        }

    asyncio.run(main())


def test_the_error_of_a_client_over_its_quota_is_remembered() -> None:
    async def main() -> None:
        def exceeded(_: int) -> None:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "over the quota")

        controller = Controller()
        manager = AutoTopicCreationManager(controller.create_topics)
        for _ in range(2):
            manager.create_streams_internal_topics([TopicCreation("log", 1)], ERROR_MS, exceeded)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert controller.calls == [["log"]]
        assert manager.streams_internal_topic_errors(["log"]) == {"log": "over the quota"}

    asyncio.run(main())

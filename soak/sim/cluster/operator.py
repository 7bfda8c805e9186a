"""The operator of a cluster: creates, extends and deletes topics, and moves partitions, with any controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.protocol.errors import KafkaError
from barnabas.server.controller.kafka_controller import KafkaController
from barnabas.server.metadata.metadata_store import StoreError
from barnabas.simulation.cluster import ClusterWorld

ANSWER_SECONDS = 5.0
T = TypeVar("T")


class Operator:
    """An operator that sends each request once. A request without a response may have been executed."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    async def ask(self, wish: Callable[[KafkaController], Awaitable[T]]) -> T | None:
        """Return the response of the controller; None without a controller, after its death, or after an error."""
        for broker in self._world.running:
            assert broker.server is not None
            controller = broker.server.state.controller
            if controller.is_active:
                task = self._world.spawn(broker.node, self._answer(wish, controller))
                done, _ = await asyncio.wait([task], timeout=ANSWER_SECONDS)
                # A kill of the machine cancels the task, or the change that the task awaits.
                return task.result() if done and not task.cancelled() else None
        return None

    @staticmethod
    async def _answer(wish: Callable[[KafkaController], Awaitable[T]], controller: KafkaController) -> T | None:
        try:
            return await wish(controller)
        except (KafkaError, StoreError):
            return None

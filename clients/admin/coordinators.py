"""Requests about groups or transactional ids, each of which only its own coordinator answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from ...protocol.errors import KafkaError
from ..client import Client
from ..connection import BrokerConnection
from ..group.find_coordinators import GROUP, find_coordinators
from ..name_list import name_list

R = TypeVar("R")
Ask = Callable[[BrokerConnection, list[str]], Awaitable[Mapping[str, R | KafkaError]]]
"""A function that sends a request about some groups to their coordinator."""


class Coordinators:
    """The coordinators of groups or transactional ids, with another search after a coordinator has moved."""

    def __init__(self, client: Client, *, timeout_ms: int, key_type: int = GROUP) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._key_type = key_type

    async def ask_one(self, group_id: str, ask: Ask[R]) -> R:
        """Send a request to the coordinator of one group. Raises KafkaError."""
        answer = (await self.ask([group_id], ask))[group_id]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def ask(
        self, group_ids: Iterable[str], ask: Ask[R], *, timeout_ms: int | None = None
    ) -> dict[str, R | KafkaError]:
        """Send requests to all coordinators together, and again for groups whose coordinator has moved.

        After `timeout_ms`, the groups without a response have an error. Raises TypeError for a single name in place of
        a list.
        """
        wanted = list(dict.fromkeys(name_list(group_ids, "group_ids")))
        done: dict[str, R | KafkaError] = {}

        async def ask_node(node_id: int, ids: list[str]) -> None:
            try:
                done.update(await ask(await self._client.connection(node_id), ids))
            except KafkaError as error:
                done.update(dict.fromkeys(ids, error))

        async def attempt() -> None:
            missing = [g for g in wanted if g not in done or _is_passing(done[g])]
            by_node: dict[int, list[str]] = {}
            for group_id, node in (
                (await find_coordinators(self._client, missing, self._key_type)).items() if missing else ()
            ):
                if isinstance(node, KafkaError):
                    done[group_id] = node
                else:
                    self._client.cluster.add_brokers([node])
                    by_node.setdefault(node.node_id, []).append(group_id)
            # Each response is kept when it arrives: another coordinator may not respond before the timeout.
            await asyncio.gather(*(ask_node(node_id, ids) for node_id, ids in by_node.items()))
            for group_id in missing:
                answer = done[group_id]
                if isinstance(answer, KafkaError) and _is_passing(answer):
                    raise answer

        try:
            await self._client.retrying(attempt, timeout_ms=self._timeout_ms if timeout_ms is None else timeout_ms)
        except KafkaError as error:
            for group_id in wanted:
                done.setdefault(group_id, error)
        return {group_id: done[group_id] for group_id in wanted}


def _is_passing(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code.retriable

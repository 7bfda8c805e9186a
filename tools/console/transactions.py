"""Transactions: the transactional ids of the cluster, their open transactions, hanging transactions, aborts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...clients.admin import raise_first
from ...clients.host import now_ms
from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartition
from .cluster import CachedResult, WatchedCluster
from .row_limit import RowLimit

Facts = dict[str, Any]
ONGOING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""States of a transactional id with a transaction that has not ended."""
MAX_DESCRIBED = 1000
"""Open transactions that one response describes; a cluster has few of them at any time."""
MAX_PARTITIONS = 20
"""Partitions of a transaction in the list."""
MAX_SEARCHED_PARTITIONS = 20_000
MINUTE_MS = 60_000


class TransactionPages:
    """Responses as JSON. All methods raise KafkaError; methods with a body raise ValueError, too."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._all = CachedResult(self._read)

    async def listing(self, parameters: Mapping[str, str]) -> Facts:
        """Return transactional ids with the age in ms and the partitions of open transactions. Raises ValueError, too.

        The parameter `open` omits ids without an open transaction.
        """
        limit, rows = RowLimit.parse(parameters), await self._all.get()
        opened = [row for row in rows if row["state"] in ONGOING]
        found = limit.matching(opened if parameters.get("open") else rows, lambda row: str(row["id"]))
        return {"transactions": found[: limit.rows], "total": len(found), "open": len(opened)}

    async def _read(self) -> list[Facts]:
        admin = self._cluster.admin
        listed = await admin.list_transactions()
        opened = [one.transactional_id for one in listed if one.state in ONGOING]
        described = await admin.describe_transactions(opened[:MAX_DESCRIBED]) if opened else {}
        now, rows = now_ms(), list[Facts]()
        for one in listed:
            row: Facts = {
                "id": one.transactional_id,
                "state": one.state,
                "producer_id": one.producer_id,
                "coordinator": one.coordinator_id,
                "age": None,
                "timeout": None,
                "partitions": [],
                "partition_count": 0,
            }
            found = described.get(one.transactional_id)
            if found is not None and not isinstance(found, KafkaError):
                row |= {
                    "state": found.state,
                    "age": max(0, now - found.start_ms) if found.start_ms >= 0 else None,
                    "timeout": found.timeout_ms,
                    "partitions": [(tp.topic, tp.partition) for tp in found.partitions[:MAX_PARTITIONS]],
                    "partition_count": len(found.partitions),
                }
            rows.append(row)
        return rows

    async def hanging(self, minutes: int) -> Facts:
        """Return transactions that are open on a partition without a coordinator that will end them."""
        topics = await self._cluster.topics.get()
        led = [TopicPartition(topic.name, index) for topic in topics for index in topic.available]
        if len(led) > MAX_SEARCHED_PARTITIONS:
            raise ValueError(
                f"{len(led)} partitions: the console searches up to {MAX_SEARCHED_PARTITIONS}. "
                "Use barnabas transactions find-hanging TOPIC"
            )
        now = now_ms()
        found = await self._cluster.admin.find_hanging(led, older_than_ms=minutes * MINUTE_MS, now_ms=now)
        return {
            "transactions": [
                {
                    "topic": one.partition.topic,
                    "partition": one.partition.partition,
                    "producer_id": one.producer_id,
                    "start_offset": one.start_offset,
                    "age": max(0, now - one.last_timestamp_ms),
                }
                for one in found
            ]
        }

    async def abort(self, body: Mapping[str, Any]) -> Facts:
        """Abort the open transaction of a transactional id by fencing its producer."""
        name = body.get("id")
        if not isinstance(name, str) or not name:
            raise ValueError("id: expected a transactional id")
        # A request for an unknown id would create it.
        found = (await self._cluster.admin.describe_transactions([name]))[name]
        if isinstance(found, KafkaError):
            raise found
        if found.state not in ONGOING:
            raise ValueError(f"{name} has no open transaction")
        raise_first(await self._cluster.admin.fence_producers([name]))
        self._all.forget()
        return {"done": True}

    async def abort_hanging(self, body: Mapping[str, Any]) -> Facts:
        """Abort a hanging transaction on one partition, identified by its start offset."""
        try:
            place = TopicPartition(str(body["topic"]), int(body["partition"]))
            start_offset = int(body["start_offset"])
        except (KeyError, TypeError, ValueError):
            raise ValueError("expected topic, partition and start_offset") from None
        admin = self._cluster.admin
        # A coordinator may have taken up or ended the transaction since the list was read.
        for one in await admin.find_hanging([place], older_than_ms=0, now_ms=now_ms()):
            if one.start_offset == start_offset:
                await admin.abort_transaction(one)
                return {"done": True}
        raise ValueError(f"{place} has no hanging transaction that starts at offset {start_offset}")

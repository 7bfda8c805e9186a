"""The lag of a streaming query in Kafka: commits the offsets of its progress to a consumer group."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ..arrow.client import BlockingClient, ClientSettings
from ..arrow.group_offsets import commit_offsets
from ..common.room_logger import room_logger
from ..protocol.errors import KafkaError
from .offsets import StreamOffsets
from .options import CLIENT_ID

logger = room_logger("spark")


class LagListener(StreamingQueryListener):
    """`spark.streams.addListener(LagListener("broker:9092", "my-query", query_name="flights"))`.

    Commits the end of every finished batch immediately, including the last one of an AvailableNow run, which option
    `commitGroupId` leaves to the next run. `query_name` None listens to all queries of the session.
    """

    def __init__(self, bootstrap_servers: str, group_id: str, *, query_name: str | None = None, **kafka: str) -> None:
        properties = {name.replace("_", "."): v for name, v in kafka.items()}
        self._settings = ClientSettings(bootstrap_servers, properties, CLIENT_ID)
        self._group_id = group_id
        self._query_name = query_name

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Ignore the start."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Ignore idle queries."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Ignore the end, which follows the last progress."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  # Spark's name
        progress = event.progress
        if self._query_name is not None and progress.name != self._query_name:
            return
        for source in progress.sources:
            try:
                offsets = StreamOffsets.of_json(json.loads(source.endOffset)).offsets
            except (ValueError, TypeError, AttributeError):
                continue  # not this source
            try:
                with BlockingClient(self._settings) as client:
                    commit_offsets(client, self._group_id, offsets)
            except KafkaError as error:
                logger.warning("cannot commit the lag of group %s: %s", self._group_id, error)

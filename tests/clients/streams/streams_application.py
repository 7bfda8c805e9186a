"""An application of the streams protocol without Kafka Streams: members that join a group and get its tasks.

with StreamsApplication(bootstrap, "words", "lines"):
    ...  # the group is stable and has all tasks
"""

from __future__ import annotations

import asyncio
import threading
from typing import cast

from soak.groups.members import Cluster
from soak.groups.streams_members import StreamsMember

from barnabas.clients import Admin
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.streams_group_heartbeat import Endpoint, Subtopology, TopicInfo, Topology

PARTITIONS = 2
HEARTBEAT_S = 0.05
START_S = 60


class SingleBroker:
    """The cluster of one broker that the members connect to."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._host, self._port = host, int(port)

    async def connect(self, client_id: str) -> BrokerConnection:
        return await BrokerConnection.open(self._host, self._port, ConnectionOptions(client_id, 30_000))


def word_count(group_id: str, source: str) -> Topology:
    """Return the topology of a word count: a repartition topic connects two subtopologies, the second has a store."""
    repartition = f"{group_id}-words-repartition"
    first = Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=[repartition])
    second = Subtopology(
        subtopology_id="1",
        repartition_source_topics=[TopicInfo(name=repartition)],
        state_changelog_topics=[TopicInfo(name=f"{group_id}-counts-changelog")],
    )
    return Topology(epoch=0, subtopologies=[first, second])


class StreamsApplication:
    """Members of a streams group on a thread; all members leave at the end of the block."""

    def __init__(self, bootstrap: str, group_id: str, source: str, *, members: int = 2) -> None:
        self._bootstrap = bootstrap
        self._cluster = cast(Cluster, SingleBroker(bootstrap))
        self._group_id, self._source, self._count = group_id, source, members
        self._ready, self._stop = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> StreamsApplication:
        self._thread.start()
        ready = self._ready.wait(START_S)
        if self._error is not None or not ready:
            self.__exit__()
            raise AssertionError("the streams group did not become stable") from self._error
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._error = error
            self._ready.set()

    async def _run(self) -> None:
        async with Admin(self._bootstrap) as admin:
            await admin.describe_groups([self._group_id])  # the first look-up of a coordinator creates its topic
        members = [
            await StreamsMember(
                self._cluster,
                f"{self._group_id}-thread-{number}",
                process=f"process-{number}",
                with_topology=word_count(self._group_id, self._source),
                endpoint=Endpoint(host="app", port=9000 + number),
                group_id=self._group_id,
            ).connect()
            for number in range(self._count)
        ]
        all_tasks = {(subtopology, partition) for subtopology in "01" for partition in range(PARTITIONS)}
        while not self._stop.is_set():
            for member in members:
                code = await member.turn()
                if code is not ErrorCode.NONE and not code.retriable:
                    raise KafkaError(code, f"heartbeat of {member.member_id}")
            if set().union(*(member.active for member in members)) == all_tasks and all(
                member.active for member in members
            ):
                self._ready.set()
            await asyncio.sleep(HEARTBEAT_S)
        for member in members:
            assert await member.leave() is ErrorCode.NONE
            member.vanish()

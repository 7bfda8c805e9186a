"""`cleanup.policy` without an entry keeps all records (KIP-1161)."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.data_plane import DataPlane, batch, play

from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.simulation.machines import START_MS

SETTINGS = {"acks.all.durability": "page-cache", "log.retention.check.interval.ms": "1000"}


def deletion(topic: str, offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)


@pytest.mark.parametrize("of_all_topics", [False, True])
def test_retention_deletes_nothing_and_delete_records_does(of_all_topics: bool) -> None:
    async def talk(plane: DataPlane) -> None:
        topic = {"retention_ms": "1", "segment_bytes": "200", "file_delete_delay_ms": "0"}
        await plane.create_topic("deleted", 1, cleanup_policy="delete", **topic)
        await plane.create_topic("kept", 1, **topic if of_all_topics else topic | {"cleanup_policy": ""})
        for _ in range(5):
            for name in ("deleted", "kept"):
                await plane.append(batch(b"v" * 60, timestamp=START_MS), topic=name)
        await plane.until(lambda: plane.partition("deleted").log.log_start_offset >= 4)
        await asyncio.sleep(5)
        assert plane.partition("kept").log.log_start_offset == 0
        connection = await plane.connect()
        resource = DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name="kept", configuration_keys=["cleanup.policy"]
        )
        (described,) = (await connection.send(DescribeConfigsRequest(resources=[resource]))).results
        assert [(one.name, one.value, one.config_type) for one in described.configs] == [("cleanup.policy", "", 7)]
        (answered,) = (await connection.send(deletion("kept", 3))).topics
        assert [(one.error_code, one.low_watermark) for one in answered.partitions] == [(ErrorCode.NONE, 3)]
        await plane.until(lambda: plane.partition("kept").log.segments[0].base_offset == 3)
        connection.close()

    play(talk, settings=SETTINGS | ({"log.cleanup.policy": ""} if of_all_topics else {}))

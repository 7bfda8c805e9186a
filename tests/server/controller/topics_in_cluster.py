"""What tests of several controllers ask for: a topic, what a broker believes of it, other in-sync replicas."""

from __future__ import annotations

from tests.server.cluster_plane import ClusterPlane, Member

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.controller.admin_manager import CreatedTopic, TopicCreation
from barnabas.server.metadata.znodes import LeaderIsrAndControllerEpoch
from barnabas.server.replication.leader_and_isr import IsrChange

T0 = TopicPartition("t", 0)


async def create(plane: ClusterPlane, *replicas: tuple[int, ...], name: str = "t", **config: str) -> CreatedTopic:
    wish = TopicCreation(name, assignments=list(enumerate(replicas)), config=config)
    result = (await plane.controller.create_topics([wish]))[name]
    assert isinstance(result, CreatedTopic), result
    first = TopicPartition(name, 0)
    await plane.until(lambda: all(one.metadata.partition(first) is not None for one in plane.members.values()))
    return result


def leader_of(member: Member, partition: TopicPartition = T0) -> int:
    image = member.metadata.partition(partition)
    return -9 if image is None else image.leader


async def everybody_believes(plane: ClusterPlane, leader: int, partition: TopicPartition = T0) -> None:
    await plane.until(lambda: all(leader_of(one, partition) == leader for one in plane.members.values()))


async def propose(plane: ClusterPlane, leader: int, isr: tuple[int, ...]) -> LeaderIsrAndControllerEpoch | ErrorCode:
    """The leader of T0 asks for other in-sync replicas."""
    state = await plane.members[leader].state(T0)
    epoch = plane.members[leader].request_handler.broker_epoch
    proposal = IsrChange(T0, state.leader_epoch, state.partition_epoch, isr)
    return (await plane.controller.alter_partitions(leader, epoch, [proposal]))[T0]

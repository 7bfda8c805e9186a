"""What `message` makes of a class, and that nothing is imported or compiled before it is needed."""

import copy
import pickle
import subprocess
import sys
from uuid import UUID

import pytest

from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from barnabas.protocol.messages.metadata import MetadataRequestTopic
from barnabas.protocol.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceRequest
from barnabas.protocol.schema import ZERO_UUID, Versions, fields_of, parse_versions, versions_of


def test_defaults() -> None:
    request = FetchRequest()
    assert request.replica_id == -1
    assert request.max_bytes == 0x7FFFFFFF
    assert request.cluster_id is None
    assert request.topics == []
    assert request.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    assert MetadataRequestTopic().topic_id == ZERO_UUID == UUID(int=0)


def test_defaults_are_not_shared() -> None:
    first, second = PartitionData(), PartitionData()
    first.current_leader.leader_id = 3
    first.aborted_transactions.append("x")  # type: ignore[union-attr, arg-type]
    assert second == PartitionData()
    assert first != second


def test_keywords_only_and_only_known_ones() -> None:
    with pytest.raises(TypeError):
        ProduceRequest(1)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError):
        ProduceRequest(ack=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        ProduceRequest().ack = 1  # type: ignore[attr-defined]


def test_printing_and_comparing() -> None:
    assert repr(LeaderIdAndEpoch(leader_id=1)) == "LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)"
    assert LeaderIdAndEpoch(leader_id=1) == LeaderIdAndEpoch(leader_id=1)
    assert LeaderIdAndEpoch(leader_id=1) != LeaderIdAndEpoch(leader_id=2)
    assert LeaderIdAndEpoch() != ReplicaState()
    with pytest.raises(TypeError):
        hash(LeaderIdAndEpoch())


def test_copies() -> None:
    answer = PartitionProduceResponse(index=1, current_leader=LeaderIdAndEpoch(leader_id=5))
    shallow, deep = copy.copy(answer), copy.deepcopy(answer)
    answer.current_leader.leader_id = 6
    assert shallow.current_leader.leader_id == 6
    assert deep.current_leader.leader_id == 5
    assert pickle.loads(pickle.dumps(answer)) == answer


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 99], [2, -1]), ("0-12", [0, 12], [13]), ("4", [4], [3, 5]), ("", [], [0, 1])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = parse_versions(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_catalogue() -> None:
    for key, spec in API_MESSAGES.items():
        assert spec.request.__name__.lower() == key.name.replace("_", "").lower() + "request"
        assert spec.response.__name__.removesuffix("Response") == spec.request.__name__.removesuffix("Request")
        assert spec.versions == versions_of(spec.response)
    produce = API_MESSAGES[ApiKey.PRODUCE]
    assert produce.versions == Versions(0, 13)
    assert produce.flexible_from == 9
    assert produce.is_flexible(9)
    assert not produce.is_flexible(8)
    assert API_MESSAGES[ApiKey.SASL_HANDSHAKE].flexible_from is None


def test_tags_of_a_struct_differ() -> None:
    for cls in (FetchRequest, FetchResponse, PartitionData):
        tags = [field.tag for field in fields_of(cls) if field.tag is not None]
        assert sorted(set(tags)) == list(range(len(tags)))


def test_nothing_is_imported_before_it_is_needed() -> None:
    script = "import sys, barnabas.protocol.codec, barnabas.protocol.headers; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = result.stdout.split()
    messages = {name for name in loaded if name.startswith("barnabas.protocol.messages.")}
    # The one that has a decoder written by hand.
    assert messages == {"barnabas.protocol.messages.fetch"}
    assert not {"construct", "dataclasses", "asyncio", "inspect"} & set(loaded)

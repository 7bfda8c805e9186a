"""Every served version of every API has an answer for a request that failed, and it names what was asked for."""

from __future__ import annotations

import random
from typing import Any

from tests.cases import in_one_test
from tests.protocol.random_messages import random_message

from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.schema import fields_of
from barnabas.server.apis.error_responses import ERROR_CODE_FIELDS, ITEM_PATHS, error_response, items_at_path
from barnabas.server.apis.table import SERVED

FAILURE = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "it broke")
NOTHING_SAYS_IT = {(ApiKey.DESCRIBE_LOG_DIRS, 0), (ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""Versions whose answer is about directories and has no error of its own: that there are none says it."""


def served() -> list[tuple[ApiKey, int]]:
    return [(key, version) for key, api in SERVED.items() for version in range(api.lowest, api.highest + 1)]


@in_one_test(("key", "version"), served())
def test_a_failed_request_is_answered(key: ApiKey, version: int) -> None:
    rng = random.Random(f"{key}{version}")
    for _ in range(20):
        request = random_message(API_MESSAGES[key].request, version, rng)
        if key is ApiKey.PRODUCE:
            request.acks = 1
        answer = error_response(key, version, request, FAILURE)
        if (key, version) in NOTHING_SAYS_IT:
            assert answer is not None and not answer.results
            continue
        data = b"".join(bytes(part) for part in encode_response(answer, version))
        read: Any = decode_response(key, version, memoryview(data), 0, len(data))
        top = {field.name for field in fields_of(type(read)) if version in field.versions}
        if "error_code" in top:
            assert read.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            continue
        asked = sum(len(items_at_path(request, row.request)) for row in ITEM_PATHS[key])
        if key is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            asked = len({one.name for one in [*request.deletions, *request.upsertions]})
        answered = [item for path in {row.response for row in ITEM_PATHS[key]} for item in items_at_path(read, path)]
        assert len(answered) == asked
        codes = {getattr(item, next(name for name in ERROR_CODE_FIELDS if hasattr(item, name))) for item in answered}
        assert codes <= {ErrorCode.UNKNOWN_SERVER_ERROR}


def test_an_answer_names_what_it_is_about() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=4)])])
    answer = error_response(ApiKey.FETCH, 4, request, FAILURE)
    assert answer is not None
    assert answer.responses[0].topic == "t"
    (partition,) = answer.responses[0].partitions
    assert (partition.partition_index, partition.error_code, partition.high_watermark) == (4, -1, -1)


def test_an_error_is_told_as_kafka_tells_it() -> None:
    """Found by holding every answer against Kafka's own."""
    joined: Any = error_response(ApiKey.JOIN_GROUP, 7, JoinGroupRequest(group_id="g"), FAILURE)
    assert joined.protocol_name is None
    joined = error_response(ApiKey.JOIN_GROUP, 6, JoinGroupRequest(group_id="g"), FAILURE)
    assert joined.protocol_name == ""
    made: Any = error_response(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id="x"), FAILURE)
    assert (made.producer_id, made.producer_epoch) == (-1, -1)
    asked = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[3])])
    elected: Any = error_response(ApiKey.ELECT_LEADERS, 1, asked, FAILURE)
    assert elected.error_code == FAILURE.code
    assert elected.replica_election_results[0].partition_result[0].error_code == FAILURE.code
    twice = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="u")], upsertions=[ScramCredentialUpsertion(name="u")]
    )
    altered: Any = error_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, twice, FAILURE)
    assert [one.user for one in altered.results] == ["u"]

"""Envelopes: the request of a client with its principal, and the controller's response to it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_request, decode_versioned, encode_response
from barnabas.protocol.default_principal_data import DefaultPrincipalData
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.headers import decode_request_header, encode_response_header
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.server.config.listeners import ListenerConfig
from barnabas.server.controller.forwarding_manager import ForwardingManager
from barnabas.server.security.session import KafkaPrincipal, Session

VERSION = 7


class Controller:
    """A controller that keeps the Envelopes."""

    def __init__(self, response: EnvelopeResponse) -> None:
        self.response = response
        self.envelopes: list[EnvelopeRequest] = []

    async def send_request(self, request: Any, *, lowest: int = 0, highest: int = 99) -> Any:
        self.envelopes.append(request)
        return self.response


def session() -> Session:
    listener = ListenerConfig("PLAINTEXT", "127.0.0.1", 9092)
    return Session("10.1.2.3", listener, KafkaPrincipal("User", "anna"), is_by_token=True)


async def test_the_controller_receives_the_request_its_header_and_the_principal_and_responds_to_the_client() -> None:
    topics = [CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    inner = b"".join(encode_response(CreateTopicsResponse(topics=topics), VERSION))
    data = encode_response_header(ApiKey.CREATE_TOPICS, VERSION, 0) + inner
    controller = Controller(EnvelopeResponse(response_data=data))
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=2)])
    response = await ForwardingManager(controller.send_request).forward_request(
        session(), VERSION, request, client_id="admin-1"
    )
    assert response == CreateTopicsResponse(topics=topics)
    (envelope,) = controller.envelopes
    header, start = decode_request_header(envelope.request_data, 0, len(envelope.request_data))
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.CREATE_TOPICS, VERSION, "admin-1")
    body = decode_request(ApiKey.CREATE_TOPICS, VERSION, envelope.request_data, start, len(envelope.request_data))
    assert body == request
    assert envelope.client_host_address == bytes((10, 1, 2, 3))
    principal = decode_versioned(DefaultPrincipalData, envelope.request_principal or b"")
    assert principal == DefaultPrincipalData(type="User", name="anna", token_authenticated=True)


@pytest.mark.parametrize(
    ("refusal", "reported"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),
        # The broker was refused, not the client.
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_refused_envelope_is_an_error_of_the_broker(refusal: ErrorCode, reported: ErrorCode) -> None:
    controller = Controller(EnvelopeResponse(error_code=refusal))
    with pytest.raises(KafkaError) as error:
        await ForwardingManager(controller.send_request).forward_request(
            session(), VERSION, CreateTopicsRequest(topics=[]), client_id=None
        )
    assert error.value.code is reported

"""A client of a few admin APIs over a plain socket: sends one request, returns its response, hides nothing."""

from __future__ import annotations

import socket
import struct
from typing import Any

from tests.frames import framed, request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)


class ConfigClient:
    """One connection to one broker."""

    def __init__(self, bootstrap: str, client_id: str = "config-client") -> None:
        self._client_id = client_id
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        self.send(key, version, request)
        return self.receive(key, version)

    def send(self, key: ApiKey, version: int, request: Any) -> None:
        self._socket.sendall(framed(request_body(key, version, request, client_id=self._client_id)))

    def receive(self, key: ApiKey, version: int) -> Any:
        """Return the next response, which is for a request of this version."""
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        _, position = decode_response_header(key, version, frame, 0, size)
        return decode_response(key, version, frame, position, size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()

    def create_topic(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        response = self.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert [result.error_code for result in response.topics] == [0]

    def describe(self, kind: int, name: str, keys: list[str] | None = None) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = self.call(ApiKey.DESCRIBE_CONFIGS, 4, request).results
        assert isinstance(result, DescribeConfigsResult)
        return result

    def edit(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
        configs = [
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
        (response,) = self.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
        return response.error_code, response.error_message or None

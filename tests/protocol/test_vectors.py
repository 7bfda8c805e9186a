"""Golden bytes: frames that foreign clients and Apache Kafka exchanged, decoded and encoded again.

Each line of `tests/vectors/<client>-<version>.jsonl` is one frame without its length: `api`, `version`, `direction`
(`request` or `response`) and `hex`. They were taken off the wire between the client in the file's name and a broker
of Apache Kafka, 4.1.1 for the newest clients and 3.9.1 for the older ones; "as-old" clients were told to speak to a
broker of 0.8 to 2.6.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.protocol.message_constructs import construct_for, to_plain

from barnabas.protocol import codec
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

FOLDER = Path(__file__).parent.parent / "vectors"
FILES = sorted(FOLDER.glob("*.jsonl"))


@cache
def frames(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_there_are_vectors_of_several_clients() -> None:
    clients = {path.stem.rsplit("-", 1)[0] for path in FILES}
    assert {"aiokafka", "java", "kafka-python", "librdkafka"} <= clients


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_frames_come_out_as_they_went_in(path: Path) -> None:
    for number, frame in enumerate(frames(path), 1):
        where = f"{path.name}:{number} {frame['api']} v{frame['version']} {frame['direction']}"
        data = bytes.fromhex(frame["hex"])
        assert recode(ApiKey[frame["api"]], frame["version"], frame["direction"], data) == data, where


def recode(key: ApiKey, version: int, direction: str, data: bytes) -> bytes:
    """The frame decoded and encoded again; on the way `construct` must read the same message."""
    if direction == "request":
        header, position = decode_request_header(data, 0, len(data))
        assert (header.api_key, header.api_version) == (key, version)
        message = codec.decode_request(key, version, data, position, len(data))
        encoded = encode_request_header(header) + codec.encode_request(message, version)
    else:
        correlation_id, position = decode_response_header(key, version, data, 0, len(data))
        message = codec.decode_response(key, version, data, position, len(data))
        encoded = encode_response_header(key, version, correlation_id)
        encoded += b"".join(codec.encode_response(message, version))
    cls = API_MESSAGES[key].request if direction == "request" else API_MESSAGES[key].response
    assert construct_for(cls, version).parse(data[position:]) == to_plain(message, version)
    return encoded

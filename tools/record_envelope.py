"""Records as lines of JSON, which `barnabas consume --json` writes and `barnabas produce --json` reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TypeAlias

from ..clients.fetched_records import ConsumerRecord

JsonOf: TypeAlias = Callable[[bytes | None], str]
"""Converts a key or a value to JSON."""


def _text(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def json_of_bytes(data: bytes | None) -> str:
    """Return a key or a value as a JSON string, bytes that are not text as `{"base64": …}`."""
    return json.dumps(_text(data), ensure_ascii=False)


def envelope(record: ConsumerRecord, json_of: JsonOf = json_of_bytes) -> bytes:
    """Return a record as a line of JSON, with kcat's names; bytes that are not text as `{"base64": …}`."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": record.timestamp_type.name.lower(),
        "ts": record.timestamp,
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    # Key and value are JSON already, whose numbers Python would change.
    head = json.dumps(fields, ensure_ascii=False).removesuffix("}")
    line = f'{head}, "key": {json_of(record.key)}, "payload": {json_of(record.value)}}}\n'
    # Half of a surrogate pair, which JSON can contain and UTF-8 cannot, becomes JSON's escape.
    return line.encode("utf-8", "backslashreplace")

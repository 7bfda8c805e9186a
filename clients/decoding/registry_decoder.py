"""Decoder for values of Confluent's serializers, with the schemas of a registry: a zero, the schema's id, the data.

It blocks while a schema is fetched, once per id.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from ...common.error_description import describe_error
from ..host import monotonic_seconds
from ..json_text import JsonText, one_line
from .schemas import SchemaNotFoundError, SchemaRegistry
from .worker import HEAD_BYTES, Decode, decoder_of

KEPT_SCHEMAS = 1000
FAILED_SECONDS = 30.0
"""Seconds until an unknown id, or an unreadable schema, is looked up again."""


class RegistryDecoder:
    """The decoder of one registry, with a cache of schemas. Used by one thread at a time."""

    def __init__(
        self,
        url: str,
        *,
        check_avro: Callable[[str], object] | None = None,
        read_message: Callable[[Any], Any] | None = None,
    ) -> None:
        """Accept `http://host:port`, or https with `user:password@` if the registry requires it. Raises ValueError for
        others.

        `check_avro` raises ValueError for a schema that must not be used in this process. `read_message` converts a
        message of Protobuf, by default to the values of its JSON form.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(
                f"{url.rpartition('@')[2]!r}: invalid address of a schema registry. Expected an address such as "
                "http://localhost:8081"
            )
        self._registry = SchemaRegistry(url)
        self._check_avro = check_avro
        self._read_message = read_message
        self._decoders: OrderedDict[int, Decode] = OrderedDict()
        self._failed: OrderedDict[int, tuple[type[Exception], str, float]] = OrderedDict()

    def decode(self, data: bytes, parse_json: Callable[[str], Any] = json.loads) -> Any:
        """Return the value as Python objects; a JSON document is parsed with `parse_json`.

        Raises LookupError without a frame or for an unknown id, ValueError if the data do not match the schema, OSError
        if the registry does not respond.
        """
        value = self._decode(data)
        return parse_json(value) if isinstance(value, JsonText) else value

    def decode_text(self, data: bytes) -> str:
        """Return the value as one line of JSON, with numbers as in a JSON document. Raises as `decode`."""
        value = self._decode(data)
        try:
            return one_line(value)
        except RecursionError:
            raise ValueError("the value is nested too deeply") from None

    def _decode(self, data: bytes) -> Any:
        if len(data) < HEAD_BYTES or data[0] != 0:
            raise LookupError("the value does not begin with the id of a schema")
        number = int.from_bytes(data[1:HEAD_BYTES], "big")
        decode = self._decoder(number)
        try:
            return decode(data[HEAD_BYTES:], True)
        except Exception as error:  # noqa: BLE001 - libraries raise any exception for untrusted bytes
            reason = str(error) or type(error).__name__  # for fastavro's EOFError
            raise ValueError(f"the value does not match schema {number}: {reason}") from None

    def _decoder(self, number: int) -> Decode:
        if number not in self._decoders:
            kind, why, at = self._failed.get(number, (None, "", 0.0))
            if kind is not None and monotonic_seconds() - at < FAILED_SECONDS:
                raise kind(why)
            try:
                self._decoders[number] = self._find(number)
            except (LookupError, ValueError) as error:
                self._failed[number] = type(error), str(error), monotonic_seconds()
                self._failed.move_to_end(number)
                if len(self._failed) > KEPT_SCHEMAS:
                    self._failed.popitem(last=False)
                raise
            if len(self._decoders) > KEPT_SCHEMAS:
                self._decoders.popitem(last=False)
        self._decoders.move_to_end(number)
        return self._decoders[number]

    def _find(self, number: int) -> Decode:
        try:
            schema = self._registry.by_number(number)
        except SchemaNotFoundError as error:
            raise LookupError(f"schema {number} is not in the registry: {error}") from None
        except OSError as error:
            cause = getattr(error, "reason", error)  # raised by urllib
            told = describe_error(cause) if isinstance(cause, OSError) else cause
            raise OSError(f"schema registry {self._registry.url}: {told}") from None
        except (LookupError, ValueError, TypeError) as error:
            raise ValueError(f"schema {number} cannot be read: {error}") from None
        try:
            if schema.kind == "AVRO" and self._check_avro is not None:
                self._check_avro(schema.text)
            return decoder_of(schema._asdict(), self._read_message)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries raise any exception for untrusted schemas
            raise ValueError(f"schema {number} cannot be read: {error}") from None


@lru_cache(maxsize=16)
def decoder_at(url: str) -> RegistryDecoder:
    """Return the process's decoder of that registry. Raises ValueError."""
    return RegistryDecoder(url)

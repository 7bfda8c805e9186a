"""Values as confluent's serializers write them, read by the schemas of a registry: a zero, the schema's id, the data.

It blocks while a schema is fetched, once for each id.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from ...protocol.in_words import in_words
from ..console.decoding.schemas import SchemaRegistry
from ..console.decoding.worker import HEAD_BYTES, Decode, decoder_of, plain


class RegistryDecoder:
    """One registry's, with the schemas that were needed so far."""

    def __init__(self, url: str) -> None:
        """`http://host:port`, or https with `user:password@` if it asks. Raises ValueError for what is no address."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is no address of a schema registry, as http://localhost:8081")
        self._registry = SchemaRegistry(url)
        self._url = url
        self._decoders: dict[int, Decode | None] = {}

    def decode(self, data: bytes) -> Any:
        """What JSON could be made of.

        Raises LookupError if it is not framed so, or by an id that the registry does not know, ValueError if the data
        are none of the schema's, OSError if the registry does not answer.
        """
        if len(data) < HEAD_BYTES or data[0] != 0:
            raise LookupError("it has no frame of a schema registry")
        number = int.from_bytes(data[1:HEAD_BYTES], "big")
        if number not in self._decoders:
            self._decoders[number] = self._find(number)
        decode = self._decoders[number]
        if decode is None:
            raise LookupError(f"the registry knows no schema {number}")
        try:
            return decode(data[HEAD_BYTES:], True)
        except Exception as error:  # noqa: BLE001 - whatever a library makes of a stranger's bytes
            raise ValueError(f"it is none of schema {number}: {error}") from None

    def _find(self, number: int) -> Decode | None:
        try:
            schema = self._registry.by_number(number)
        except OSError as error:
            if isinstance(error.__context__, HTTPError) and error.__context__.code == 404:
                return None
            cause = getattr(error, "reason", error)  # urllib's
            told = in_words(cause) if isinstance(cause, OSError) else cause
            raise OSError(f"schema registry {self._url}: {told}") from None
        return None if schema is None else decoder_of(schema._asdict())


@lru_cache(maxsize=16)
def decoder_at(url: str) -> RegistryDecoder:
    """The process's decoder of that registry. Raises ValueError."""
    return RegistryDecoder(url)


def as_json(value: object) -> str:
    """What was decoded as text; what JSON has no word for, as dates and decimals, as its own text."""
    return json.dumps(value, ensure_ascii=False, default=plain)

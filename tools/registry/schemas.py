"""Registered schemas: a text with its type, and references to versions of other subjects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import invalid_schema

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
KINDS = (JSON, PROTOBUF, AVRO)
_CONTRACT = ("metadata", "ruleSet")


@dataclass(frozen=True, slots=True)
class Reference:
    """A referenced schema and the name of the import; version -1 is the latest."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        """Return the form in requests, responses and records."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """`contract` is JSON of `metadata` and `ruleSet`, which only clients use; it is stored unchanged."""

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    contract: str = "{}"

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RegisteredSchema:
        """Parse a request or a record. Raises RegistryError."""
        text, kind = body.get("schema"), body.get("schemaType") or AVRO
        if not isinstance(text, str) or not text.strip():
            raise invalid_schema("the field schema is missing or empty")
        if kind not in KINDS:
            raise invalid_schema(f"unknown type {kind!r}. Expected one of {', '.join(KINDS)}")
        try:
            references = tuple(
                Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
                for one in body.get("references") or ()
            )
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            raise invalid_schema("references require a name, a subject and a version") from None
        contract = {name: body[name] for name in _CONTRACT if body.get(name)}
        try:
            return cls(text, kind, references, json.dumps(contract, sort_keys=True, allow_nan=False))
        except ValueError:
            raise invalid_schema(f"{' and '.join(contract)} have a number that JSON does not support") from None

    def to_json(self) -> dict[str, Any]:
        """Return the form in responses and records; a missing type means Avro."""
        said: dict[str, Any] = {} if self.kind == AVRO else {"schemaType": self.kind}
        if self.references:
            said["references"] = [reference.to_json() for reference in self.references]
        return {**said, **json.loads(self.contract), "schema": self.text}

    def with_text(self, text: str) -> RegisteredSchema:
        """Return a key that is equal for equivalent schemas."""
        return replace(self, text=text)


@dataclass(frozen=True, slots=True)
class Version:
    """A schema as one version of a subject."""

    subject: str
    number: int
    schema_id: int
    schema: RegisteredSchema
    is_deleted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form in responses."""
        return {"subject": self.subject, "version": self.number, "id": self.schema_id, **self.schema.to_json()}

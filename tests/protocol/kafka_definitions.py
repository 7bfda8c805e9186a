"""Apache Kafka's message definitions, read from the jars of its client, and the JSON it prints messages as."""

import base64
import json
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.java import jars

from barnabas.protocol.schema import Primitive, Versions, fields_of, flexible_of, parse_versions, record_bytes

# The newest knows every new version, the oldest every old one.
RELEASES = ("4.4.0", "4.1.1", "3.9.1")
EARLY_ACCESS = {"3.9.1": range(76, 88)}
"""APIs of share groups before their layouts were final."""
RENAMED_FIELDS = {
    ("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch",
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag"): "acceptable_recovery_lag_legacy",
}
"""Names of fields in definitions before 4.4, for the field that has replaced them in the same versions."""
ZEROS: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "float64": 0.0,
    "uuid": UUID(int=0),
}


def client_jar(release: str) -> Path:
    """The jar of Kafka's Java client."""
    return next(jar for jar in client_classpath(release) if jar.name == f"kafka-clients-{release}.jar")


def client_classpath(release: str) -> list[Path]:
    """Kafka's Java client and what it needs to print its messages as JSON."""
    return jars(f"org.apache.kafka:kafka-clients:{release}", "com.fasterxml.jackson.core:jackson-databind:2.16.2")


@cache
def definitions(release: str) -> dict[tuple[int, str], dict[str, Any]]:
    """The requests and responses a release defines, by API key and `request` or `response`."""
    found = {}
    with zipfile.ZipFile(client_jar(release)) as archive:
        for path in archive.namelist():
            if path.startswith("common/message/") and path.endswith(".json"):
                definition = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", archive.read(path).decode()))
                if definition["type"] in ("request", "response"):
                    found[definition["apiKey"], definition["type"]] = definition
    return found


def covered_versions(release: str, key: int, side: str) -> Versions:
    """The versions a release defines; a withdrawn or later API has none."""
    if key in EARLY_ACCESS.get(release, ()):
        return parse_versions("")
    definition = definitions(release).get((key, side), {})
    return parse_versions(_versions(definition.get("validVersions", "none")))


def definition_for(key: int, side: str, version: int) -> dict[str, Any]:
    """The newest definition that covers a version."""
    return next(
        definitions(release)[key, side] for release in RELEASES if version in covered_versions(release, key, side)
    )


def is_current(definition: dict[str, Any]) -> bool:
    """Whether no later release has replaced the definition."""
    key = (definition["apiKey"], definition["type"])
    later = [definitions(release)[key] for release in RELEASES if key in definitions(release)]
    return definition is next((one for one in later if one["validVersions"] != "none"), None)


def snake_case(name: str) -> str:
    """`topicId` as `topic_id`, `lastKnownELR` as `last_known_elr`; KRaft is one word."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.replace("KRaft", "Kraft"))
    return words.lower()


def kafka_tree(definition: dict[str, Any], version: int) -> list[Any]:
    """One version as Kafka has it: is it flexible, then (name, type, nullable, tag, default, ignorable) of fields."""
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    flexible = parse_versions(_versions(definition["flexibleVersions"]))

    def tree(fields: list[dict[str, Any]]) -> list[Any]:
        found = []
        for field in fields:
            if version not in parse_versions(_versions(field["versions"])):
                continue
            kind = field["type"]
            element = kind.removeprefix("[]")
            inner = tree(field.get("fields") or common[element]) if element[0].isupper() else element
            tag = (
                int(field["tag"]) if version in parse_versions(_versions(field.get("taggedVersions", "none"))) else None
            )
            found.append(
                (
                    snake_case(field["name"]),
                    [inner] if kind.startswith("[]") else inner,
                    version in parse_versions(_versions(field.get("nullableVersions", "none"))),
                    tag,
                    _kafka_default(field, kind, version),
                    bool(field.get("ignorable", False)),
                )
            )
        return found

    return [version in flexible, *tree(definition["fields"])]


def our_tree(cls: type, version: int) -> list[Any]:
    """The fields of one version as our message data say, in the same form."""

    def tree(struct: type) -> list[Any]:
        return [
            (
                field.name,
                [_kind(field.element, tree)] if field.is_array else _kind(field.element, tree),
                version in field.nullable,
                field.tag,
                "fresh" if field.default_is_fresh else field.default(),
                field.ignorable,
            )
            for field in fields_of(struct)
            if version in field.versions
        ]

    return [version in flexible_of(cls), *tree(cls)]


def _kind(element: Any, tree: Any) -> Any:
    return element.name if isinstance(element, Primitive) else tree(element)


def _versions(text: str) -> str:
    return "" if text == "none" else text


def _kafka_default(field: dict[str, Any], kind: str, version: int) -> Any:
    text = field.get("default")
    if kind.startswith("[]") or kind[0].isupper():
        return None if text == "null" else "fresh"
    if kind == "records" and version not in parse_versions(_versions(field.get("nullableVersions", "none"))):
        return b""  # Kafka's is null there too, and cannot be written
    if text is None or text == "":
        return ZEROS.get(kind, 0)
    if text == "null":
        return None
    if kind == "bool":
        return str(text).lower() == "true"
    return text if kind == "string" else int(str(text), 0)


def assert_same_values(cls: type, message: Any, theirs: dict[str, Any], version: int, where: str) -> None:
    """Kafka's JSON of a message names the fields of that version, except tagged ones that have their default."""
    named = {snake_case(name): value for name, value in theirs.items()}
    ours = {field.name for field in fields_of(cls) if version in field.versions}
    seen = {name if name in ours else RENAMED_FIELDS.get((cls.__name__, name), name): named[name] for name in named}
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        label = f"{where} {cls.__name__}.{field.name}"
        if field.element is record_bytes:
            # Printed as what is left of a consumed buffer; the bytes themselves are compared elsewhere.
            assert (seen.pop(field.name, None) is None) == (value is None), label
        elif field.name not in seen:
            assert field.tag is not None, label
            assert value == field.default(), label
        else:
            assert_same_value(field.element, value, seen.pop(field.name), version, label)
    assert seen == {}, where


def assert_same_value(element: Any, value: Any, theirs: Any, version: int, label: str) -> None:
    if value is None or theirs is None:
        assert value is theirs, label
    elif isinstance(value, list):
        assert isinstance(theirs, list), label
        assert len(theirs) == len(value), label
        for ours, other in zip(value, theirs, strict=True):
            assert_same_value(element, ours, other, version, label)
    elif not isinstance(element, Primitive):
        assert_same_values(element, value, theirs, version, label)
    elif element.name == "uuid":
        assert UUID(bytes=base64.urlsafe_b64decode(theirs + "==")) == value, label
    elif element.name == "bytes":
        assert base64.b64decode(theirs) == value, label
    else:
        assert theirs == value, label

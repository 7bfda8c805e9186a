"""The manifest of a backup: its partitions and files, and the objects that have their content.

A JSON object with the fields `format` ("barnabas-backup"), `version` (1), the fields of `BackupManifest`, and
`checksum`: the SHA-256 of the document without this field, encoded without spaces and with sorted keys.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .target import BACKUPS, BackupError, Target, object_name

FORMAT, VERSION = "barnabas-backup", 1
METADATA_FILE = "metadata.sqlite"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_FILE = re.compile(r"[0-9]{20}\.(log|snapshot)|partition\.metadata|leader-epoch-checkpoint", re.ASCII)
_OTHER_FILE = re.compile(r"metadata\.sqlite|meta\.properties", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ID = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z", re.ASCII)
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class BackupPart:
    """A part of a file that is one object."""

    size: int
    sha256: str


@dataclass(slots=True)
class BackupFile:
    """A file, whose content is in parts or, if it is small, in the manifest itself."""

    name: str
    size: int
    parts: list[BackupPart] = field(default_factory=list)
    content: bytes | None = None
    inode: int = 0
    """The inode of the source. A file with the same inode and `changed_ns` is not read again."""
    changed_ns: int = 0
    """The time of the last change of the source's inode (ctime), in ns since 1970."""
    damage: str | None = None
    """The first damaged batch of the source, and the reason; None without damage."""


@dataclass(slots=True)
class BackupPartition:
    """The folder of a partition."""

    topic: str
    partition: int
    topic_id: str | None
    log_start_offset: int
    log_end_offset: int
    clean_offset: int | None
    files: list[BackupFile]

    @property
    def folder(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class BackupManifest:
    """The content of one backup. Files of the log directory itself are in `files`."""

    id: str
    created_ms: int
    software: str
    """The version of Barnabas that wrote the files."""
    cluster_id: str
    broker_id: int
    new_bytes: int
    """The bytes of the objects that this backup has added to the target."""
    files: list[BackupFile]
    partitions: list[BackupPartition]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for _, file in self.all_files())

    def all_files(self) -> list[tuple[str, BackupFile]]:
        """Return each file with its path in the log directory."""
        found = [(file.name, file) for file in self.files]
        return found + [(f"{one.folder}/{file.name}", file) for one in self.partitions for file in one.files]

    def object_names(self) -> set[str]:
        """Return the names of the objects that the backup refers to."""
        return {object_name(part.sha256) for _, file in self.all_files() for part in file.parts}

    def encode(self) -> bytes:
        """Return the JSON document."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "created_ms": self.created_ms,
            "software": self.software,
            "cluster_id": self.cluster_id,
            "broker_id": self.broker_id,
            "new_bytes": self.new_bytes,
            "files": [_encode_file(file) for file in self.files],
            "partitions": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "topic_id": one.topic_id,
                    "log_start_offset": one.log_start_offset,
                    "log_end_offset": one.log_end_offset,
                    "clean_offset": one.clean_offset,
                    "files": [_encode_file(file) for file in one.files],
                }
                for one in self.partitions
            ],
        }
        return _encode(document | {"checksum": hashlib.sha256(_encode(document)).hexdigest()})

    @classmethod
    def decode(cls, data: bytes, backup_id: str) -> BackupManifest:
        """Read a document. Raises BackupError with the reason, also for names that are outside of the log directory."""
        try:
            document = json.loads(data)
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise BackupError("it is not a manifest of a backup")
            if document.get("version") != VERSION:
                raise BackupError(
                    f"version {document.get('version')} is not supported. Use the version of Barnabas that wrote it"
                )
            checksum = document.pop("checksum", None)
            if hashlib.sha256(_encode(document)).hexdigest() != checksum:
                raise BackupError("its checksum is wrong")
            if document["id"] != backup_id:
                raise BackupError(f"it belongs to backup {document['id']}")
            found = cls(
                id=document["id"],
                created_ms=_number(document["created_ms"]),
                software=str(document["software"]),
                cluster_id=str(document["cluster_id"]),
                broker_id=_number(document["broker_id"]),
                new_bytes=_number(document["new_bytes"]),
                files=[_decode_file(one, _OTHER_FILE) for one in document["files"]],
                partitions=[_decode_partition(one) for one in document["partitions"]],
            )
            names = [path for path, _ in found.all_files()]
            if len(set(names)) < len(names):
                raise BackupError("it contains a file twice")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BackupError(f"it is damaged: {type(error).__name__}: {error}") from None
        return found


def read_manifest(target: Target, backup_id: str) -> BackupManifest:
    """Return the manifest of a backup. Raises BackupError, which names the file."""
    name = manifest_name(backup_id)
    try:
        return BackupManifest.decode(target.read(name), backup_id)
    except FileNotFoundError:
        raise BackupError(f"{target.name}: there is no backup {backup_id}") from None
    except BackupError as error:
        raise BackupError(f"{target.name}/{name}: {error}") from None


def backup_ids(target: Target) -> list[str]:
    """Return the ids of all backups, the oldest first. Raises OSError and errors of the target's protocol."""
    names = [name.removeprefix(f"{BACKUPS}/") for name in target.sizes(BACKUPS)]
    return sorted(name.removesuffix(".json") for name in names if _ID.fullmatch(name.removesuffix(".json")))


def manifest_name(backup_id: str) -> str:
    """Return the name of a manifest in its target."""
    return f"{BACKUPS}/{backup_id}.json"


def new_backup_id(now_ms: int, earlier: list[str]) -> str:
    """Return the time as an id that is greater than all earlier ids, also if the clock was set back."""
    if earlier:
        newest = datetime.strptime(earlier[-1], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
        now_ms = max(now_ms, round(newest.timestamp() * 1000) + 1)
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{now_ms % 1000:03d}Z"


def _encode(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _encode_file(file: BackupFile) -> dict[str, Any]:
    document: dict[str, Any] = {"name": file.name, "size": file.size}
    if file.content is not None:
        return document | {"content": base64.b64encode(file.content).decode()}
    document["parts"] = [[part.size, part.sha256] for part in file.parts]
    document["source"] = [file.inode, file.changed_ns]
    return document if file.damage is None else document | {"damage": file.damage}


def _decode_file(document: Any, names: re.Pattern[str]) -> BackupFile:
    name, size = document["name"], _number(document["size"])
    if not names.fullmatch(name):
        raise ValueError(f"unexpected file {name!r}")
    if "content" in document:
        content = base64.b64decode(document["content"], validate=True)
        if len(content) != size:
            raise ValueError(f"{name} has {len(content)} bytes instead of {size}")
        return BackupFile(name, size, content=content)
    parts = [BackupPart(_number(length), sha256) for length, sha256 in document["parts"]]
    if sum(part.size for part in parts) != size:
        raise ValueError(f"the parts of {name} do not have {size} bytes")
    if not all(_SHA256.fullmatch(part.sha256) for part in parts):
        raise ValueError(f"{name} has a part with an invalid SHA-256")
    inode, changed_ns = document["source"]
    return BackupFile(
        name, size, parts, None, _number(inode, 2**64), _number(changed_ns, 2**64), document.get("damage")
    )


def _decode_partition(document: Any) -> BackupPartition:
    topic, clean_offset = document["topic"], document["clean_offset"]
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(f"invalid topic {topic!r}")
    return BackupPartition(
        topic=topic,
        partition=_number(document["partition"], MAX_INT32),
        topic_id=document["topic_id"],
        log_start_offset=_number(document["log_start_offset"]),
        log_end_offset=_number(document["log_end_offset"]),
        clean_offset=None if clean_offset is None else _number(clean_offset),
        files=[_decode_file(one, _FILE) for one in document["files"]],
    )


def _number(value: Any, greatest: int = MAX_INT64) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= greatest:
        raise ValueError(f"{value!r} is not a number from 0 to {greatest}")
    return value

"""Settings in the log of a KRaft quorum that a log directory brings along: counted and named, not adopted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...common.printable_text import printable
from ...common.room_logger import room_logger
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_metadata_record,
)
from ...protocol.record_batch import RecordBatch, iter_batches

if TYPE_CHECKING:
    from ...storage.filesystem import FileSystem

METADATA_FOLDER = "__cluster_metadata-0"
MAX_FILE_BYTES = 64 << 20
"""The limit for a file, which is read into memory as a whole; a larger file is skipped."""
NAMES_SHOWN = 10
"""The limit for the names of one kind in a log line."""
KINDS = {
    ConfigResourceType.TOPIC: "settings of topics",
    ConfigResourceType.BROKER: "settings of brokers",
    ConfigResourceType.GROUP: "settings of groups",
    ConfigResourceType.CLIENT_METRICS: "client metrics subscriptions",
}

logger = room_logger("controller")


class KraftSettings:
    """The names of the settings in effect after the records of a quorum, which are applied in their order."""

    def __init__(self) -> None:
        self.configs: dict[int, dict[str, set[str]]] = {}
        """Names of settings by resource type and resource; an empty name of a broker is the default of all."""
        self.quotas: dict[str, set[str]] = {}
        """Names of quotas by entity."""
        self.scram: set[tuple[str, int]] = set()
        self.acls: set[UUID] = set()
        self.tokens: set[str] = set()
        self._topics: dict[UUID, str] = {}

    def take_in(self, record: Any) -> None:
        """Applies one record."""
        match record:
            case TopicRecord():
                self._topics[record.topic_id] = record.name
            case RemoveTopicRecord():
                name = self._topics.pop(record.topic_id, None)
                self.configs.get(ConfigResourceType.TOPIC, {}).pop(name or "", None)
            case ConfigRecord():
                of_type = self.configs.setdefault(record.resource_type, {})
                _set(of_type, record.resource_name, record.name, is_set=record.value is not None)
            case ClientQuotaRecord():
                parts = [f"{one.entity_type}={one.entity_name or '<default>'}" for one in record.entity]
                _set(self.quotas, ",".join(parts), record.key, is_set=not record.remove)
            case UserScramCredentialRecord():
                self.scram.add((record.name, record.mechanism))
            case RemoveUserScramCredentialRecord():
                self.scram.discard((record.name, record.mechanism))
            case AccessControlEntryRecord():
                self.acls.add(record.id)
            case RemoveAccessControlEntryRecord():
                self.acls.discard(record.id)
            case DelegationTokenRecord():
                self.tokens.add(record.token_id)
            case RemoveDelegationTokenRecord():
                self.tokens.discard(record.token_id)

    def sentences(self) -> list[str]:
        """Return a line for each kind of setting, for the log."""
        found = []
        for resource_type, kind in KINDS.items():
            names = self.configs.get(resource_type, {})
            if names:
                shown = [f"{name or '<default>'} ({', '.join(sorted(names[name]))})" for name in sorted(names)]
                found.append(_sentence(kind, shown))
        if self.quotas:
            shown = [f"{entity} ({', '.join(sorted(self.quotas[entity]))})" for entity in sorted(self.quotas)]
            found.append(_sentence("quotas of clients", shown))
        if self.scram:
            found.append(_sentence("SCRAM users", sorted({name for name, _ in self.scram})))
        if self.acls:
            found.append(f"ACLs: {len(self.acls)}")
        if self.tokens:
            found.append(f"delegation tokens: {len(self.tokens)}")
        return found


def _set(names: dict[str, set[str]], owner: str, name: str, *, is_set: bool) -> None:
    if is_set:
        names.setdefault(owner, set()).add(name)
    elif owner in names:
        names[owner].discard(name)
        if not names[owner]:
            del names[owner]


def _sentence(kind: str, names: list[str]) -> str:
    more = "" if len(names) <= NAMES_SHOWN else ", …"
    return f"{kind}: {len(names)}: {', '.join(map(printable, names[:NAMES_SHOWN]))}{more}"


def read_kraft_settings(fs: FileSystem, folder: str) -> KraftSettings:
    """Reads the newest snapshot in a folder of metadata and the log after it. Blocking. Raises OSError.

    A batch that is damaged ends the reading, with a line in the log.
    """
    settings = KraftSettings()
    names = fs.list_dir(folder)
    snapshot = max((name for name in names if name.endswith(".checkpoint") and name[:20].isdigit()), default=None)
    begin = 0 if snapshot is None else int(snapshot[:20])
    segments = sorted(name for name in names if name.endswith(".log") and name[:20].isdigit())
    # The segment in which the snapshot ends begins before that offset.
    first = max((n for n, name in enumerate(segments) if int(name[:20]) <= begin), default=0)
    files = [(snapshot, 0)] if snapshot is not None else []
    for name, after in [*files, *((name, begin) for name in segments[first:])]:
        path = f"{folder}/{name}"
        if fs.size(path) > MAX_FILE_BYTES:
            logger.warning("%s is too large to be looked through for settings that are not adopted", path)
            continue
        try:
            for value in _values(fs.read_bytes(path), after):
                settings.take_in(decode_metadata_record(value))
        except (ProtocolError, KafkaError) as error:
            logger.warning("%s is damaged, later records are not read: %s", path, error)
            break
    return settings


def _values(data: bytes, after: int) -> Iterable[bytes]:
    for batch in iter_batches(data):
        if not isinstance(batch, RecordBatch) or not batch.is_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {batch.last_offset}")
        if batch.is_control or batch.last_offset < after:
            continue
        for record in batch.records(max_size=MAX_FILE_BYTES):
            if record.value is not None and record.offset >= after:
                yield record.value

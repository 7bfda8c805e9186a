"""`partition.metadata`: which topic id the partition in this directory belongs to (KIP-516)."""

from uuid import UUID

from ..common.room_logger import room_logger
from ..common.uuid_text import uuid_from_text, uuid_text
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .checkpoint_file import MAX_INT32, parse_number
from .errors import FILE_ERRORS, CorruptCheckpointError
from .filesystem import FileSystem

FILE_NAME = "partition.metadata"
_VERSION = 0

logger = room_logger("storage")


def read_partition_metadata(fs: FileSystem, directory: str) -> UUID | None:
    """Return the topic id stored in a partition's directory; None if there is none.

    Layout: the lines `version: 0` and `topic_id: <22 characters>`. Written before the first data of the partition,
    whole by temp file and rename, and never changed. A damaged file is ignored, and replaced once the topic id is
    known. Raises OSError, and `CorruptCheckpointError` for an unknown version.
    """
    path = f"{directory}/{FILE_NAME}"
    try:
        lines = [line.partition(":") for line in fs.read_bytes(path).decode().splitlines() if line]
        values = {name.strip(): value.strip() for name, _, value in lines}
        version, topic_id = parse_number(values["version"], MAX_INT32), uuid_from_text(values["topic_id"])
    except FileNotFoundError:
        return None
    except (KeyError, ValueError):
        logger.warning("%s is damaged and ignored", path)
        return None
    except OSError as error:
        if error.errno not in FILE_ERRORS:
            raise
        logger.warning("%s cannot be read and is ignored: %s", path, error)
        return None
    if version != _VERSION:
        raise CorruptCheckpointError(f"{path}: unknown version {version}")
    return topic_id if topic_id.int else None


def write_partition_metadata(fs: FileSystem, directory: str, topic_id: UUID) -> None:
    """Note the topic id, durably. Raises OSError."""
    fs.write_atomic(f"{directory}/{FILE_NAME}", metadata_content(topic_id))


def metadata_content(topic_id: UUID) -> bytes:
    """Return the content of the file."""
    return f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}\n".encode()


def check_topic_id(topic_partition: TopicPartition, stored: UUID | None, given: UUID) -> None:
    """Raise `KafkaError` INCONSISTENT_TOPIC_ID if the stored id differs from the given id."""
    if stored is not None and stored != given:
        message = f"{topic_partition} belongs to topic id {stored}, not {given}"
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, message)

"""`quorum-state` in the folder of `__cluster_metadata`: the newest leader epoch of the quorum, and its leader.

Layout: JSON of Kafka's QuorumStateData, version 0 or 1 in `data_version`; version 1 is written. Written durably before
a request with the epoch is sent, whole by temp file and rename. A damaged file counts as absent: the epoch is then that
of the log, and the leader's first response contains the current epoch.
"""

import json
from typing import NamedTuple

from ..common.room_logger import room_logger
from ..common.uuid_text import uuid_text
from ..protocol.schema import ZERO_UUID
from .checkpoint_file import MAX_INT32
from .errors import FILE_ERRORS
from .filesystem import FileSystem

FILE_NAME = "quorum-state"
NO_LEADER = -1

logger = room_logger("storage")


class ElectionState(NamedTuple):
    """A leader epoch and its leader, `NO_LEADER` if it is not known."""

    epoch: int
    leader_id: int


class FileQuorumStateStore:
    """Reads and writes the file of one folder. Kafka's class of this name. Used by one thread."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self.path = f"{directory}/{FILE_NAME}"

    def read_election_state(self) -> ElectionState | None:
        """Return the stored state; None without a valid file. Raises OSError."""
        try:
            values = json.loads(self._fs.read_bytes(self.path))
            state = ElectionState(values["leaderEpoch"], values["leaderId"])
            if values["data_version"] not in (0, 1) or not all(
                type(number) is int and low <= number <= MAX_INT32
                for number, low in ((state.epoch, 0), (state.leader_id, NO_LEADER))
            ):
                raise ValueError(f"unknown content {values!r}")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s is damaged and ignored: %s", self.path, error)
            return None
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            logger.warning("%s cannot be read and is ignored: %s", self.path, error)
            return None
        return state

    def write_election_state(self, state: ElectionState) -> None:
        """Replace the state durably. Raises OSError."""
        values = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": -1,
            "votedDirectoryId": uuid_text(ZERO_UUID),
            "data_version": 1,
        }
        self._fs.write_atomic(self.path, json.dumps(values, separators=(",", ":")).encode())

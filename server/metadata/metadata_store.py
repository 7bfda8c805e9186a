"""The port of the metadata tree: small values with ZooKeeper's semantics.

The shared state of the brokers of a cluster (live brokers, controller, topics, leaders) is in the nodes of this tree.
The port gives ZooKeeper's guarantees: every write has a place in one global order (its
zxid), a write may demand the version it replaces, several writes are applied together or not at all, ephemeral nodes
end with the session that made them, and a watch fires once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from ...protocol.errors import ErrorCode, KafkaError

STORE_LANE = "metadata"
"""The lane on which a store's files are written."""
ROOT = "/"
ANY_VERSION = -1
"""The expected version that replaces or deletes any version."""
MAX_MULTI_BYTES = 1_000_000
"""The largest multi, by `size_of`: a ZooKeeper server closes the connection over a MiB (`jute.maxbuffer`)."""
_OPERATION_BYTES = 80
"""Headers, lengths and ACL of an operation."""
STORE_FAILED = "The metadata store could not be written."


class StoreError(Exception):
    """A refused or failed operation. `index` is the operation's place in its multi, 0 for a single one."""

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(path)
        self.path = path
        self.index = index


class NoNodeError(StoreError):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExistsError(StoreError):
    """A node of that path exists already."""


class BadVersionError(StoreError):
    """The node's version is not the expected one: there was another write in between."""


class NotEmptyError(StoreError):
    """A node that has children cannot be deleted."""


class NoChildrenForEphemeralsError(StoreError):
    """An ephemeral node cannot have children."""


class AccessDeniedError(StoreError):
    """The node's ACL does not allow this to the session."""


class TooLargeError(StoreError):
    """A write is larger than `MAX_MULTI_BYTES`; nothing was written."""


class StoreFailedError(StoreError):
    """Nothing can be read or written now. Whether a write that was under way took place is unknown."""

    def as_answer(self) -> KafkaError:
        """Return the error for clients."""
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, STORE_FAILED)


class SessionExpiredError(StoreFailedError):
    """The session has expired and its ephemeral nodes are deleted. A new session is required."""


class StoreUnavailableError(StoreFailedError):
    """The store could not be reached or written: read back and compare."""


class Stat(NamedTuple):
    """The metadata of a node."""

    czxid: int
    """Place of the creation in the global order; a broker's epoch is the czxid of its registration."""
    mzxid: int
    """Place of the last change of the data."""
    version: int
    """Number of changes of the data since the creation."""
    children_version: int
    """Number of creations and deletions of children."""
    created_ms: int
    modified_ms: int
    ephemeral_owner: int
    """Session that the node ends with, 0 for a lasting node."""
    children_count: int


class EventType(Enum):
    """The change that has triggered a watch."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    """The argument of a watch, which is called once. Later changes are found by reading."""

    type: EventType
    path: str


Watch = Callable[[WatchEvent], None]
"""Called on the event loop; must not wait. It is called for one event, or for a loss of the connection during which
there may have been one, and is then dropped. It ends with its session."""


class SessionState(Enum):
    """The state of a session. SUSPENDED: the connection is lost and the session may or may not survive."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node. A sequential one gets ten digits appended that grow with each child of its parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a node's data if its version is the expected one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children if its version is the expected one."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, but refuse the whole multi if the node's version is not the expected one."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
OperationResult = str | Stat | None
"""Create: the path made. SetData: the node's new stat. Delete and Check: None."""


def check_path(path: str) -> None:
    """Raise ValueError unless the path is absolute and each of its parts is a name."""
    if path != ROOT and (not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/"))):
        raise ValueError(f"not a path of the metadata tree: {path!r}")


def size_of(operation: Operation) -> int:
    """Bytes of a multi that an operation takes, a little more rather than less."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return _OPERATION_BYTES + len(operation.path.encode()) + len(data)


class MetadataStore(Protocol):
    """A session with the store, and where stores are shared, after its expiry the next one.

    After EXPIRED a listener receives CONNECTED for a new session, in which watches and ephemeral nodes must be created
    again. An operation of one session is never executed in another. Every method may raise SessionExpiredError and
    StoreUnavailableError.
    """

    @property
    def session_id(self) -> int:
        """Owner written into the ephemeral nodes of this session."""
        ...

    @property
    def state(self) -> SessionState:
        """The present state of the session."""
        ...

    def on_state_change(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` on the event loop at each later change of state."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Make a node and return its path. Raises NodeExistsError, NoNodeError (no parent)."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return a node's data and stat; `watch` is called at its next change or deletion. Raises NoNodeError."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return data and stat of many nodes, None for each missing node."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data. Raises NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node. Raises NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return a node's stat or None; `watch` is called at its creation, next change or deletion."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted; `watch` is called at a change. Raises NoNodeError."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Apply all operations in order or none; an error names the first that was refused by its index.

        Raises TooLargeError.
        """
        ...

    async def close(self) -> None:
        """End the session and with it its ephemeral nodes."""
        ...

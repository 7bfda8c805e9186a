"""The port behind which cluster metadata lives: a tree of small values with ZooKeeper's semantics.

Everything the brokers of a cluster agree upon (who is alive, who is controller, which topics exist, who leads)
is a node of this tree. The port promises what ZooKeeper promises: every write has a place in one global order (its
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
"""As an expected version: replace or delete whatever is there."""
MOST_MULTI_BYTES = 1_000_000
"""The largest multi, by `size_of`: a ZooKeeper server closes the connection over a MiB (`jute.maxbuffer`)."""
_OPERATION_BYTES = 80
"""Headers, lengths and access rights of an operation."""
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
    """The node's version is not the expected one: somebody else wrote in between."""


class NotEmptyError(StoreError):
    """A node that has children cannot be deleted."""


class NoChildrenForEphemeralsError(StoreError):
    """An ephemeral node cannot have children."""


class AccessDeniedError(StoreError):
    """The node's access rights do not allow this to the session."""


class TooLargeError(StoreError):
    """More than `MOST_MULTI_BYTES` in one write; nothing was written."""


class StoreFailedError(StoreError):
    """Nothing can be read or written now. Whether a write that was under way took place is unknown."""

    def as_answer(self) -> KafkaError:
        """What clients are told."""
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, STORE_FAILED)


class SessionExpiredError(StoreFailedError):
    """The session is over; its ephemeral nodes are gone. Only a new session can go on."""


class StoreUnavailableError(StoreFailedError):
    """The store could not be reached or written: read back and compare."""


class Stat(NamedTuple):
    """What the store knows about a node besides its data."""

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
    """What made a watch fire."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    """Told to a watch, once. What happened since is for the reader to read."""

    type: EventType
    path: str


Watch = Callable[[WatchEvent], None]
"""Called on the event loop; must not wait. It hears of one event, or of a loss of contact during which there may have
been one, and is then forgotten. It ends with its session."""


class SessionState(Enum):
    """Where a session stands. SUSPENDED: contact is lost and the session may or may not survive."""

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
    """Raises ValueError unless the path is absolute and each of its parts is a name."""
    if path != ROOT and (not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/"))):
        raise ValueError(f"not a path of the metadata tree: {path!r}")


def size_of(operation: Operation) -> int:
    """Bytes of a multi that an operation takes, a little more rather than less."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return _OPERATION_BYTES + len(operation.path.encode()) + len(data)


class MetadataStore(Protocol):
    """A session with the store, and where stores are shared, after its expiry the next one.

    After EXPIRED a listener hears CONNECTED when there is a new session; watches and ephemeral nodes are to be made
    anew then. What was asked for in one session is never done in another. Every method may raise SessionExpiredError
    and StoreUnavailableError.
    """

    @property
    def session_id(self) -> int:
        """Owner written into the ephemeral nodes of this session."""
        ...

    @property
    def state(self) -> SessionState:
        """Where the session stands now."""
        ...

    def on_state_change(self, listener: Callable[[SessionState], None]) -> None:
        """Calls `listener` on the event loop at each later change of state."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Makes a node and returns its path. Raises NodeExistsError, NoNodeError (no parent)."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Returns a node's data and stat; `watch` is called at its next change or deletion. Raises NoNodeError."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Returns data and stat of many nodes, None for those that are not there."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replaces a node's data. Raises NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Removes a node. Raises NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Returns a node's stat or None; `watch` is called at its creation, next change or deletion."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the names of a node's children, sorted; `watch` hears when one comes or goes. Raises NoNodeError."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Applies all operations in order or none; an error names the first that was refused by its index.

        Raises TooLargeError.
        """
        ...

    async def close(self) -> None:
        """Ends the session and with it its ephemeral nodes."""
        ...

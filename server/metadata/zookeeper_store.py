"""The metadata store of a cluster: an ensemble of Apache ZooKeeper, reached through kazoo.

kazoo communicates with the ensemble in a thread of its own. Its events (responses, watches, states of the session) are
passed to the loop in the order in which they were received, so that a watch fires before the response to any later
request, as ZooKeeper guarantees.

A response that is lost with the connection leaves the outcome of a write unknown. The same session then repeats the
request. If that is refused, the nodes are compared with the data of the write: if they are equal, the lost write was
applied. The outcome remains unknown only if the session has expired or the write could not be repeated in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient, TransactionRequest
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions

from ...common.room_logger import room_logger
from ..runtime.ports import Work
from .metadata_store import (
    ANY_VERSION,
    MAX_MULTI_BYTES,
    AccessDeniedError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    StoreError,
    StoreUnavailableError,
    TooLargeError,
    Watch,
    WatchEvent,
    check_path,
    size_of,
)
from .zookeeper_settings import ZooKeeperSettings

logger = room_logger("zookeeper")

T = TypeVar("T")

LANE = "zookeeper"
ATTEMPTS = 3
"""The number of attempts for a request whose response is lost with the connection."""
OPEN_PATH = "/consumers"
SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token")
"""Credentials and encrypted passwords: only the creator may read them (Kafka: ZkData.SensitiveRootPaths)."""

_ERRORS: dict[type[Exception], type[StoreError]] = {
    exceptions.NoNodeError: NoNodeError,
    exceptions.NodeExistsError: NodeExistsError,
    exceptions.BadVersionError: BadVersionError,
    exceptions.NotEmptyError: NotEmptyError,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
    exceptions.NoAuthError: AccessDeniedError,
    exceptions.InvalidACLError: AccessDeniedError,
    exceptions.AuthFailedError: AccessDeniedError,
    exceptions.SessionExpiredError: SessionExpiredError,
    exceptions.ConnectionClosedError: SessionExpiredError,
}
_EVENTS = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.CHANGED,
    "CHILD": EventType.CHILDREN,
}


class ZooKeeperStore:
    """A session with an ensemble, and after its expiry the next one. Implements `MetadataStore`. Loop-thread only."""

    def __init__(
        self, settings: ZooKeeperSettings, loop: asyncio.AbstractEventLoop, work: Work, client: KazooClient | None
    ) -> None:
        """Create a store that is not connected; `open` connects it."""
        self._settings = settings
        self._loop = loop
        self._work = work
        self._root = settings.root
        self._patience_s = settings.session_timeout_ms / 1000
        self._in_flight = asyncio.Semaphore(settings.max_in_flight)
        self._contact = asyncio.Event()
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._closed = False
        self._listeners: list[Callable[[SessionState], None]] = []
        self._unsure: list[tuple[Watch, WatchEvent]] = []
        """Watches during a loss of contact: their nodes may have changed."""
        self._client = client or _client(settings, loop)
        self._client.add_listener(self._on_kazoo_state)

    @classmethod
    async def open(
        cls,
        settings: ZooKeeperSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        work: Work,
        client: KazooClient | None = None,
    ) -> Self:
        """Connect, and create the path of the root if it does not exist. A simulation brings its own `client`.

        Raises StoreUnavailableError if there is no contact within `connection_timeout_ms`.
        """
        store = cls(settings, loop, work, client)
        store._client.start_async()
        try:
            try:
                async with asyncio.timeout(settings.connection_timeout_ms / 1000):
                    await store._contact.wait()
            except TimeoutError:
                raise StoreUnavailableError(
                    f"no response from ZooKeeper at {settings.hosts} within {settings.connection_timeout_ms} ms "
                    "(zookeeper.connect; a standalone broker must not set it)"
                ) from None
            await store._make_root()
            if settings.set_acl:
                await store._restrict_sensitive_nodes()
        except BaseException:
            await store.close()
            raise
        return store

    async def _make_root(self) -> None:
        root, self._root = self._root, ""
        path = ""
        for name in root.split("/")[1:]:
            path = f"{path}/{name}"
            if await self.exists(path) is None:
                try:
                    await self.create(path)
                except NodeExistsError:
                    logger.debug("%s was created by another broker", path)
        self._root = root

    async def _restrict_sensitive_nodes(self) -> None:
        """Remove read access for everyone from sensitive nodes that were created with it.

        Such nodes are from a broker without `zookeeper.set.acl` or from an earlier version. A root is restricted
        after the nodes below it, so that a restricted root means that there is nothing left to do.
        """
        for root in SENSITIVE_PATHS:
            try:
                if not _is_world_readable(await self._get_acl(root)):
                    continue
                paths = await self._paths_below(root)
                step = 100 * self._settings.max_in_flight
                for start in range(0, len(paths), step):
                    await asyncio.gather(*map(self._restrict, paths[start : start + step]))
                await self._restrict(root)
                logger.info("%s and %d nodes below it are no longer world-readable", root, len(paths))
            except AccessDeniedError as error:
                # Nodes of another identity: only it, or ZooKeeper's super user, may change their ACL.
                logger.error("%s is world-readable, and its ACL belongs to another identity", error.path)

    async def _paths_below(self, path: str) -> list[str]:
        found: list[str] = []
        ahead = [path]
        while ahead:
            parent = ahead.pop()
            try:
                below = [f"{parent}/{name}" for name in await self.children(parent)]
            except (NoNodeError, AccessDeniedError):
                continue
            found += below
            ahead += below
        return found

    async def _restrict(self, path: str) -> None:
        acl = await self._get_acl(path)
        if not _is_world_readable(acl):
            return
        kept = [entry for entry in acl if entry.id.scheme != "world"] or self._acl(path)
        try:
            await self._read(path, lambda: self._client.set_acls_async(self._full(path), kept))
        except NoNodeError:
            logger.debug("%s was removed by another broker", path)

    async def _get_acl(self, path: str) -> list[ACL]:
        """Return the ACL of a node; empty if the node is missing or this session may neither read nor administer it."""
        try:
            acl, _ = await self._read(path, lambda: self._client.get_acls_async(self._full(path)))
        except (NoNodeError, AccessDeniedError):
            return []
        return list(acl)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        """The state of the session."""
        return self._state

    def on_state_change(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    # Reading

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        watcher = self._watcher(path, watch, EventType.CHANGED)
        data, stat = await self._read(path, lambda: self._client.get_async(self._full(path), watcher))
        return data or b"", _stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        async def one(path: str) -> tuple[bytes, Stat] | None:
            try:
                return await self.get(path)
            except NoNodeError:
                return None

        found: list[tuple[bytes, Stat] | None] = []
        step = 100 * self._settings.max_in_flight
        for start in range(0, len(paths), step):
            found += await asyncio.gather(*map(one, paths[start : start + step]))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        watcher = self._watcher(path, watch, EventType.CHANGED)
        stat = await self._read(path, lambda: self._client.exists_async(self._full(path), watcher))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        watcher = self._watcher(path, watch, EventType.CHILDREN)
        names: list[str] = await self._read(path, lambda: self._client.get_children_async(self._full(path), watcher))
        return sorted(names)

    async def _read(self, path: str, send: Callable[[], Any]) -> Any:
        check_path(path)
        session = self._session_id
        for _ in range(ATTEMPTS - 1):
            await self._await_contact(path)
            try:
                return await self._request(path, send, session)
            except StoreUnavailableError:
                logger.debug("%s is read again", path)
        await self._await_contact(path)
        return await self._request(path, send, session)

    # Writing

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        result = (await self.multi([Create(path, data, ephemeral, sequential)]))[0]
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        result = (await self.multi([SetData(path, data, version)]))[0]
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Apply all operations or none; the start of this module describes unknown outcomes."""
        if not operations:
            return []
        for operation in operations:
            check_path(operation.path)
        if sum(map(size_of, operations)) > MAX_MULTI_BYTES:
            raise TooLargeError(operations[0].path)
        session, lost = self._session_id, None
        for _ in range(ATTEMPTS):
            await self._await_contact(operations[0].path)
            try:
                return await self._commit(operations, session)
            except SessionExpiredError:
                raise
            except StoreUnavailableError as error:
                lost = error
            except StoreError:
                results = await self._results_if_applied(operations) if lost is not None else None
                if results is None:
                    raise
                return results
        assert lost is not None
        try:
            raise lost
        finally:
            del lost  # its traceback refers to this frame: a reference cycle

    async def _commit(self, operations: Sequence[Operation], session: int) -> list[OperationResult]:
        path = operations[0].path
        results = await self._request(path, lambda: self._transaction(operations).commit_async(), session)
        for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
            if isinstance(result, Exception) and not isinstance(
                result, exceptions.RolledBackError | exceptions.RuntimeInconsistency
            ):
                raise _translated(result, operation.path, index)
        return [self._result(operation, result) for operation, result in zip(operations, results, strict=True)]

    def _transaction(self, operations: Sequence[Operation]) -> TransactionRequest:
        transaction = self._client.transaction()
        for operation in operations:
            path = self._full(operation.path)
            match operation:
                case Create(_, data, ephemeral, sequential):
                    transaction.create(path, bytes(data), self._acl(operation.path), ephemeral, sequential)
                case SetData(_, data, version):
                    transaction.set_data(path, bytes(data), version)
                case Delete(_, version):
                    transaction.delete(path, version)
                case Check(_, version):
                    transaction.check(path, version)
        return transaction

    def _result(self, operation: Operation, result: Any) -> OperationResult:
        match operation:
            case Create():
                return str(result)[len(self._root) :]
            case SetData():
                return _stat(result)
        return None

    async def _results_if_applied(self, operations: Sequence[Operation]) -> list[OperationResult] | None:
        """Return the operations' results if each node has the expected state; None if not, or if that is unknown."""
        results: list[OperationResult] = []
        for operation in operations:
            match operation:
                case Check():
                    results.append(None)
                    continue
                case Create(sequential=True):
                    return None
            found = (await self.get_many([operation.path]))[0]
            if isinstance(operation, Delete):
                if found is not None:
                    return None
                results.append(None)
            elif found is None or found[0] != operation.data:
                return None
            elif isinstance(operation, Create):
                if found[1].ephemeral_owner != (self._session_id if operation.ephemeral else 0):
                    return None
                results.append(operation.path)
            elif operation.version in (ANY_VERSION, found[1].version - 1):
                results.append(found[1])
            else:
                return None
        return results

    def _acl(self, path: str) -> list[ACL]:
        """Return the permissions of a node (Kafka: ZkData.defaultAcls)."""
        if not self._settings.set_acl or path == OPEN_PATH:
            return list(OPEN_ACL_UNSAFE)
        sensitive = any(path == one or path.startswith(f"{one}/") for one in SENSITIVE_PATHS)
        return [*CREATOR_ALL_ACL, *(() if sensitive else READ_ACL_UNSAFE)]

    # The session

    async def close(self) -> None:
        """End the session and with it its ephemeral nodes; wait for the answer if there is contact."""
        if self._closed:
            return
        self._closed = True
        self._contact.set()
        await self._work.run(LANE, self._stop)
        self._unsure.clear()
        self._enter(SessionState.EXPIRED)

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception:
            logger.exception("the session did not end cleanly; the ensemble ends it after its timeout")

    async def _request(self, path: str, send: Callable[[], Any], session: int) -> Any:
        """Send and wait for the answer, no longer than a session lives."""
        async with self._in_flight:
            if self._closed or session != self._session_id:
                raise SessionExpiredError(path)
            answer: asyncio.Future[Any] = self._loop.create_future()
            send().rawlink(lambda result: _pass_on(result, answer))
            try:
                async with asyncio.timeout(self._patience_s):
                    return await answer
            except TimeoutError:
                raise StoreUnavailableError(path) from None
            except exceptions.KazooException as error:
                raise _translated(error, path) from None

    async def _await_contact(self, path: str) -> None:
        """Wait for a connection. Raises StoreUnavailableError after the session timeout."""
        if not self._client.connected:
            # Reported by the thread just before its notification reaches the loop.
            self._contact.clear()
        if self._closed:
            raise SessionExpiredError(path)
        if not self._contact.is_set():
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._contact.wait()
            except TimeoutError:
                raise StoreUnavailableError(path) from None

    def _on_kazoo_state(self, state: str) -> None:
        """Handle a state of the session, on kazoo's thread."""
        client_id = self._client.client_id
        session = client_id[0] if client_id is not None else 0
        _call_on(self._loop, lambda: self._session_changed(state, session))

    def _session_changed(self, state: str, session: int) -> None:
        if self._closed:
            return
        if state == KazooState.CONNECTED:
            self._session_id = session
            self._contact.set()
            self._enter(SessionState.CONNECTED)
            unsure, self._unsure = self._unsure, []
            for watch, event in unsure:
                watch(event)
        elif state == KazooState.SUSPENDED:
            self._contact.clear()
            self._enter(SessionState.SUSPENDED)
        else:
            self._contact.clear()
            self._session_id = 0
            self._unsure.clear()
            self._enter(SessionState.EXPIRED)

    def _enter(self, state: SessionState) -> None:
        if state is not self._state:
            logger.info("session %x: %s", self._session_id, state.value)
            self._state = state
            for listener in list(self._listeners):
                listener(state)

    # Paths and watches

    def _full(self, path: str) -> str:
        return (self._root + path).rstrip("/") or "/"

    def _watcher(self, path: str, watch: Watch | None, unsure: EventType) -> Callable[[WatchedEvent], None] | None:
        """Convert a watch to kazoo's form; without contact it is kept aside, because kazoo forgets it then."""
        if watch is None:
            return None
        session = self._session_id

        def fire(event: WatchedEvent) -> None:
            if self._closed:
                return
            if event.type in _EVENTS:
                watch(WatchEvent(_EVENTS[event.type], path))
            elif session == self._session_id:
                self._unsure.append((watch, WatchEvent(unsure, path)))

        return fire


class LoopHandler(SequentialThreadingHandler):
    """A handler of kazoo whose callbacks run on an event loop instead of in two more threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.completion_queue = self.callback_queue = LoopQueue(loop)

    @property
    def running(self) -> bool:
        """Always: a callback never runs in kazoo's own thread."""
        return True

    def start(self) -> None:
        """Do nothing: the loop runs already."""

    def stop(self) -> None:
        """Continue on the loop."""

    def dispatch_callback(self, callback: Callback) -> None:
        """Pass a watch event on like a response."""
        self.callback_queue.put(lambda: callback.func(*callback.args))


class LoopQueue:
    """The queue in which kazoo puts callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, callback: Callable[[], object]) -> None:
        """Add a callback; any thread may call this."""
        _call_on(self._loop, callback)


def _call_on(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        logger.debug("the loop is closed; the result is dropped")


def _client(settings: ZooKeeperSettings, loop: asyncio.AbstractEventLoop) -> KazooClient:
    handler = LoopHandler(loop)
    return KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout_ms / 1000,
        handler=handler,
        auth_data=[("digest", settings.digest)] if settings.digest else None,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0, sleep_func=handler.sleep_func),
        use_ssl=settings.tls,
        ca=settings.ca_file,
        certfile=settings.certificate_file,
        keyfile=settings.certificate_file,
        keyfile_password=settings.key_password,
        check_hostname=settings.check_hostname,
    )


def _is_world_readable(acl: Sequence[ACL]) -> bool:
    return any(entry.id.scheme == "world" and entry.perms & Permissions.READ for entry in acl)


def _pass_on(result: Any, answer: asyncio.Future[Any]) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(result.exception)


def _translated(error: Exception, path: str, index: int = 0) -> StoreError:
    """Convert an error of kazoo to the port's error; any other error leaves the outcome unknown."""
    return _ERRORS.get(type(error), StoreUnavailableError)(path, index)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        version=stat.version,
        children_version=stat.cversion,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner,
        children_count=stat.numChildren,
    )

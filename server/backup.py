"""Backups of a running broker, which keeps its files unchanged while another process on the machine copies them.

A backup is the state of the broker at one moment, as a crash of the process would leave it: the extents of all logs and
the metadata are read in one turn of the event loop. A coordinator's log therefore agrees with the logs that its records
refer to: no committed offset is above the end of a log, and no transaction is complete whose markers are missing.

From then on the broker only appends to the files. While it holds them, the cleaner replaces no segment, and the files
of deleted segments and topics, which have other names, remain on the disk. The hold ends by itself if the copying
process does not extend it.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..common.uuid_text import uuid_text
from .metadata.metadata_store import STORE_LANE
from .metadata.producer_id_manager import LAST_PRODUCER_ID
from .metadata.znodes import PRODUCER_ID_BLOCK, decode_producer_id_block, encode_producer_id_block
from .runtime.health import JsonResponse, TextResponse

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from .broker_state import BrokerState
    from .metadata.data_tree import Transaction
    from .runtime.health import HttpRequest, Route

HOLD_SECONDS = 30.0
"""The time after which the broker releases its files, unless the backup extends the hold."""
MAX_HOLDS = 100
"""Maximum number of backups at the same time, including killed ones whose hold has not ended yet."""
SKIPPED_PRODUCER_IDS = 1_000_000_000
"""Producer ids that a restored broker never allocates: the original broker may have allocated them since the backup,
and the restored broker would confuse two producers with the same id."""
COPY_SUFFIX = ".backup-"
"""Between the path of the metadata store and the hold in the path of a copy."""
BACKUP_LANE = "#backup"


class BackupRoutes:
    """`POST /backup`, `POST /backup/extend` and `POST /backup/end` of the broker's health port.

    Owned by the broker; used on the event loop's thread.
    """

    def __init__(self, state: Callable[[], BrokerState], loop: asyncio.AbstractEventLoop) -> None:
        """`state` is called for each request, because the port may serve requests before the components exist."""
        self._state = state
        self._loop = loop
        self._holds: dict[str, asyncio.TimerHandle] = {}
        """The holds that have not ended, each with the timer that ends it."""

    def routes(self) -> dict[tuple[str, str], Route]:
        """Return the handlers by method and path."""
        return {
            ("POST", "/backup"): self._begin,
            ("POST", "/backup/extend"): self._extend,
            ("POST", "/backup/end"): self._end,
        }

    async def _begin(self, request: HttpRequest) -> JsonResponse | TextResponse:
        """Return the extents of all logs; with `hold=true` also hold the files and write a copy of the metadata."""
        state = self._state()
        refusal = self._refusal(state)
        if refusal is not None:
            return _conflict(refusal)
        if request.query.get("hold") != "true":
            return await self._encoded(state, self._facts(state))
        if len(self._holds) >= MAX_HOLDS:
            return _conflict(f"{MAX_HOLDS} backups of this broker are in progress. Try again in {HOLD_SECONDS:g} s")
        is_first, hold = not self._holds, state.ports.token_bytes(16).hex()
        self._extend_hold(hold)
        try:
            await state.cleaner.hold()
            if hold not in self._holds:
                return _conflict("the cleaner took too long to end its passes")
            refusal = self._refusal(state)
            if refusal is not None:
                self._release(hold)
                return _conflict(refusal)
            # From here to the copy of the tree nothing is awaited, so that extents and metadata are of the same moment.
            facts = self._facts(state)
            tree = _tree_of(state)
            path = _copy_path(state, hold)
            await state.ports.work.run(STORE_LANE, partial(_write_tree, path, tree, is_first=is_first))
        except (OSError, sqlite3.Error) as error:
            self._release(hold)
            return JsonResponse("500 Internal Server Error", {"error": f"the metadata cannot be copied: {error}"})
        except BaseException:
            self._release(hold)
            raise
        if hold not in self._holds:
            return _conflict("the copy of the metadata took too long")
        return await self._encoded(
            state, facts | {"hold": hold, "hold_seconds": HOLD_SECONDS, "metadata": str(path.absolute())}
        )

    async def _extend(self, request: HttpRequest) -> JsonResponse:
        """Extend a hold by `HOLD_SECONDS` from now. 409 if it has ended."""
        hold = request.query.get("hold", "")
        if hold not in self._holds:
            return _conflict("the broker no longer keeps its files unchanged for this backup")
        self._extend_hold(hold)
        return JsonResponse("200 OK", {})

    async def _end(self, request: HttpRequest) -> JsonResponse:
        """Release the files. 409 if the broker has released them before: the copy may be incomplete."""
        hold = request.query.get("hold", "")
        if hold not in self._holds:
            return _conflict("the broker no longer keeps its files unchanged for this backup")
        self._release(hold)
        return JsonResponse("200 OK", {})

    def _extend_hold(self, hold: str) -> None:
        if hold in self._holds:
            self._holds[hold].cancel()
        self._holds[hold] = self._loop.call_later(HOLD_SECONDS, self._release, hold)

    def _release(self, hold: str) -> None:
        timer = self._holds.pop(hold, None)
        if timer is None:
            return
        timer.cancel()
        state = self._state()
        if not self._holds:
            state.cleaner.release()
        path = _copy_path(state, hold)
        with suppress(RuntimeError):  # the lanes are closed, because the broker stops; the next backup removes the copy
            state.ports.work.submit(STORE_LANE, lambda: path.unlink(missing_ok=True), lambda _, __: None)

    @staticmethod
    def _refusal(state: BrokerState) -> str | None:
        """Return the reason why this broker cannot be backed up; None if it can."""
        from .metadata.embedded_store import IN_MEMORY, EmbeddedStore  # brokers of an ensemble do not load SQLite

        config = state.config
        is_embedded = state.stores is not None and isinstance(state.stores.store, EmbeddedStore)
        if config.is_kraft or config.coordinator_addresses or not is_embedded:
            return "a backup requires a single broker; this broker is a member of a cluster, which has other replicas"
        if config.metadata_store_path == IN_MEMORY:
            return "the broker keeps its metadata in memory (metadata.store.path)"
        for topic_partition, failure in state.log_manager.held.offline.items():
            return f"{topic_partition} is offline: {failure}"
        return None

    @staticmethod
    def _facts(state: BrokerState) -> dict[str, object]:
        directories = [log_dir.path for log_dir in state.log_manager.dirs]
        return {
            "version": __version__,
            "broker_id": state.broker_id,
            "cluster_id": state.cluster_id,
            "time_ms": state.ports.now_ms(),
            "log_dirs": [str(Path(directory).absolute()) for directory in directories],
            "partitions": [
                {
                    "topic": extent.topic_partition.topic,
                    "partition": extent.topic_partition.partition,
                    "topic_id": None if extent.topic_id is None else uuid_text(extent.topic_id),
                    "log_dir": directories.index(extent.directory),
                    "log_start_offset": extent.log_start_offset,
                    "log_end_offset": extent.log_end_offset,
                    "segments": extent.segments,
                    "clean_offset": extent.clean_offset,
                }
                for extent in state.log_manager.log_extents()
            ],
        }

    @staticmethod
    async def _encoded(state: BrokerState, facts: Mapping[str, object]) -> TextResponse:
        """Encode facts about thousands of partitions outside of the event loop."""
        body = await state.ports.work.run(BACKUP_LANE, lambda: json.dumps(facts).encode())
        return TextResponse("200 OK", "application/json", body)


def _copy_path(state: BrokerState, hold: str) -> Path:
    """Return the path of a copy of the metadata store, next to the store."""
    return Path(f"{state.config.metadata_store_path}{COPY_SUFFIX}{hold}")


def _write_tree(path: Path, tree: Transaction, *, is_first: bool) -> None:
    """Write the copy. The first of several holds removes the copies that a crash of the broker has left."""
    from .metadata.tree_journal import write_copy

    if is_first:
        for left in path.parent.glob(f"{path.name.partition(COPY_SUFFIX)[0]}{COPY_SUFFIX}*"):
            left.unlink(missing_ok=True)
    write_copy(str(path), tree)


def _tree_of(state: BrokerState) -> Transaction:
    """Return the nodes of the metadata tree at this moment, with a gap in the producer ids."""
    from .metadata.embedded_store import EmbeddedStore

    store = state.store
    assert isinstance(store, EmbeddedStore), "checked before"
    tree = store.request_processor.tree.lasting_nodes()
    node = tree.changes.get(PRODUCER_ID_BLOCK)
    assert node is not None, "created at the first start"
    last = decode_producer_id_block(node.data)[1] if node.data else -1
    last = min(last + SKIPPED_PRODUCER_IDS, LAST_PRODUCER_ID)
    tree.changes[PRODUCER_ID_BLOCK] = node._replace(data=encode_producer_id_block(state.broker_id, last, last))
    return tree


def _conflict(message: str) -> JsonResponse:
    return JsonResponse("409 Conflict", {"error": "INVALID_REQUEST", "message": message})

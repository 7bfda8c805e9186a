"""The log directories of a broker from its start to its stop: opened, loaded on lanes, reserved room, closed clean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from ...common.room_logger import room_logger
from ...common.steps import run_to_end
from ...storage.errors import LogDirFailedError
from ...storage.found_logs import FindStrays
from ...storage.lane_task import LaneTask
from ...storage.log_dir import RECOVERY_POINT_CHECKPOINT
from ...storage.log_manager import LogManager
from ...storage.reserve import Reserve
from ..config.broker_config import BrokerConfig
from ..config.dynamic_config import DynamicConfig
from ..metadata.metadata_store import STORE_LANE
from ..runtime.ports import Ports
from .replica_manager import ReplicaManager

logger = room_logger("broker")

CLOSING_LANES = 4
"""The number of lanes that sync a directory's logs at a stop: parallel syncs share the writes of the journal."""


class LogDirectories:
    """Owns the order in which directories are locked, read, reserved and given back. Loop-thread only."""

    def __init__(
        self, config: BrokerConfig, ports: Ports, loop: asyncio.AbstractEventLoop, dynamic_config: DynamicConfig
    ) -> None:
        """Nothing is touched before `open`."""
        self._config = config
        self._ports = ports
        self._loop = loop
        self._reserve_bytes = ports.reserve_bytes if config.acks_all_durability == "disk" else 0
        # A broker of a KRaft cluster has no metadata store.
        store_bytes = 0 if config.is_kraft else self._reserve_bytes
        self.store_reserve = Reserve(ports.filesystem, f"{config.metadata_store_path}.reserve", store_bytes)
        """Room that is kept for the embedded metadata store."""
        self.log_manager = LogManager(
            config.log_dirs,
            fs=ports.filesystem,
            config_for=dynamic_config.topic_log_config,
            now_ms=ports.now_ms,
            rng=ports.random,
            lock=ports.lock,
            reserve_bytes=self._reserve_bytes,
            # Controllers of a KRaft cluster do not wait for a broker that is down before a topic is created again.
            rename_strays=config.is_kraft,
        )
        self.log_manager.held.is_cordoned = config.is_cordoned

    def open(self) -> None:
        """Make and lock the directories. Raises BlockingIOError, AllLogDirsFailedError."""
        if self._ports.log_files is not None:
            self.log_manager.limit_open_files(self._ports.log_files, self._is_on_loop)
        self.log_manager.open_dirs()

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def load(self, strays: FindStrays, known_topics: Collection[str]) -> None:
        """Open the logs of all folders except the folders that `strays` returns.

        If no topic is known, all opened logs are adopted one after the other, and the first one makes topics known.
        Therefore a checkpoint file names them before, durably: after a kill in between, an unnamed folder would look
        like a foreign copy.
        """
        lanes = max(1, self._config.num_recovery_threads_per_data_dir)
        await self._on_many_lanes(self.log_manager.finding_tasks(), lanes)
        await self._on_many_lanes(self.log_manager.loading_tasks(strays, known_topics), lanes)
        if self.log_manager.logs and not known_topics:
            tasks = run_to_end(self.log_manager.checkpoint_steps(RECOVERY_POINT_CHECKPOINT))
            await self._on_many_lanes(tasks, lanes)
        self.log_manager.finish_loading()

    async def use_reserves(self, use: Callable[[Reserve], object]) -> None:
        """Fill the reserves, or release parts of them; failures are retried later."""
        if not self._reserve_bytes:
            return
        try:
            await self._ports.work.run(STORE_LANE, partial(use, self.store_reserve))
            for task in self.log_manager.reserve_tasks(use):
                await self._ports.work.run(task.lane, task)
        except (OSError, LogDirFailedError) as error:
            logger.warning("the reserve file of a disk cannot be used: %s", error)

    async def shut_down(self, replica_manager: ReplicaManager | None, broker_epoch: int) -> None:
        """Kafka's clean shutdown of the logs, on the lanes; without replicas nothing was written, and locks are freed.

        All jobs on a directory's lane, such as checkpoints, and syncs next to it end before its logs are closed.
        """
        manager = self.log_manager
        try:
            if replica_manager is not None:
                await replica_manager.end_flushes()
                work, online = self._ports.work, manager.held.online_dirs
                await asyncio.gather(*(work.run(log_dir.path, lambda: None) for log_dir in online))
                lanes = max(CLOSING_LANES, self._config.num_recovery_threads_per_data_dir)
                await self._on_many_lanes(manager.closing_tasks(), lanes)
                await replica_manager.run_on_lanes(manager.marking_tasks(broker_epoch))
                await self.use_reserves(Reserve.fill)
        finally:
            manager.close()

    async def _on_many_lanes(self, tasks: list[LaneTask], lanes: int) -> None:
        """Run tasks on several lanes a directory, for which Kafka has `num.recovery.threads.per.data.dir`."""
        work = self._ports.work
        results = await asyncio.gather(
            *(work.run(f"{task.lane}#{number % lanes}", task) for number, task in enumerate(tasks)),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, LogDirFailedError):
                self.log_manager.held.fail(result)
            elif isinstance(result, BaseException):
                raise result

"""The addresses of `metrics.listeners`: `/metrics`, `/health` and `/ready` for whoever reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config.keys.validators import ConfigError
from ..runtime.health import Answer, HealthServer, Request, Status, Text
from .exposition import Exposition
from .readings import Reading, Readings
from .request_meters import RequestMeters, Times

if TYPE_CHECKING:
    from ..apis.kafka_apis import KafkaApis
    from ..broker_state import BrokerState
    from ..config.broker_config import BrokerConfig
    from ..network.socket_server import SocketServer
    from .otlp_export import OtlpExport

LANE = "metrics"
FRESH_SECONDS = 1.0
"""For so long the same numbers are given to everybody: they are read once in this time, however many ask."""
LAG_SECONDS = 0.1
"""How often it is measured how late the loop is."""


class MetricsServer:
    """Measures from `start` to `close`. Loop-thread only."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, status: Status) -> None:
        self._config = config
        self._loop = loop
        self._servers = [
            HealthServer(host, port, status, loop, {("GET", "/metrics"): self._metrics}, is_open=True)
            for host, port in config.metrics_addresses
        ]
        self._exposition = Exposition()
        self._lag = Times()
        self.requests: RequestMeters
        """There are some from the start on."""
        self._timer: asyncio.TimerHandle | None = None
        self._export: OtlpExport | None = None
        self._state: BrokerState | None = None
        self._read: Callable[[], Coroutine[Any, Any, Reading]] | None = None
        self._reading: asyncio.Task[Reading] | None = None
        self._rendered: dict[str, tuple[float, asyncio.Task[tuple[str, bytes]]]] = {}
        """By what was accepted: since when, and the text or what it will be."""

    @property
    def urls(self) -> list[str]:
        """Where to ask, with the ports that were really bound."""
        return [server.url.replace("/health", "/metrics") for server in self._servers]

    async def start(self, state: BrokerState, apis: KafkaApis, sockets: SocketServer) -> None:
        """Begin to measure, to answer and to push. Raises OSError; ConfigError where what pushes is not installed."""
        requests, flushes = RequestMeters(state.ports.stopwatch, state.metadata.topic_name), Times()
        apis.surround(requests.around)
        apis.measure(requests.meter)
        state.replica_manager.on_flushed(flushes.add)
        readings = Readings(state, requests, flushes, self._lag)
        self._read = lambda: readings.take(sockets, apis.failures)
        self._state = state
        self.requests = requests
        for server in self._servers:
            await server.start()
        self._measure_lag(state.ports.stopwatch)
        self._export = self._exporting(state)

    def _exporting(self, state: BrokerState) -> OtlpExport | None:
        """What pushes, at work, if it is asked for."""
        endpoint = self._config.metrics_otlp_endpoint
        if not endpoint:
            return None
        from .otlp_export import OtlpExport

        try:
            export = OtlpExport(endpoint, self._config.metrics_otlp_interval_ms, self, state)
        except ImportError as error:
            reason = f"needs `pip install 'barnabas[otlp]'` ({error})"
            raise ConfigError("metrics.otlp.endpoint", endpoint, reason) from None
        export.start()
        return export

    async def close(self) -> None:
        """Stop; whoever still waits for an answer gets none."""
        if self._timer is not None:
            self._timer.cancel()
        if self._export is not None:
            await self._export.close()
        for server in self._servers:
            await server.close()
        tasks: list[asyncio.Task[Any]] = [task for _, task in self._rendered.values()]
        tasks += [] if self._reading is None else [self._reading]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def reading(self) -> Reading:
        """All there is; who asks while it is read gets the same: two readings at once would count twice."""
        assert self._read is not None, "not started"
        if self._reading is None or self._reading.done():
            self._reading = self._loop.create_task(self._read())
        return await asyncio.shield(self._reading)

    def _measure_lag(self, stopwatch: Callable[[], float], due: float | None = None) -> None:
        now = stopwatch()
        self.requests.slow.look_at_clock(now)
        if due is not None:
            self._lag.add(max(0.0, now - due))
        self._timer = self._loop.call_later(LAG_SECONDS, self._measure_lag, stopwatch, now + LAG_SECONDS)

    async def _metrics(self, request: Request) -> Answer | Text:
        accept = "openmetrics" if "application/openmetrics-text" in request.headers.get("accept", "") else "text"
        since, rendering = self._rendered.get(accept, (0.0, None))
        if rendering is None or (rendering.done() and self._loop.time() - since >= FRESH_SECONDS):
            rendering = self._loop.create_task(self._render(request.headers.get("accept", "")))
            self._rendered[accept] = self._loop.time(), rendering
        content_type, body = await asyncio.shield(rendering)
        return Text("200 OK", content_type, body)

    async def _render(self, accept: str) -> tuple[str, bytes]:
        assert self._state is not None, "not started"
        reading, telemetry = await self.reading(), self._state.telemetry
        clients = [] if telemetry is None else telemetry.received()
        return await self._state.ports.work.run(LANE, partial(self._exposition.render, reading, clients, accept))

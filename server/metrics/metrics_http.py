"""The HTTP server of `metrics.listeners`: `/metrics`, `/health` and `/ready` without authentication."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config.keys.validators import ConfigError
from ..runtime.health import HealthServer, HttpRequest, JsonResponse, Status, TextResponse
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
"""Responses are cached for this time: metrics are read once, for any number of readers."""
LAG_SECONDS = 0.1
"""The interval of measurements of the loop's lag."""


class MetricsServer:
    """The metrics server, which measures from `start` to `close`. Used on the loop's thread only."""

    def __init__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, status: Status, machine_name: str = ""
    ) -> None:
        """`machine_name` is the host name under which readers may reach this machine."""
        self._config = config
        self._loop = loop
        names = {machine_name, *config.metrics_allowed_hosts}
        names |= {host for host, _ in config.metrics_addresses}
        names |= {listener.advertised_host for listener in config.listeners}
        self._servers = [
            HealthServer(host, port, status, loop, {("GET", "/metrics"): self._metrics}, names=names - {""})
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
        """The time of the read and the text or its future, by accepted content type."""

    @property
    def urls(self) -> list[str]:
        """The bound addresses, with their real ports."""
        return [server.url.replace("/health", "/metrics") for server in self._servers]

    async def start(self, state: BrokerState, apis: KafkaApis, sockets: SocketServer) -> None:
        """Begin to measure, serve and push. Raises OSError, and ConfigError if the OTLP exporter is not installed."""
        requests, flushes = RequestMeters(state.ports.stopwatch, state.metadata.topic_name), Times()
        apis.measure(requests)
        apis.count_errors(requests.errors)
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
        """Return the started exporter, None if it is not configured."""
        endpoint = self._config.metrics_otlp_endpoint
        if not endpoint:
            return None
        from .otlp_export import OtlpExport

        try:
            export = OtlpExport(endpoint, self._config.metrics_otlp_interval_ms, self.reading, state)
        except ImportError as error:
            reason = f"needs `pip install 'barnabas[otlp]'` ({error})"
            raise ConfigError("metrics.otlp.endpoint", endpoint, reason) from None
        export.start()
        return export

    async def close(self) -> None:
        """Stop; requests in progress get no response."""
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
        """Return all metrics; concurrent requests share one read, because two would count twice."""
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

    async def _metrics(self, request: HttpRequest) -> JsonResponse | TextResponse:
        accept = "openmetrics" if "application/openmetrics-text" in request.headers.get("accept", "") else "text"
        since, rendering = self._rendered.get(accept, (0.0, None))
        if rendering is None or (rendering.done() and self._loop.time() - since >= FRESH_SECONDS):
            rendering = self._loop.create_task(self._render(request.headers.get("accept", "")))
            self._rendered[accept] = self._loop.time(), rendering
        content_type, body = await asyncio.shield(rendering)
        return TextResponse("200 OK", content_type, body)

    async def _render(self, accept: str) -> tuple[str, bytes]:
        assert self._state is not None, "not started"
        reading, telemetry = await self.reading(), self._state.telemetry
        clients = [] if telemetry is None else telemetry.received()
        return await self._state.ports.work.run(LANE, partial(self._exposition.render, reading, clients, accept))

"""Clients that push their metrics at intervals (KIP-714; Kafka's ClientMetricsManager).

A client requests its subscription, which registers it, and pushes the subscribed metrics at the interval. In addition
to Kafka's rules, a connection belongs to one client at a time: another client instance on the same connection replaces
the first and inherits its waiting time, so that no client pushes more often under many instance ids.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING
from uuid import UUID

from ...common.uuid_text import new_uuid, uuid_text
from ...protocol.checksum import crc32c
from ...protocol.compression import Compression
from ...protocol.errors import ErrorCode, KafkaError
from .otlp_metrics import LONGEST_VALUE, Labels, read_metrics
from .received_metrics import ClientMetrics, ReceivedMetrics
from .subscriptions import RequestedMetrics, Subscriptions

if TYPE_CHECKING:
    from ...protocol.messages.push_telemetry import PushTelemetryRequest
    from ..config.broker_config import BrokerConfig
    from ..config.dynamic_config import DynamicConfig
    from ..runtime.ports import Work
    from ..security.session import Session

LANE = "telemetry"
MAX_CLIENTS = 16_384
"""Kafka's limit. A further client replaces the least recently active one, which has to register again."""
LEAST_EXPIRY_SECONDS = 60.0
EXPIRY_INTERVALS = 3
"""A client is forgotten that was silent for three intervals, and for a minute at least."""
SWEEP_SECONDS = 10.0
RESERVED = frozenset({UUID(int=0), UUID(int=1)})
"""Ids that mean something else: none, and the topic of a KRaft quorum."""
NEVER = float("-inf")
_MAY_ASK_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_CODECS = frozenset(Compression)


def can_be_read() -> bool:
    """Return whether the decoder of pushed metrics is installed: `pip install barnabas[telemetry]`."""
    try:
        return find_spec("opentelemetry.proto.metrics.v1") is not None
    except ModuleNotFoundError:
        return False


class ClientMetricsInstance:
    """The state of one client."""

    __slots__ = (
        "attributes",
        "id",
        "last_error",
        "last_farewell",
        "last_get",
        "last_push",
        "requested",
        "seen",
        "subscription",
        "terminating",
        "version",
    )  # fmt: skip

    def __init__(self, client: UUID, attributes: dict[str, str], now: float) -> None:
        self.id = client
        self.attributes = attributes
        """The client's attributes, by their names in subscriptions."""
        self.seen = now
        self.requested = RequestedMetrics((), 0)
        self.version = -1
        """The version of the subscriptions from which `requested` was computed."""
        self.subscription = 0
        self.last_get = self.last_push = self.last_farewell = NEVER
        self.last_error = ErrorCode.NONE
        self.terminating = False

    @property
    def interval(self) -> float:
        """Seconds."""
        return self.requested.interval_ms / 1000

    def subscribe(self, requested: RequestedMetrics, version: int) -> None:
        """Set the requested metrics, and allow the client to fetch them immediately."""
        self.requested, self.version = requested, version
        text = f"{', '.join(requested.metrics)}{requested.interval_ms}"
        mixed = crc32c(text.encode()) ^ (self.id.int ^ self.id.int >> 64) & 0xFFFFFFFF
        self.subscription = mixed - (mixed >> 31 << 32)
        self.last_get = self.last_push = NEVER
        self.terminating = False

    def may_get(self, now: float) -> bool:
        """Return whether the client may request its subscription now, and record the request if so."""
        if now - max(self.last_get, self.last_push) < self.interval:
            return False
        self.last_get = now
        return True

    def may_push(self, now: float, *, is_last: bool) -> bool:
        """Return whether the client may push now, and record the push if so.

        A push is allowed after a request of the subscription, or an interval after the last push. A terminating push
        may be early, but not within an interval of another early one, so that no client repeats it.
        """
        if self.last_get > self.last_push or now - self.last_push >= self.interval:
            self.last_push = now
            return True
        if is_last and now - self.last_farewell >= self.interval:
            self.last_farewell = now
            return True
        return False

    def is_expired(self, now: float) -> bool:
        return now - self.seen > max(LEAST_EXPIRY_SECONDS, EXPIRY_INTERVALS * self.interval)


class ClientMetricsManager:
    """The subscriptions and the last metrics of clients. Owned by the broker; used on the loop's thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicConfig,
        *,
        now: Callable[[], float],
        token_bytes: Callable[[int], bytes],
        work: Work,
    ) -> None:
        """`now` is in seconds and never decreases."""
        self._config = config
        self._subscriptions = Subscriptions(dynamic_config)
        self._received = ReceivedMetrics()
        self._clients: dict[UUID, ClientMetricsInstance] = {}
        self._swept = NEVER
        self._now = now
        self._token_bytes = token_bytes
        self._work = work

    def received(self) -> list[ClientMetrics]:
        """Return the pushed metrics of all clients that have not expired."""
        self._sweep(self._now())
        return self._received.all()

    def subscriptions_of(self, session: Session, client_id: str | None, client: UUID) -> ClientMetricsInstance:
        """Return the state of a client, which may have no id yet. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        now = self._now()
        known = self._known(client, now) or self._new(session, client_id, client, now)
        if not known.may_get(now) and known.last_error not in _MAY_ASK_AGAIN:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"Request from the client [{known.id}] arrived before the next push interval time",
            )
        known.last_error = ErrorCode.NONE
        return known

    async def push(self, session: Session, request: PushTelemetryRequest) -> None:
        """Store the pushed metrics of a client. Raises KafkaError."""
        now = self._now()
        if request.client_instance_id in RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid request from the client, invalid client instance id")
        client = self._known(request.client_instance_id, now)
        if client is None:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "Unknown client subscription id for the client")
        try:
            self._check(client, request, now)
            if request.metrics:
                read = partial(
                    read_metrics, request.compression_type, request.metrics, self._config.telemetry_max_bytes
                )
                pushed = await self._work.run(LANE, read)
                if self._clients.get(client.id) is client:
                    labels, about = _told(client)
                    self._received.take(client.id, labels, about, host=session.client_host, pushed=pushed)
        except KafkaError as error:
            client.last_error = error.code
            raise
        client.last_error = ErrorCode.NONE

    def _check(self, client: ClientMetricsInstance, request: PushTelemetryRequest, now: float) -> None:
        was_terminating, client.terminating = client.terminating, request.terminating
        if was_terminating:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Client sent the previous request with state terminating to TRUE"
            )
        if not client.may_push(now, is_last=request.terminating):
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"Request from the client [{client.id}] arrived before the next push interval time",
            )
        if request.subscription_id != client.subscription:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "Unknown client subscription id for the client")
        if request.compression_type not in _CODECS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type [{request.compression_type}]"
            )
        most = self._config.telemetry_max_bytes
        if len(request.metrics) > most:
            raise KafkaError(
                ErrorCode.TELEMETRY_TOO_LARGE, f"Telemetry request is larger than the maximum allowed size [{most}]"
            )

    def _known(self, client: UUID, now: float) -> ClientMetricsInstance | None:
        """Return a registered client, with its current subscription."""
        known = self._clients.pop(client, None)
        if known is None:
            return None
        self._clients[client] = known  # the most recently seen client is the last one
        known.seen = now
        if known.version != self._subscriptions.version:
            known.subscribe(self._subscriptions.requested_metrics(known.attributes), self._subscriptions.version)
        return known

    def _new(self, session: Session, client_id: str | None, client: UUID, now: float) -> ClientMetricsInstance:
        self._sweep(now)
        before = None if session.telemetry_client is None else self._forget(session.telemetry_client)
        while client in RESERVED or client in self._clients:
            client = new_uuid(self._token_bytes)
        new = ClientMetricsInstance(client, _attributes(session, client_id, client), now)
        new.subscribe(self._subscriptions.requested_metrics(new.attributes), self._subscriptions.version)
        if before is not None:
            new.last_get, new.last_push, new.last_farewell = before.last_get, before.last_push, before.last_farewell
        if len(self._clients) >= MAX_CLIENTS:
            self._forget(next(iter(self._clients)))
        self._clients[client] = new
        session.telemetry_client = client
        return new

    def _forget(self, client: UUID) -> ClientMetricsInstance | None:
        self._received.forget(client)
        return self._clients.pop(client, None)

    def _sweep(self, now: float) -> None:
        if now - self._swept >= SWEEP_SECONDS:
            self._swept = now
            for expired in [client.id for client in self._clients.values() if client.is_expired(now)]:
                self._forget(expired)


def _attributes(session: Session, client_id: str | None, client: UUID) -> dict[str, str]:
    name, version = session.software
    return {
        "client_id": (client_id or "")[:LONGEST_VALUE],
        "client_instance_id": uuid_text(client),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": session.client_host,
        "client_source_port": str(session.client_port),
    }


def _told(client: ClientMetricsInstance) -> tuple[Labels, Labels]:
    """Return the labels of each of a client's numbers, and the labels that are exported once."""
    pairs = tuple(client.attributes.items())
    return pairs[:2], pairs[2:]

"""The context of one request, which its handler uses to check ACLs and to respond."""

from __future__ import annotations

from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ...common.room_logger import room_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...protocol.acls import AclOperation, AclResourceType
    from ...protocol.errors import KafkaError
    from ...protocol.headers import RequestHeader
    from ..config.listeners import ListenerConfig
    from ..quotas.request_quota_usage import RequestQuotaUsage
    from ..replication.delayed_fetch import DelayedFetch, LongFetch
    from ..security.authorizer import Authorizer
    from ..security.session import Session
    from .handlers.fetch import PendingFetch
    from .large_requests import RequestAdmission

logger = room_logger("apis")


class Channel(Protocol):
    """The connection of a request. Tests and fault injection have other implementations than `network.Connection`."""

    session: Session
    on_close: Callable[[], None] | None
    """Called when the connection is closed while its request waits."""
    on_lost: Callable[[], None] | None
    """Called once when the connection is closed, whichever request it handles."""

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed: `on_close` is not called any more."""

    def close(self) -> None:
        """Close the connection without a response."""

    def close_after(self, seconds: float) -> None:
        """Handle no further request, and close the connection after this time."""

    def out_of_memory(self, what: str) -> None:
        """Close the connection without a response, and log the reason."""

    def mute(self, seconds: float) -> None:
        """Handle no further request for this time after the response to the current request."""

    def keep_memory(self) -> Callable[[], None]:
        """Count the memory of the current request until the returned function is called, even after the response."""

    def enlarge_send_buffer(self, size: int) -> None:
        """Use a send buffer of this size, unless the system determines the size."""


Handle: TypeAlias = "Callable[[RequestContext, Any], Any]"
"""Handles a request: context and request."""
Respond: TypeAlias = "Callable[[RequestContext, Any], None]"
"""Encodes and sends a response; None if the client expects none."""
ResponseWrapper: TypeAlias = "Callable[[Respond, RequestContext, Any], None]"
"""Called with the function that sends a response, the context and the response: None if the client expects none."""


class DeniedItems(NamedTuple):
    """The items of one list that were removed from a request, as a request with only these items, and their error."""

    field: str
    request: Any
    error: KafkaError


class RequestContext:
    """One request on one connection (Kafka's RequestChannel.Request). It gets exactly one response: the return value of
    its handler, or that of a later `respond`. Used on the event loop's thread only.
    """

    __slots__ = (
        "_authorizer",
        "_respond",
        "admission",
        "api_key",
        "api_version",
        "began",
        "channel",
        "client_id",
        "correlation_id",
        "denied",
        "fetch",
        "is_answered",
        "is_large",
        "is_replica_fetch",
        "quota_usage",
        "size",
    )

    def __init__(
        self,
        header: RequestHeader,
        channel: Channel,
        respond: Respond,
        size: int = 0,
        authorizer: Authorizer | None = None,
        admission: RequestAdmission | None = None,
        is_large: bool = False,
    ) -> None:
        self.api_key, self.api_version, self.correlation_id, self.client_id = header
        self.channel = channel
        self.size = size
        """Bytes of the request frame."""
        self.admission = admission
        """The part of the memory budget that a large request uses; None for other requests."""
        self.quota_usage: RequestQuotaUsage | None = None
        """The use of the client's quotas; None while no quotas are set."""
        self.denied: tuple[DeniedItems, ...] = ()
        """The items without an ACL, which the handler does not get."""
        self.is_answered = False
        """Whether `respond` was called."""
        self.is_replica_fetch = False
        """Whether it is the fetch of a follower."""
        self.is_large = is_large
        """Whether its response is encoded in a lane, as it may be large."""
        self.fetch: tuple[PendingFetch, DelayedFetch | LongFetch | None] | None = None
        """A fetch, which equal or repeated requests may continue, and its wait. `KafkaApis` takes them from here."""
        self.began: float
        """The time at which its handler was called; set only while the request log is on."""
        self._respond = respond
        self._authorizer = authorizer

    @property
    def session(self) -> Session:
        """The session of the connection: principal, address and listener."""
        return self.channel.session

    @property
    def client_host(self) -> str:
        return self.channel.session.client_host

    @property
    def listener(self) -> ListenerConfig:
        """The listener of the connection. Responses contain the endpoints of this listener."""
        return self.channel.session.listener

    @property
    def has_authorizer(self) -> bool:
        """Whether ACLs are checked at all."""
        return self._authorizer is not None

    def is_authorized(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Return whether the client is authorized for a resource that its request does not name."""
        return self._authorizer is None or self._authorizer.authorize(self.session, operation, resource_type, name)

    def is_authorized_for_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether any resource of the type may exist that the client is authorized for (KIP-679)."""
        return self._authorizer is None or self._authorizer.authorize_some(self.session, operation, resource_type)

    def begin_again(self, correlation_id: int, respond: Respond) -> None:
        """Become the context of the next request of the connection, which differs only in its correlation id."""
        self.correlation_id = correlation_id
        self._respond = respond
        self.is_answered = False

    def respond(self, response: Any) -> None:
        """Encode and send the response; the connection then handles its next request."""
        self.is_answered = True
        self._respond(self, response)

    def respond_encoded(self, frame: bytes) -> None:
        """Send an encoded response, as `respond`, to a request that no interceptor handles."""
        self.is_answered = True
        connection: Any = self.channel
        connection.send([frame], len(frame))

    def wrap_response(self, wrapper: ResponseWrapper) -> None:
        """Pass the response to `wrapper` instead of sending it."""
        self._respond = partial(wrapper, self._respond)

    def handle_and_wrap_response(self, handle: Handle, request: Any, wrapper: ResponseWrapper) -> Any:
        """Call the handler, with its response passed to `wrapper`; return as a handler returns."""
        self.wrap_response(wrapper)
        response = handle(self, request)
        if response is None or isinstance(response, CoroutineType):
            return response
        self.respond(response)
        return None

    def close_after_response(self) -> None:
        """Close the connection when the response is sent."""
        self.wrap_response(_respond_and_close)

    def finish(self, response: Any, error: BaseException | None) -> None:
        """Respond with the result of sliced or lane work. Log an error of it, and close the connection."""
        if error is not None:
            logger.error("API key %d version %d failed", self.api_key, self.api_version, exc_info=error)
            self.close()
        else:
            self.respond(response)

    def release(self) -> None:
        """Stop counting a large request: the client has received the response, or there is none."""
        if self.admission is not None:
            self.admission.release()
            self.admission = None

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call back when the connection is closed before the response, immediately if it is closed already."""
        if self.quota_usage is not None:
            callback = partial(self._abandon, self.quota_usage, callback)
        self.channel.on_close = callback
        if self.channel.is_lost:
            callback()

    def _abandon(self, quota_usage: RequestQuotaUsage, callback: Callable[[], None]) -> None:
        """Settle the quotas of a request whose connection is closed before the response: its work is done."""
        callback()
        quota_usage.settle(self.api_key)

    def mute(self, seconds: float) -> None:
        """Handle no further request of the connection for this time after the response."""
        self.channel.mute(seconds)

    def throttle(self, seconds: float) -> None:
        """Throttle the client for this time after the response, or longer if its quotas on this broker require it."""
        if self.quota_usage is None:
            self.mute(seconds)
        else:
            self.quota_usage.throttle(seconds)

    def close(self) -> None:
        """Close the connection without a response.

        The request is charged like any other. A client over its quota sees the close when its throttle time is over:
        otherwise requests that fail without a response would be free of quotas.
        """
        self.release()
        wait = 0.0 if self.quota_usage is None else self.quota_usage.settle(self.api_key)
        if wait > 0:
            self.channel.close_after(wait)
        else:
            self.channel.close()

    def out_of_memory(self, reason: str) -> None:
        """Close the connection: there is no memory for its request. Other connections are served."""
        self.release()
        text = f"no memory for a request with API key {self.api_key} version {self.api_version}"
        self.channel.out_of_memory(f"{text}: {reason}" if reason else text)


def _respond_and_close(respond: Respond, context: RequestContext, response: Any) -> None:
    respond(context, response)
    context.close()

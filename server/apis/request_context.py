"""What a handler knows about the request it answers, and how it answers."""

from __future__ import annotations

from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...protocol.room_logger import room_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...protocol.acls import AclOperation, AclResourceType
    from ...protocol.headers import RequestHeader
    from ..config.listeners import ListenerConfig
    from ..quotas.charge import Charge
    from ..security.authorizer import Authorizer
    from ..security.session import Session
    from .rights import Refusal

logger = room_logger("apis")


class Channel(Protocol):
    """The connection as a handler sees it."""

    session: Session
    on_close: Callable[[], None] | None
    """Called when the client goes away while its request waits."""

    @property
    def is_lost(self) -> bool:
        """Whether the client has gone away: nobody will be called for that any more."""

    def close(self) -> None:
        """Close without an answer."""

    def mute(self, seconds: float) -> None:
        """Look at no further request for that long once the one in hand is answered."""


Change: TypeAlias = "Callable[[Callable[[RequestContext, Any], None], RequestContext, Any], None]"
"""Called with what sends an answer, the request's context, and the answer: None where the client wants none."""


class RequestContext:
    """One request on one connection, answered exactly once: by the handler's return value or by `respond` later."""

    __slots__ = (
        "_authorizer",
        "_respond",
        "api_key",
        "api_version",
        "began",
        "channel",
        "charge",
        "client_id",
        "correlation_id",
        "is_answered",
        "is_followers",
        "is_long",
        "refusals",
    )

    def __init__(
        self,
        header: RequestHeader,
        channel: Channel,
        respond: Callable[[RequestContext, Any], None],
        charge: Charge | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.api_key, self.api_version, self.correlation_id, self.client_id = header
        self.channel = channel
        self.charge = charge
        """What it owes to the client's quotas; None while no quotas are set."""
        self.refusals: tuple[Refusal, ...] = ()
        """What of the request its client may not do; no handler sees it."""
        self.is_answered = False
        """Whether `respond` was called."""
        self.is_followers = False
        """Whether a broker asks that copies what it reads, and no reader."""
        self.is_long = False
        """Whether its answer is encoded beside the loop, as there may be much of it."""
        self.began: float
        """When its handler began, by the clock of whoever times requests; not set if nobody does."""
        self._respond = respond
        self._authorizer = authorizer

    @property
    def session(self) -> Session:
        """Who asks, and by which listener they came."""
        return self.channel.session

    @property
    def client_host(self) -> str:
        return self.channel.session.client_host

    @property
    def listener(self) -> ListenerConfig:
        """The listener that the request came in on; its advertised address is the one to tell this client."""
        return self.channel.session.listener

    @property
    def is_guarded(self) -> bool:
        """Whether an authorizer decides what clients may do."""
        return self._authorizer is not None

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        """Whether the client may do that to a resource that its request does not name and the answer would mention."""
        return self._authorizer is None or self._authorizer.authorize(self.session, operation, resource_type, name)

    def may_some(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether there may be a resource of the type to which the client may do that."""
        return self._authorizer is None or self._authorizer.authorize_some(self.session, operation, resource_type)

    def respond(self, response: Any) -> None:
        """Encode and send the response, and let the connection go on with its next request."""
        self.is_answered = True
        self._respond(self, response)

    def answer_through(self, change: Change) -> None:
        """Have the answer that is yet to come go through `change`."""
        self._respond = partial(change, self._respond)

    def handle_through(self, handle: Callable[[RequestContext, Any], Any], request: Any, change: Change) -> Any:
        """Have the request handled, and its answer go through `change`; returns what a handler returns."""
        self.answer_through(change)
        answer = handle(self, request)
        if answer is None or isinstance(answer, CoroutineType | GeneratorType):
            return answer
        self.respond(answer)
        return None

    def finish(self, response: Any, error: BaseException | None) -> None:
        """Respond with what long work came to."""
        if error is not None:
            logger.error("API key %d version %d failed", self.api_key, self.api_version, exc_info=error)
            self.close()
        else:
            self.respond(response)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call back if the client goes away before it is answered, or has gone away already."""
        self.channel.on_close = callback
        if self.channel.is_lost:
            callback()

    def mute(self, seconds: float) -> None:
        """Look at no further request of the connection for that long once this one is answered."""
        self.channel.mute(seconds)

    def close(self) -> None:
        """Close the connection instead of answering."""
        self.channel.close()

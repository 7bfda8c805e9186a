"""The server's side of one connection without I/O: the order of requests, and the progress of authentication.

**One request at a time.** As Kafka mutes a socket while its request is processed, the next frame is not read before the
present request is answered, so responses are sent in the order of the requests. `SERVING` has the legal events of each
state:

    OPEN             the next request may be handled
    HANDLING         a request is being handled
    MUTED            no request is read for a while: the client is over its quota (KIP-219)
    HANDLING_MUTED   the same, while a request is being handled
    FROZEN           no more requests are read: the broker is about to stop
    HANDLING_FROZEN  the same, while a request is handled, which is still answered
    CLOSING          pending responses are sent, then the socket is closed
    CLOSED           closed permanently; later responses are dropped

A shell that handles hundreds of thousands of requests per second need not call this module for each of them: `OPEN` is
the only state that is false, so that `if not connection.state` is true if a frame may be handled; it then stores
`HANDLING`, and after the response `ON_ANSWER[state]`.

**Authentication** is `AUTHENTICATING`. A connection of a listener with SASL starts in `HANDSHAKE_OR_VERSIONS_REQUEST`,
others in `COMPLETE`, the only state that is false. `AWAITED` has the requests that are legal in the other states.

Source: Kafka's SocketServer, KafkaChannel and SaslServerAuthenticator; KIP-43 and KIP-152.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto

from .apis import ApiKey


class ServerState(IntEnum):
    """States of a served connection; the module's docstring describes them."""

    OPEN = 0
    HANDLING = 1
    MUTED = 2
    HANDLING_MUTED = 3
    FROZEN = 4
    HANDLING_FROZEN = 5
    CLOSING = 6
    CLOSED = 7


class ServerEvent(Enum):
    """Events of a served connection."""

    REQUEST = auto()
    ANSWER = auto()
    """The request is answered, or requires no response."""
    MUTE = auto()
    UNMUTE = auto()
    FREEZE = auto()
    CLOSE = auto()
    LOST = auto()


SERVING: dict[ServerState, dict[ServerEvent, ServerState]] = {
    ServerState.OPEN: {
        ServerEvent.REQUEST: ServerState.HANDLING,
        ServerEvent.MUTE: ServerState.MUTED,
        ServerEvent.FREEZE: ServerState.FROZEN,
        ServerEvent.CLOSE: ServerState.CLOSING,
        ServerEvent.LOST: ServerState.CLOSED,
    },
    ServerState.HANDLING: {
        ServerEvent.ANSWER: ServerState.OPEN,
        ServerEvent.MUTE: ServerState.HANDLING_MUTED,
        ServerEvent.FREEZE: ServerState.HANDLING_FROZEN,
        ServerEvent.CLOSE: ServerState.CLOSING,
        ServerEvent.LOST: ServerState.CLOSED,
    },
    ServerState.MUTED: {
        ServerEvent.MUTE: ServerState.MUTED,
        ServerEvent.UNMUTE: ServerState.OPEN,
        ServerEvent.FREEZE: ServerState.FROZEN,
        ServerEvent.CLOSE: ServerState.CLOSING,
        ServerEvent.LOST: ServerState.CLOSED,
    },
    ServerState.HANDLING_MUTED: {
        ServerEvent.ANSWER: ServerState.MUTED,
        ServerEvent.MUTE: ServerState.HANDLING_MUTED,
        ServerEvent.UNMUTE: ServerState.HANDLING,
        ServerEvent.FREEZE: ServerState.HANDLING_FROZEN,
        ServerEvent.CLOSE: ServerState.CLOSING,
        ServerEvent.LOST: ServerState.CLOSED,
    },
    ServerState.FROZEN: {
        ServerEvent.MUTE: ServerState.FROZEN,
        ServerEvent.UNMUTE: ServerState.FROZEN,
        ServerEvent.FREEZE: ServerState.FROZEN,
        ServerEvent.CLOSE: ServerState.CLOSING,
        ServerEvent.LOST: ServerState.CLOSED,
    },
    ServerState.HANDLING_FROZEN: {
        ServerEvent.ANSWER: ServerState.FROZEN,
        ServerEvent.MUTE: ServerState.HANDLING_FROZEN,
        ServerEvent.UNMUTE: ServerState.HANDLING_FROZEN,
        ServerEvent.FREEZE: ServerState.HANDLING_FROZEN,
        ServerEvent.CLOSE: ServerState.CLOSING,
        ServerEvent.LOST: ServerState.CLOSED,
    },
    ServerState.CLOSING: {
        **dict.fromkeys(ServerEvent, ServerState.CLOSING),
        ServerEvent.LOST: ServerState.CLOSED,
    },
    ServerState.CLOSED: dict.fromkeys(ServerEvent, ServerState.CLOSED),
}

ON_ANSWER: tuple[ServerState, ...] = tuple(SERVING[state].get(ServerEvent.ANSWER, state) for state in ServerState)
"""The state after a response, by the state before it."""


class SaslState(IntEnum):
    """Progress of a client's authentication: Kafka's SaslServerAuthenticator.SaslState."""

    COMPLETE = 0
    HANDSHAKE_OR_VERSIONS_REQUEST = 1
    """Before SaslHandshake. ApiVersions does not change the state (in Kafka it does): clients may repeat it."""
    AUTHENTICATE = 2
    """SASL messages in SaslAuthenticate requests."""
    AUTHENTICATE_RAW = 3
    """SASL messages in frames without headers, after SaslHandshake 0."""
    FAILED = 4


class SaslEvent(Enum):
    """Events of an authentication."""

    MECHANISM = auto()
    """SaslHandshake 1 with an enabled mechanism."""
    MECHANISM_BARE = auto()
    """SaslHandshake 0 with an enabled mechanism."""
    CHALLENGE = auto()
    SUCCESS = auto()
    FAILURE = auto()


AUTHENTICATING: dict[SaslState, dict[SaslEvent, SaslState]] = {
    SaslState.HANDSHAKE_OR_VERSIONS_REQUEST: {
        SaslEvent.MECHANISM: SaslState.AUTHENTICATE,
        SaslEvent.MECHANISM_BARE: SaslState.AUTHENTICATE_RAW,
        SaslEvent.FAILURE: SaslState.FAILED,
    },
    SaslState.AUTHENTICATE: {
        SaslEvent.CHALLENGE: SaslState.AUTHENTICATE,
        SaslEvent.SUCCESS: SaslState.COMPLETE,
        SaslEvent.FAILURE: SaslState.FAILED,
    },
    SaslState.AUTHENTICATE_RAW: {
        SaslEvent.CHALLENGE: SaslState.AUTHENTICATE_RAW,
        SaslEvent.SUCCESS: SaslState.COMPLETE,
        SaslEvent.FAILURE: SaslState.FAILED,
    },
    SaslState.FAILED: {},
    # Once more, before the session expires (KIP-368).
    SaslState.COMPLETE: {SaslEvent.MECHANISM: SaslState.AUTHENTICATE, SaslEvent.FAILURE: SaslState.FAILED},
}

AWAITED: dict[SaslState, frozenset[ApiKey]] = {
    SaslState.HANDSHAKE_OR_VERSIONS_REQUEST: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    SaslState.AUTHENTICATE: frozenset({ApiKey.SASL_AUTHENTICATE}),
    SaslState.AUTHENTICATE_RAW: frozenset(),
    SaslState.FAILED: frozenset(),
}
"""The requests that are legal before authentication; afterwards all are."""

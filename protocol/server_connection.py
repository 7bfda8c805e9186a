"""The server's side of one connection without I/O: whose turn it is, and how far the client has proved who it is.

**One request at a time.** As Kafka mutes a socket while its request is processed, the next frame is not looked at
before the one in hand is answered: so answers leave in the order of the requests. What may happen when is `SERVING`:

    OPEN             the next request may be handled
    HANDLING         a request is in hand
    MUTED            nothing is looked at for a while: the client is over its quota (KIP-219)
    HANDLING_MUTED   the same, with a request in hand
    FROZEN           nothing is looked at any more: the broker is about to stop
    HANDLING_FROZEN  the same, with a request in hand that is still answered
    CLOSING          what is ready is sent, then the socket is closed
    CLOSED           of no more use; an answer that comes now is for nobody

A shell that handles hundreds of thousands of requests a second need not call anything here for each of them: `OPEN` is
the only state that is false, so that `if not connection.state` says whether a frame may be handled; it then stores
`HANDLING`, and when that is answered `ON_ANSWER[state]`.

**Authentication** is `AUTHENTICATING`. A listener with SASL begins it with `UNKNOWN`, any other is `ADMITTED` from the
beginning (the only state that is false). `AWAITED` says which requests are legal meanwhile.

Source: Kafka's SocketServer, KafkaChannel and SaslServerAuthenticator; KIP-43 and KIP-152.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto

from .apis import ApiKey


class ServerState(IntEnum):
    """Where a served connection stands; the module's docstring says what each means."""

    OPEN = 0
    HANDLING = 1
    MUTED = 2
    HANDLING_MUTED = 3
    FROZEN = 4
    HANDLING_FROZEN = 5
    CLOSING = 6
    CLOSED = 7


class ServerEvent(Enum):
    """What happens to a served connection."""

    REQUEST = auto()
    ANSWER = auto()
    """The request in hand is answered, or wants no answer."""
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
"""The state after an answer, by the state before it."""


class AuthenticationState(IntEnum):
    """How far a client has proved who it is."""

    ADMITTED = 0
    UNKNOWN = 1
    """Nothing came yet."""
    VERSIONS_TOLD = 2
    CHALLENGED = 3
    """SASL messages in SaslAuthenticate requests."""
    BARE = 4
    """SASL messages in frames without headers, after SaslHandshake 0."""
    REFUSED = 5


class AuthenticationEvent(Enum):
    """What moves an authentication on."""

    VERSIONS = auto()
    """The broker's versions are told; a client whose ApiVersions was of too new a version asks again before that."""
    MECHANISM = auto()
    """SaslHandshake 1 names one that the listener has."""
    MECHANISM_BARE = auto()
    """SaslHandshake 0 does."""
    CHALLENGE = auto()
    SUCCESS = auto()
    FAILURE = auto()


AUTHENTICATING: dict[AuthenticationState, dict[AuthenticationEvent, AuthenticationState]] = {
    AuthenticationState.UNKNOWN: {
        AuthenticationEvent.VERSIONS: AuthenticationState.VERSIONS_TOLD,
        AuthenticationEvent.MECHANISM: AuthenticationState.CHALLENGED,
        AuthenticationEvent.MECHANISM_BARE: AuthenticationState.BARE,
        AuthenticationEvent.FAILURE: AuthenticationState.REFUSED,
    },
    AuthenticationState.VERSIONS_TOLD: {
        AuthenticationEvent.MECHANISM: AuthenticationState.CHALLENGED,
        AuthenticationEvent.MECHANISM_BARE: AuthenticationState.BARE,
        AuthenticationEvent.FAILURE: AuthenticationState.REFUSED,
    },
    AuthenticationState.CHALLENGED: {
        AuthenticationEvent.CHALLENGE: AuthenticationState.CHALLENGED,
        AuthenticationEvent.SUCCESS: AuthenticationState.ADMITTED,
        AuthenticationEvent.FAILURE: AuthenticationState.REFUSED,
    },
    AuthenticationState.BARE: {
        AuthenticationEvent.CHALLENGE: AuthenticationState.BARE,
        AuthenticationEvent.SUCCESS: AuthenticationState.ADMITTED,
        AuthenticationEvent.FAILURE: AuthenticationState.REFUSED,
    },
    AuthenticationState.REFUSED: {},
    # Once more, before the session is over (KIP-368).
    AuthenticationState.ADMITTED: {AuthenticationEvent.MECHANISM: AuthenticationState.CHALLENGED},
}

AWAITED: dict[AuthenticationState, frozenset[ApiKey]] = {
    AuthenticationState.UNKNOWN: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    AuthenticationState.VERSIONS_TOLD: frozenset({ApiKey.SASL_HANDSHAKE}),
    AuthenticationState.CHALLENGED: frozenset({ApiKey.SASL_AUTHENTICATE}),
    AuthenticationState.BARE: frozenset(),
    AuthenticationState.REFUSED: frozenset(),
}
"""The requests that are legal before a client is admitted; after that all are."""

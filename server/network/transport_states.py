"""What a connection's transport is about, as tables: answers that are on their way out, and bytes that come in.

**Out.** A client gets its next answer when it has taken the one before, so that there is never more than one to hold.

    FREE      everything that was to be sent is sent
    UNTAKEN   the client has not taken it yet
    QUEUED    the same, and behind it an answer waits that has stretches of files in it
    SENDING   a `FileSender` sends such an answer past the transport, whose own buffer is empty

**In.**

    READING   what comes is read
    FULL      a request is in hand, and enough of what the client sent behind it is here
    SHORT     part of a large frame is here, and all memory for such parts is in use

`FREE` and `READING` are the only states that are false. A transport with TLS says the same by the same two calls,
`pause_writing` and `resume_writing`, if it is asked in its own way (`pause_at`), but gives nobody its socket.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Any


class Output(IntEnum):
    """How what is sent gets to the client; the module's docstring says what each means."""

    FREE = 0
    UNTAKEN = 1
    QUEUED = 2
    SENDING = 3


class OutputEvent(Enum):
    """What happens to that."""

    PAUSED = auto()
    """The transport has bytes that the kernel did not take."""
    RESUMED = auto()
    """It has none any more."""
    FILES = auto()
    """An answer with stretches of files is to be sent."""
    SENT = auto()
    """The kernel has taken all of it, or there is nobody to take it."""


OUTPUT: dict[Output, dict[OutputEvent, Output]] = {
    Output.FREE: {
        OutputEvent.PAUSED: Output.UNTAKEN,
        OutputEvent.RESUMED: Output.FREE,
        OutputEvent.FILES: Output.SENDING,
    },
    Output.UNTAKEN: {
        OutputEvent.PAUSED: Output.UNTAKEN,
        OutputEvent.RESUMED: Output.FREE,
        OutputEvent.FILES: Output.QUEUED,
    },
    Output.QUEUED: {
        OutputEvent.PAUSED: Output.QUEUED,
        OutputEvent.RESUMED: Output.SENDING,
    },
    Output.SENDING: {
        OutputEvent.SENT: Output.FREE,
    },
}
"""State -> event -> next state. What is missing cannot happen."""


class Input(IntEnum):
    """Whether what comes is read; the module's docstring says what each means."""

    READING = 0
    FULL = 1
    SHORT = 2


def pause_at(transport: Any) -> int:
    """For `set_write_buffer_limits`: so many unsent bytes that the transport pauses writing as soon as there is one.

    asyncio's and uvloop's plain transports pause above that number; those with TLS pause at it, and with 0 they would
    for ever.
    """
    return 1 if has_tls(transport) else 0


def has_tls(transport: Any) -> bool:
    """Whether what is written is encrypted on its way, so that files cannot be sent past the transport."""
    return transport.get_extra_info("sslcontext") is not None

"""Notifications to systemd: readiness, the watchdog, and more time for a long start or stop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping

from ...common.room_logger import room_logger

logger = room_logger("broker")

SOCKET_VARIABLE, WATCHDOG_VARIABLE, PID_VARIABLE = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
EXTENSION_SECONDS = 60
"""How much longer than now a start or a stop may take. It is requested again several times in this period."""


class ServiceNotifier:
    """The state of this process as systemd sees it (sd_notify(3)); does nothing if systemd did not start the process.

    A timer of the event loop sends the watchdog's notifications, so that systemd restarts a broker whose loop is
    blocked. During a start and a stop the same timer requests more time, because the recovery of large logs can take
    longer than a unit's time limit. Used on the loop's thread only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, environment: MutableMapping[str, str]) -> None:
        """Remove the variables from the environment, so that processes started by this one do not notify systemd."""
        self._loop = loop
        self._address = environment.pop(SOCKET_VARIABLE, "")
        watchdog = environment.pop(WATCHDOG_VARIABLE, "")
        is_watched = environment.pop(PID_VARIABLE, str(os.getpid())) == str(os.getpid())
        self._watchdog_seconds = int(watchdog) / 1_000_000 if is_watched and watchdog.isdecimal() else 0.0
        self._timer: asyncio.TimerHandle | None = None
        if self._address:
            self._extend()

    def ready(self, status: str) -> None:
        """Report that clients are served."""
        self._cancel()
        self._send(f"READY=1\nSTATUS={status}")
        if self._address and self._watchdog_seconds:
            self._watch()

    def stopping(self) -> None:
        """Report that the process has begun to stop."""
        self._cancel()
        self._send("STOPPING=1\nSTATUS=stopping")
        if self._address:
            self._extend()

    def close(self) -> None:
        """End the timer."""
        self._cancel()

    def _watch(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = self._loop.call_later(self._watchdog_seconds / 3, self._watch)

    def _extend(self) -> None:
        # The watchdog also counts during the start of a unit, after the first notification.
        self._send(f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1_000_000}\nWATCHDOG=1")
        self._timer = self._loop.call_later(EXTENSION_SECONDS / 4, self._extend)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # An @ represents the null byte of an abstract address.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), address)
        except OSError as error:
            logger.warning("cannot notify systemd at %s: %s", self._address, error)

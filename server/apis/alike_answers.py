"""Answers that are the same for nearly everybody, encoded once: those to ApiVersions, which every client asks for."""

from __future__ import annotations

from typing import Any

from ...protocol.codec import encode_response


class AlikeAnswers:
    """Encodes the answers to one version of one API. Answers must not change once they are encoded."""

    __slots__ = ("_body", "_last")

    def __init__(self) -> None:
        self._last: Any = None
        self._body = b""

    def encode(self, response: Any, version: int) -> list[Any]:
        """As `encode_response`, at once if the answer before was equal. Raises ProtocolError."""
        if response != self._last:
            self._body = b"".join(encode_response(response, version))
            self._last = response
        return [self._body]

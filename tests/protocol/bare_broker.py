"""A broker of bytes in and bytes out around the server's tables: versions of any age, passwords by the book."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_request, encode_response
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.frames import BufferPool, FrameReader
from barnabas.protocol.headers import RequestHeader, decode_request_header, encode_response_header
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.protocol.server_connection import (
    AUTHENTICATING,
    AWAITED,
    SERVING,
    SaslEvent,
    SaslState,
    ServerEvent,
    ServerState,
)

NEWEST = {ApiKey.API_VERSIONS: 4, ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2, ApiKey.METADATA: 13}
PASSWORD, SALT, ROUNDS = "s3cret", b"salt", 4096


def scram_server(algorithm: str) -> Generator[bytes, bytes, None]:
    """By the book (RFC 5802): messages of the client in, answers out; ends with the last answer."""
    first = (yield b"").decode()[3:]
    nonce = first.rpartition("r=")[2] + "server"
    challenge = f"r={nonce},s={base64.b64encode(SALT).decode()},i={ROUNDS}"
    final = (yield challenge.encode()).decode()
    without_proof, _, proof = final.rpartition(",p=")
    salted = hashlib.pbkdf2_hmac(algorithm, PASSWORD.encode(), SALT, ROUNDS)
    signed = f"{first},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != base64.b64decode(proof):
        raise PermissionError
    verifier = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    yield b"v=" + base64.b64encode(verifier)


def plain_server() -> Generator[bytes, bytes, None]:
    if (yield b"") != f"\0ann\0{PASSWORD}".encode():
        raise PermissionError
    yield b""


class ServerConnection:
    """A served connection by the tables of `server_connection`; `frames` splits what was received."""

    __slots__ = ("authentication", "frames", "state")

    def __init__(self, frames: FrameReader, authentication: SaslState) -> None:
        self.frames = frames
        self.state = ServerState.OPEN
        self.authentication = authentication

    def next_request(self) -> tuple[int, int] | None:
        """The bounds in `frames.data` of the request to handle now, None while there is none or it has to wait.

        Raises ProtocolError on an illegal frame.
        """
        if self.state:
            return None
        bounds = self.frames.next_frame()
        if bounds is not None:
            self.state = ServerState.HANDLING
        return bounds

    def on(self, event: ServerEvent) -> None:
        """Something happened. A KeyError is a mistake of the shell's: an answer to no request."""
        self.state = SERVING[self.state][event]

    def check(self, api_key: ApiKey) -> None:
        """Raise KafkaError (ILLEGAL_SASL_STATE), upon which the connection ends, if this request comes too early."""
        if self.authentication and api_key not in AWAITED[self.authentication]:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, f"{api_key.name} before the client is authenticated")

    def on_authentication(self, event: SaslEvent) -> None:
        """The client has come a step further, or failed."""
        self.authentication = AUTHENTICATING[self.authentication][event]


@dataclass
class BareBroker:
    """A scripted server around `ServerConnection`."""

    newest: dict[ApiKey, int] = field(default_factory=lambda: dict(NEWEST))
    has_sasl: bool = False
    tells_its_range: bool = True
    """Whether a refusal of ApiVersions says which versions there are, as brokers since 2.4 do."""
    session_ms: int = 0
    """For how long an authentication is believed."""
    hung_up: bool = False

    def __post_init__(self) -> None:
        frames = FrameReader(BufferPool(1 << 16, 1), max_size=1 << 20, max_other_size=1 << 20)
        begin = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST if self.has_sasl else SaslState.COMPLETE
        self.connection = ServerConnection(frames, begin)
        self.out = bytearray()
        self.asked: list[tuple[ApiKey, int]] = []
        self._sasl = plain_server()

    def receive(self, data: bytes) -> None:
        frames = self.connection.frames
        while data and not self.hung_up:
            view = frames.buffer()
            piece = data[: len(view)]
            view[: len(piece)] = piece
            frames.pending += len(piece)
            data = data[len(piece) :]
            while (bounds := self.connection.next_request()) is not None:
                self._handle(bytes(frames.data[bounds[0] : bounds[1]]))
            frames.settle()

    def _handle(self, frame: bytes) -> None:
        if self.connection.authentication is SaslState.AUTHENTICATE_RAW:
            self._authenticate(frame, lambda answer: self._frame(answer))
            return
        header, position = decode_request_header(frame, 0, len(frame))
        key = ApiKey(header.api_key)
        self.asked.append((key, header.api_version))
        self.connection.check(key)
        if header.api_version > self.newest[key]:
            told = ApiVersion(api_key=key, max_version=self.newest[key])
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[told] if self.tells_its_range else []
            )
            self._answer(header._replace(api_version=0), refusal)
            return
        request = decode_request(key, header.api_version, frame, position, len(frame))
        getattr(self, f"_on_{key.name.lower()}")(header, request)

    def _on_api_versions(self, header: RequestHeader, request: Any) -> None:
        keys = [ApiVersion(api_key=key, max_version=newest) for key, newest in self.newest.items()]
        self._answer(header, ApiVersionsResponse(api_keys=keys))

    def _on_metadata(self, header: RequestHeader, request: Any) -> None:
        self._answer(header, MetadataResponse(controller_id=header.correlation_id))

    def _on_sasl_handshake(self, header: RequestHeader, request: Any) -> None:
        if request.mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            self.connection.on_authentication(SaslEvent.FAILURE)
            answer = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"])
            self._answer(header, answer)
            return
        is_plain = request.mechanism == "PLAIN"
        self._sasl = plain_server() if is_plain else scram_server("sha" + request.mechanism[-3:])
        next(self._sasl)
        bare = header.api_version == 0
        self.connection.on_authentication(SaslEvent.MECHANISM_BARE if bare else SaslEvent.MECHANISM)
        self._answer(header, SaslHandshakeResponse())

    def _on_sasl_authenticate(self, header: RequestHeader, request: Any) -> None:
        self._authenticate(
            request.auth_bytes,
            lambda answer: self._answer(
                header, SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=self.session_ms)
            ),
        )
        if self.hung_up:
            error = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="who are you"
            )
            self._answer(header, error)

    def _authenticate(self, message: bytes, say: Any) -> None:
        try:
            answer = self._sasl.send(message)
        except PermissionError:
            self.connection.on_authentication(SaslEvent.FAILURE)
            self.hung_up = True
            return
        is_last = answer == b"" or answer.startswith(b"v=")
        self.connection.on_authentication(SaslEvent.SUCCESS if is_last else SaslEvent.CHALLENGE)
        say(answer)

    def _answer(self, header: RequestHeader, response: Any) -> None:
        head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        self._frame(head + b"".join(map(bytes, encode_response(response, header.api_version))))

    def _frame(self, body: bytes) -> None:
        self.out += len(body).to_bytes(4, "big") + body
        self.connection.on(ServerEvent.ANSWER)

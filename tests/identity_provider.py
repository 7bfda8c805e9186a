"""An OAuth identity provider for tests: it signs tokens, publishes its keys, and issues tokens to its clients."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER, AUDIENCE = "https://id.example", "kafka"
CLIENTS = {"anna": "se:cret"}


class IdentityProvider:
    """A provider with an HTTP server at `keys_url` and `token_url` while its context is entered.

    `token` works without the server.
    """

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"rsa": rsa.generate_private_key(65537, 2048), "ec": ec_key()}
        self.requests: list[str] = []
        """The resource of each request: `keys` or `token`."""
        self.forms: list[dict[str, list[str]]] = []
        self.is_broken = False
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.respond(self, "keys", provider.key_set())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                provider.forms.append(form)
                name, _, secret = base64.b64decode(self.headers["Authorization"].split()[1]).decode().partition(":")
                if CLIENTS.get(name) != secret:
                    self.send_error(401)
                    return
                provider.respond(self, "token", {"access_token": provider.token(sub=name), "expires_in": 300})

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def respond(self, handler: BaseHTTPRequestHandler, resource: str, value: object) -> None:
        self.requests.append(resource)
        if self.is_broken:
            handler.send_error(500)
            return
        body = json.dumps(value).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def keys_url(self) -> str:
        return f"{self.address}/keys"

    @property
    def token_url(self) -> str:
        return f"{self.address}/token"

    def key_set(self) -> dict[str, list[dict[str, Any]]]:
        """Return the JSON Web Key Set (JWKS) that the provider publishes."""
        return {"keys": [public_jwk(key) | {"kid": name, "use": "sig"} for name, key in self.keys.items()]}

    def token(
        self, key: str = "rsa", algorithm: str = "", headers: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """Return a signed token. It is valid unless `claims` override a claim; None removes a claim."""
        now = int(time.time())
        defaults = {"sub": "anna", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 300}
        payload = {name: value for name, value in (defaults | claims).items() if value is not None}
        signed_by = algorithm or ("RS256" if key.startswith("rsa") else "ES256")
        jwt_headers = {name: value for name, value in {"kid": key, **(headers or {})}.items() if value is not None}
        return jwt.encode(payload, self.keys[key], signed_by, headers=jwt_headers)


def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: Any) -> dict[str, Any]:
    """Return the public part of a key as a JSON Web Key (JWK)."""
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True)
    return found

"""Requests to the local HTTP port of a broker on this machine, for operations without a Kafka API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from ...clients.admin import ConfigResource
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from .client_settings import admin_of
from .reasons import reason
from .session import fail

PORT_SETTING = "health.port"
_ANSWER_SECONDS = 24 * 3600.0


class LocalBrokerError(Exception):
    """A request that failed, with the reason in one line."""


class LocalBroker:
    """`url` is the address of the port, `http://127.0.0.1:8080`. Errors end the command."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme != "http":
            fail(f"{url}: expected http://HOST:PORT", status=2)
        self._url = url.rstrip("/")

    @staticmethod
    async def find(bootstrap: str) -> str:
        """Return the URL of the first broker of a cluster with a local port. Raises KafkaError."""
        async with admin_of(bootstrap) as admin:
            brokers = (await admin.describe_cluster()).brokers
            for broker in brokers:
                resource = ConfigResource(ConfigResourceType.BROKER, str(broker.node_id))
                for entry in (await admin.describe_configs([resource]))[resource]:
                    if entry.name == PORT_SETTING and entry.value:
                        return f"http://127.0.0.1:{entry.value}"
        message = f"no broker at {bootstrap} has a local port; start it with `barnabas start`, or set {PORT_SETTING}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """Send a GET request."""
        return self._ask("GET", path, query)

    def post(self, path: str, query: Mapping[str, str]) -> Any:
        """Send a POST request; returns when the operation is complete."""
        return self._ask("POST", path, query)

    def _ask(self, method: str, path: str, query: Mapping[str, str]) -> Any:
        try:
            return self.request(method, path, query)
        except LocalBrokerError as error:
            fail(str(error))

    def request(self, method: str, path: str, query: Mapping[str, str]) -> Any:
        """Send a request, and return the facts of the response. Raises LocalBrokerError."""
        request = urllib.request.Request(  # noqa: S310 - the port uses http
            f"{self._url}{path}?{urlencode(query)}", method=method, headers={"X-Barnabas": "cli"}
        )
        try:
            # Never through a proxy: the server is on this machine.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=_ANSWER_SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            said = error.read()
            facts = json.loads(said) if said.startswith(b"{") else {}
            text = facts.get("message") or facts.get("error") or f"{self._url} answers {error}"
            raise LocalBrokerError(text) from None
        except (HTTPException, ValueError) as error:
            raise LocalBrokerError(f"{self._url} is not a broker's local port: {error}") from None
        except OSError as error:
            text = f"{self._url} does not respond: {reason(error).lower()}; the broker must run on this machine"
            raise LocalBrokerError(text) from None

"""Interceptors: functions around the handler of an API and around its response.

An interceptor is called once for each version of an API, when its first request is routed. It returns the given
functions, or functions that call them: no interceptor costs anything for an API that it leaves unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..quotas.request_quota_usage import RequestQuotaUsage

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from ..quotas.quota_managers import QuotaManagers
    from .request_context import Handle, RequestContext, Respond

Interceptor: TypeAlias = "Callable[[ApiKey, int, Handle, Respond], tuple[Handle, Respond]]"
"""Key and version of the API, and the functions to call."""


class JointMeter(Protocol):
    """Measures requests of one version of an API that are handled together.

    A Protocol because the metrics implement it.
    """

    def add(
        self, count: int, began: float, handled: float, ended: tuple[float, float], contexts: Iterable[RequestContext]
    ) -> None:
        """Count requests that began and were handled at these times of the stopwatch, in seconds.

        `ended` are the times at which all results were known and all responses were sent. `contexts` yields the first
        request of each connection, in case the requests are slow.
        """


class RequestMeter(Protocol):
    """Measures all requests of a broker. A Protocol because the metrics implement it."""

    def intercept(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        """Measure requests that are handled one by one: an `Interceptor`."""

    def joint_meter(self, key: ApiKey, version: int) -> JointMeter:
        """Return the meter for requests that are handled together."""


class QuotaInterceptor:
    """Charges requests to the quotas of their clients, and throttles clients over their quota (KIP-13, KIP-219)."""

    def __init__(self, quotas: QuotaManagers) -> None:
        self._quotas = quotas

    def __call__(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        """Leave all APIs unchanged while no quotas are set: the routes are rebuilt when that changes."""
        quotas = self._quotas
        if not quotas.enforced:
            return handle, respond

        def charged(context: RequestContext, request: Any) -> Any:
            quota_usage = context.quota_usage = RequestQuotaUsage(
                quotas, context.session.principal.name, context.client_id or "", context.size
            )
            try:
                response = handle(context, request)
            finally:
                quota_usage.pause()
            return quota_usage.timed(response) if isinstance(response, CoroutineType) else response

        def settled(context: RequestContext, response: Any) -> None:
            # Without a response for denied items the connection is closed, which settles the quota usage.
            if context.quota_usage is not None and not (response is None and context.denied):
                context.quota_usage.settle_response(context, response)
            respond(context, response)

        return charged, settled

"""The cleaner over the broker's local HTTP port: its status, its metrics, and compaction on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ..runtime.health import HttpRequest, JsonResponse
from .cleaner_status import CleanerStatus, pass_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..runtime.health import Route
    from .log_cleaner import LogCleaner

_HTTP_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "404 Not Found",
    ErrorCode.INVALID_CONFIG: "409 Conflict",
    ErrorCode.INVALID_REQUEST: "400 Bad Request",
}


class CleanerRoutes:
    """`GET /compaction`, `GET /metrics`, `POST /compaction?topic=…`."""

    def __init__(self, cleaner: Callable[[], LogCleaner]) -> None:
        """`cleaner` is called for each request, because the port opens before the cleaner exists."""
        self._cleaner = cleaner

    def routes(self) -> dict[tuple[str, str], Route]:
        """Return the handlers by method and path."""
        return {
            ("GET", "/compaction"): self._show,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/compaction"): self._compact,
        }

    async def _show(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse("200 OK", CleanerStatus(self._cleaner()).facts(request.query.get("topic")))

    async def _metrics(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse("200 OK", {"metrics": CleanerStatus(self._cleaner()).metrics()})

    async def _compact(self, request: HttpRequest) -> JsonResponse:
        """Answer after the compaction; with `dry_run=true` immediately, with the list of the logs."""
        cleaner = self._cleaner()
        try:
            topic, partition = request.query.get("topic"), request.query.get("partition")
            if topic is None or (partition is not None and not partition.isdecimal()):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "expected topic=NAME and optionally partition=NUMBER")
            wanted = cleaner.compacted(topic, None if partition is None else int(partition))
            before = {one: cleaner.logs[one].size for one in wanted}
            reports = []
            if request.query.get("dry_run") != "true":
                ignore_lag = request.query.get("ignore_lag") == "true"
                for one in wanted:
                    reports += await cleaner.compact(topic, one.partition, ignore_lag=ignore_lag)
        except KafkaError as error:
            status = _HTTP_STATUS.get(error.code, "500 Internal Server Error")
            return JsonResponse(status, {"error": error.code.name, "message": error.message})
        logs = cleaner.logs
        after = {one: logs[one].size if one in logs else 0 for one in wanted}
        return JsonResponse(
            "200 OK",
            {
                "sizes": [
                    {"partition": one.partition, "bytes_before": before[one], "bytes_after": after[one]}
                    for one in wanted
                ],
                "passes": [pass_facts(report) for report in reports],
                **CleanerStatus(cleaner).facts(topic),
            },
        )

"""The routes: the page, and its data under `/api`. Errors are JSON with one line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ... import __version__
from ...protocol.errors import ErrorCode, KafkaError
from ..http_server import BodyTooLargeError
from .acls import AclPages
from .activity import ActivityHistory
from .cluster import CachedResult, WatchedCluster
from .groups import GroupPages
from .guard import PageGuard
from .own_broker import OwnBroker
from .records import Query, RecordPages
from .topics import TopicPages

STATIC = Path(__file__).parent / "static"
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 404,
    ErrorCode.NETWORK_EXCEPTION: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}
_REFUSED = 409
Facts = Mapping[str, Any]


def console_app(cluster: WatchedCluster, guard: Callable[[ASGIApp], PageGuard], token: str) -> ASGIApp:
    """Create the application, whose lifespan opens and closes the clients. `token` is the one in the page, empty for
    none.
    """
    pulse = ActivityHistory(cluster)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await pulse.close()

    page = (STATIC / "index.html").read_text()
    own = "yes" if cluster.own is not None else ""
    for name, value in (("token", escape(token)), ("version", escape(__version__)), ("own", own)):
        page = page.replace("{{" + name + "}}", value)

    async def index(request: Request) -> Response:
        return HTMLResponse(page)

    rights = AclPages(cluster)
    routes = [
        *_topic_routes(TopicPages(cluster), pulse),
        *_record_routes(RecordPages(cluster)),
        *_group_routes(GroupPages(cluster)),
        _get("/rights", lambda request: rights.everything()),
        _post("/rights/quotas", lambda request, body: rights.set_quotas(body)),
        _post("/rights/rules", lambda request, body: rights.add_rule(body)),
        _post("/rights/rules/remove", lambda request, body: rights.remove_rule(body)),
        *([] if cluster.own is None else _own_routes(cluster.own)),
    ]
    errors: dict[Any, Any] = {
        KafkaError: _kafka_error,
        BodyTooLargeError: _too_large,
        ValueError: _value_error,
        TypeError: _value_error,
        OverflowError: _value_error,
        RecursionError: _value_error,
        TimeoutError: _unreachable,
        OSError: _unreachable,
    }
    app = Starlette(
        routes=[
            Route("/", index),
            Mount("/api", routes=routes),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers=errors,
        lifespan=life,
    )
    return guard(app)


def _get(path: str, answer: Callable[[Request], Awaitable[Facts]]) -> Route:
    async def endpoint(request: Request) -> Response:
        return JSONResponse(await answer(request))

    return Route(path, endpoint, methods=["GET"])


def _post(path: str, answer: Callable[[Request, Facts], Awaitable[Facts]]) -> Route:
    async def endpoint(request: Request) -> Response:
        body = json.loads(await request.body())
        if not isinstance(body, dict):
            raise ValueError("expected an object")
        return JSONResponse(await answer(request, body))

    return Route(path, endpoint, methods=["POST"])


def _topic_routes(topics: TopicPages, pulse: ActivityHistory) -> list[Route]:
    async def rates(request: Request) -> Facts:
        return pulse.read()

    return [
        _get("/overview", lambda request: topics.overview()),
        _get("/rates", rates),
        _get("/disks", lambda request: topics.disks()),
        _get("/topics", lambda request: topics.listing()),
        _get("/sizes", lambda request: topics.sizes()),
        _post("/topics", lambda request, body: topics.create(body)),
        _get("/topics/{topic}", lambda request: topics.partitions(_topic(request))),
        _get("/topics/{topic}/extents", lambda request: topics.extents(_topic(request))),
        _get("/topics/{topic}/configs", lambda request: topics.configs(_topic(request))),
        _post("/topics/{topic}/configs", lambda request, body: topics.alter(_topic(request), body)),
        _post("/topics/{topic}/partitions", lambda request, body: topics.grow(_topic(request), body)),
        _post("/topics/{topic}/delete", lambda request, body: topics.delete(_topic(request), body)),
    ]


def _record_routes(records: RecordPages) -> list[Route]:
    async def stream(request: Request) -> Response:
        query = Query.parse(_topic(request), request.query_params)

        async def lines() -> AsyncIterator[str]:
            async with aclosing(records.stream(query)) as found:
                async for line in found:
                    yield json.dumps(line, ensure_ascii=False) + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def value(request: Request) -> Response:
        topic, partition, offset = _topic(request), *_place(request)
        record = await records.one(topic, partition, offset)
        headers = {"content-disposition": f'attachment; filename="{_safe(topic)}-{partition}-{offset}.bin"'}
        return Response(record.value or b"", media_type="application/octet-stream", headers=headers)

    place = "/topics/{topic}/records/{partition:int}/{offset:int}"
    return [
        Route("/topics/{topic}/records", stream, methods=["GET"]),
        _post("/topics/{topic}/records", lambda request, body: records.produce(_topic(request), body)),
        _get(place, lambda request: records.described(_topic(request), *_place(request))),
        Route(f"{place}/value", value, methods=["GET"]),
    ]


def _group_routes(groups: GroupPages) -> list[Route]:
    return [
        _get("/groups", lambda request: groups.listing()),
        _get("/groups/{group:path}/lag", lambda request: groups.one(_group(request))),
        _post("/groups/{group:path}/reset", lambda request, body: groups.reset(_group(request), body)),
        _post("/groups/{group:path}/offsets", lambda request, body: groups.set_offsets(_group(request), body)),
    ]


def _own_routes(own: OwnBroker) -> list[Route]:
    shared, slow = CachedResult(own.requests), CachedResult(own.slow_requests)

    async def requests(request: Request) -> Facts:
        return {"requests": await shared.get(), "slow": await slow.get()}

    async def tombstones(request: Request, body: Facts) -> Facts:
        return await own.tombstones(*_partition(request), int(body.get("first") or 0))

    return [
        _get("/requests", requests),
        _get("/topics/{topic}/disk", lambda request: own.on_disk(_topic(request), _first(request))),
        _post("/topics/{topic}/tombstones/{partition:int}", tombstones),
        _post("/topics/{topic}/compact/{partition:int}", lambda request, body: own.compact(*_partition(request))),
    ]


def _first(request: Request) -> int:
    return int(request.query_params.get("first", "0"))


def _partition(request: Request) -> tuple[str, int]:
    return _topic(request), request.path_params["partition"]


def _topic(request: Request) -> str:
    name: str = request.path_params["topic"]
    return name


def _group(request: Request) -> str:
    name: str = request.path_params["group"]
    return name


def _place(request: Request) -> tuple[int, int]:
    return request.path_params["partition"], request.path_params["offset"]


def _safe(name: str) -> str:
    return "".join(char for char in name if char.isascii() and (char.isalnum() or char in "._-"))


async def _kafka_error(request: Request, error: KafkaError) -> Response:
    return JSONResponse({"error": str(error)}, _STATUS.get(error.code, _REFUSED))


async def _value_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _too_large(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 413)


async def _unreachable(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error) or "no response in time"}, 503)

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
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ..http_server import BodyTooLargeError
from .acls import AclPages
from .activity import ActivityHistory
from .brokers import BrokerPages
from .cluster import CachedResult, WatchedCluster
from .configs import ConfigPages
from .groups import GroupPages
from .guard import PageGuard
from .own_broker import OwnBroker
from .quotas import QuotaPages
from .reassignments import ReassignmentPages
from .records import EXPORT_RECORDS, Query, RecordPages
from .schemas import SchemaPages, SchemaRequestError
from .topics import TopicPages
from .transactions import TransactionPages
from .users import UserPages

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

    groups = GroupPages(cluster)
    routes = [
        *_broker_routes(BrokerPages(cluster), ConfigPages(cluster), pulse),
        *_topic_routes(TopicPages(cluster), groups),
        *_record_routes(RecordPages(cluster)),
        *_group_routes(groups),
        *_schema_routes(SchemaPages(cluster)),
        *_transaction_routes(TransactionPages(cluster)),
        *_reassignment_routes(ReassignmentPages(cluster)),
        *_security_routes(UserPages(cluster), AclPages(cluster), QuotaPages(cluster)),
        *([] if cluster.own is None else _own_routes(cluster.own)),
    ]
    errors: dict[Any, Any] = {
        KafkaError: _kafka_error,
        SchemaRequestError: _schema_error,
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


def _broker_routes(brokers: BrokerPages, configs: ConfigPages, pulse: ActivityHistory) -> list[Route]:
    async def rates(request: Request) -> Facts:
        return pulse.read()

    async def problems(request: Request) -> Facts:
        broker = request.query_params.get("broker", "")
        return await brokers.problems(request.query_params.get("problem", ""), int(broker) if broker else None)

    broker, topic = ConfigResourceType.BROKER, ConfigResourceType.TOPIC
    return [
        _get("/overview", lambda request: brokers.overview()),
        _get("/rates", rates),
        _get("/disks", lambda request: brokers.disks()),
        _get("/partitions", problems),
        _get("/brokers/{broker:int}", lambda request: brokers.one(request.path_params["broker"])),
        _get("/brokers/{broker:int}/configs", lambda request: configs.describe(broker, _broker(request))),
        _post("/brokers/{broker:int}/configs", lambda request, body: configs.alter(broker, _broker(request), body)),
        _get("/topics/{topic}/configs", lambda request: configs.describe(topic, _topic(request))),
        _post("/topics/{topic}/configs", lambda request, body: configs.alter(topic, _topic(request), body)),
    ]


def _topic_routes(topics: TopicPages, groups: GroupPages) -> list[Route]:
    return [
        _get("/topics", lambda request: topics.listing()),
        _get("/sizes", lambda request: topics.sizes()),
        _post("/topics", lambda request, body: topics.create(body)),
        _get("/topics/{topic}", lambda request: topics.partitions(_topic(request))),
        _get("/topics/{topic}/extents", lambda request: topics.extents(_topic(request))),
        _get("/topics/{topic}/consumers", lambda request: groups.consumers(_topic(request))),
        _post("/topics/{topic}/partitions", lambda request, body: topics.grow(_topic(request), body)),
        _post("/topics/{topic}/clone", lambda request, body: topics.clone(_topic(request), body)),
        _post("/topics/{topic}/empty", lambda request, body: topics.empty(_topic(request), body)),
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

    async def export(request: Request) -> Response:
        topic = _topic(request)
        query = Query.parse(topic, request.query_params)
        lines = records.export(query, int(request.query_params.get("most", EXPORT_RECORDS)))
        await anext(lines)  # errors until here have a status
        headers = {"content-disposition": f'attachment; filename="{_safe(topic)}.jsonl"'}

        async def chunks() -> AsyncIterator[bytes]:
            async with aclosing(lines):
                async for data in lines:
                    yield data

        return StreamingResponse(chunks(), media_type="application/x-ndjson", headers=headers)

    async def value(request: Request) -> Response:
        topic, partition, offset = _topic(request), *_place(request)
        record = await records.one(topic, partition, offset)
        headers = {"content-disposition": f'attachment; filename="{_safe(topic)}-{partition}-{offset}.bin"'}
        return Response(record.value or b"", media_type="application/octet-stream", headers=headers)

    place = "/topics/{topic}/records/{partition:int}/{offset:int}"
    return [
        Route("/topics/{topic}/records", stream, methods=["GET"]),
        _post("/topics/{topic}/records", lambda request, body: records.produce(_topic(request), body)),
        Route("/topics/{topic}/export", export, methods=["GET"]),
        _get(place, lambda request: records.described(_topic(request), *_place(request))),
        Route(f"{place}/value", value, methods=["GET"]),
    ]


def _group_routes(groups: GroupPages) -> list[Route]:
    group = "/groups/{group:path}"
    return [
        _get("/groups", lambda request: groups.listing()),
        _get("/group-lags", lambda request: groups.lags(request.query_params.get("topic", ""))),
        _get(f"{group}/lag", lambda request: groups.one(_group(request))),
        _post(f"{group}/reset", lambda request, body: groups.reset(_group(request), body)),
        _post(f"{group}/offsets", lambda request, body: groups.set_offsets(_group(request), body)),
        _post(f"{group}/offsets/delete", lambda request, body: groups.delete_offsets(_group(request), body)),
        _post(f"{group}/members/remove", lambda request, body: groups.remove_members(_group(request), body)),
        _post(f"{group}/delete", lambda request, body: groups.delete(_group(request), body)),
    ]


def _schema_routes(schemas: SchemaPages) -> list[Route]:
    # Names of subjects are in the query: they may contain slashes.
    return [
        _get("/schemas", lambda request: schemas.listing(request.query_params)),
        _get("/schemas/subject", lambda request: schemas.subject(request.query_params)),
        _get("/schemas/version", lambda request: schemas.version(request.query_params)),
        _get("/schemas/difference", lambda request: schemas.difference(request.query_params)),
        _get("/schemas/id/{id:int}", lambda request: schemas.of_id(request.path_params["id"], request.query_params)),
        _post("/schemas/level", lambda request, body: schemas.set_level(body)),
        _post("/schemas/check", lambda request, body: schemas.check(body)),
        _post("/schemas/register", lambda request, body: schemas.register(body)),
    ]


def _transaction_routes(transactions: TransactionPages) -> list[Route]:
    async def hanging(request: Request) -> Facts:
        return await transactions.hanging(max(0, int(request.query_params.get("minutes", "20"))))

    return [
        _get("/transactions", lambda request: transactions.listing(request.query_params)),
        _get("/transactions/hanging", hanging),
        _post("/transactions/abort", lambda request, body: transactions.abort(body)),
        _post("/transactions/abort-hanging", lambda request, body: transactions.abort_hanging(body)),
    ]


def _reassignment_routes(reassignments: ReassignmentPages) -> list[Route]:
    return [
        _get("/reassignments", lambda request: reassignments.listing()),
        _post("/reassignments/plan", lambda request, body: reassignments.plan(body)),
        _post("/reassignments", lambda request, body: reassignments.execute(body)),
        _post("/reassignments/cancel", lambda request, body: reassignments.cancel(body)),
        _post("/reassignments/unthrottle", lambda request, body: reassignments.unthrottle()),
        _post("/elections", lambda request, body: reassignments.elect(body)),
    ]


def _security_routes(users: UserPages, acls: AclPages, quotas: QuotaPages) -> list[Route]:
    return [
        _get("/users", lambda request: users.listing(request.query_params)),
        _post("/users", lambda request, body: users.set_password(body)),
        _post("/users/remove", lambda request, body: users.remove_password(body)),
        _get("/acls", lambda request: acls.listing()),
        _post("/acls", lambda request, body: acls.add(body)),
        _post("/acls/remove", lambda request, body: acls.remove(body)),
        _get("/quotas", lambda request: quotas.listing()),
        _post("/quotas", lambda request, body: quotas.set(body)),
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


def _broker(request: Request) -> str:
    return str(request.path_params["broker"])


def _group(request: Request) -> str:
    name: str = request.path_params["group"]
    return name


def _place(request: Request) -> tuple[int, int]:
    return request.path_params["partition"], request.path_params["offset"]


def _safe(name: str) -> str:
    return "".join(char for char in name if char.isascii() and (char.isalnum() or char in "._-"))


async def _kafka_error(request: Request, error: KafkaError) -> Response:
    return JSONResponse({"error": str(error)}, _STATUS.get(error.code, _REFUSED))


async def _schema_error(request: Request, error: Any) -> Response:
    # A rejected password of the registry is not a missing token of this console.
    is_of_request = error.status in (404, 409, 422)
    return JSONResponse({"error": str(error)}, (404 if error.status == 404 else _REFUSED) if is_of_request else 503)


async def _value_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _too_large(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 413)


async def _unreachable(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error) or "no response in time"}, 503)

"""The REST API of Confluent's registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ... import __version__
from ..http_server import AllowedHosts, BodyTooLargeError, bounded
from .errors import RegistryError, no_schema
from .registry import Registry
from .schemas import KINDS, Version

MAX_BODY_BYTES = 1 << 20
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
Answer = Callable[[Request, Registry], Any]
_CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that left; no client sees it."""
_SUBJECT = "/subjects/{subject}"
_VERSION = _SUBJECT + "/versions/{version}"
_ID = "/schemas/ids/{id:int}"


def registry_app(registry: Registry, names: AllowedHosts) -> ASGIApp:
    """Create the application for a running registry."""
    app = Starlette(
        routes=[Route(path, _endpoint(registry, answer), methods=[method]) for method, path, answer in _ROUTES],
        exception_handlers={
            RegistryError: _refused,
            HTTPException: _unknown,
            BodyTooLargeError: _too_large,
            ValueError: _malformed,
            RecursionError: _malformed,
        },
    )
    return _RequestGuard(app, names)


class _RequestGuard:
    """Reject requests of web pages, and for other host names: the registry has no authentication."""

    def __init__(self, app: ASGIApp, names: AllowedHosts) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it on with its raw path: a subject may contain a slash, which is %2F."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._names.has_host(hosts[0]):
            await _error(421, 421, "unknown host name of the registry")(scope, receive, send)
        elif "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            await _error(403, 403, "a page's request")(scope, receive, send)
        else:
            raw = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
            await self._app({**scope, "path": raw}, bounded(receive, MAX_BODY_BYTES), send)


def _endpoint(registry: Registry, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        said = answer(request, registry)
        if isinstance(said, Coroutine):
            said = await _while_connected(request, said)
        return said if isinstance(said, Response) else _json(said)

    return endpoint


async def _while_connected(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Execute a request, and cancel it when the client disconnects: reading its schema may take many seconds."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not task.done():
            gone.result()
            return Response(status_code=_CLIENT_CLOSED_REQUEST)
        return await task
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    """Wait for the end of a request's connection. Raises BodyTooLargeError."""
    await request.body()  # `receive` waits for the end only after the body
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(said: object, status: int = 200) -> Response:
    return Response(
        json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass"), status, media_type=CONTENT_TYPE
    )


def _error(status: int, code: int, text: str) -> Response:
    return _json({"error_code": code, "message": text}, status)


async def _body(request: Request) -> Mapping[str, Any]:
    """Parse the body. Raises ValueError."""
    body = json.loads(await request.body() or b"{}")
    if not isinstance(body, dict):
        raise ValueError("expected an object")
    return body


def _flag(request: Request, *names: str) -> bool:
    return any(request.query_params.get(name, "").lower() == "true" for name in names)


def _subject(request: Request) -> str | None:
    subject = request.path_params.get("subject")
    return None if subject is None else unquote(subject)


def _named(request: Request) -> str:
    return _subject(request) or ""


def _page(request: Request, found: Sequence[Any]) -> list[Any]:
    """Parse `offset` and `limit`; a negative limit means none. Raises ValueError."""
    start, most = int(request.query_params.get("offset") or 0), int(request.query_params.get("limit") or -1)
    return list(found[max(start, 0) :][: most if most >= 0 else None])


# -- subjects and versions -------------------------------------------------------------------------------------------


def _subjects(request: Request, registry: Registry) -> Any:
    prefix = request.query_params.get("subjectPrefix", "").removeprefix(":*:")
    names = registry.subjects.names(deleted=_flag(request, "deleted", "deletedOnly", "deleted_only"))
    if _flag(request, "deletedOnly", "deleted_only"):
        names = [name for name in names if not registry.subjects.has(name)]
    return _page(request, [name for name in names if name.startswith(prefix)])


def _versions(request: Request, registry: Registry) -> Any:
    found = registry.subjects.versions(_named(request), deleted=_flag(request, "deleted", "deletedOnly"))
    only = _flag(request, "deletedOnly")
    return _page(request, [version.number for version in found if version.is_deleted or not only])


async def _described(request: Request, registry: Registry, version: Version) -> dict[str, Any]:
    schema = await registry.formatted(version.schema, request.query_params.get("format", ""))
    return {**version.to_json(), **schema.to_json()}


def _found_version(request: Request, registry: Registry) -> Version:
    deleted = _flag(request, "deleted")
    return registry.version(_named(request), request.path_params["version"], deleted=deleted)


async def _version(request: Request, registry: Registry) -> Any:
    return await _described(request, registry, _found_version(request, registry))


async def _version_text(request: Request, registry: Registry) -> Any:
    said = await _described(request, registry, _found_version(request, registry))
    return Response(said["schema"], media_type=CONTENT_TYPE)


def _referrers(request: Request, registry: Registry) -> Any:
    version = _found_version(request, registry)
    return sorted(one.schema_id for one in registry.subjects.referrers(version.subject, version.number))


async def _register(request: Request, registry: Registry) -> Any:
    version = await registry.register(_named(request), await _body(request))
    return version.to_json()


async def _look_up(request: Request, registry: Registry) -> Any:
    found = await registry.look_up(_named(request), await _body(request), deleted=_flag(request, "deleted"))
    return await _described(request, registry, found)


async def _delete_subject(request: Request, registry: Registry) -> Any:
    return await registry.delete_subject(_named(request), permanent=_flag(request, "permanent"))


async def _delete_version(request: Request, registry: Registry) -> Any:
    number = request.path_params["version"]
    return await registry.delete_version(_named(request), number, permanent=_flag(request, "permanent"))


async def _compatible(request: Request, registry: Registry) -> Any:
    found = await registry.incompatibilities(_named(request), request.path_params.get("version"), await _body(request))
    return {"is_compatible": not found, **({"messages": found} if _flag(request, "verbose") else {})}


# -- ids -------------------------------------------------------------------------------------------------------------


async def _by_id(request: Request, registry: Registry) -> Any:
    schema = await registry.schema(request.path_params["id"], format=request.query_params.get("format", ""))
    return schema.to_json()


async def _text_by_id(request: Request, registry: Registry) -> Any:
    schema = await registry.schema(request.path_params["id"], format=request.query_params.get("format", ""))
    return Response(schema.text, media_type=CONTENT_TYPE)


def _places(request: Request, registry: Registry) -> list[Version]:
    wanted, deleted = request.query_params.get("subject"), _flag(request, "deleted")
    found = registry.subjects.of_id(request.path_params["id"])
    if not found:
        raise no_schema(request.path_params["id"])
    return [one for one in found if (deleted or not one.is_deleted) and wanted in (None, "", one.subject)]


def _subjects_of_id(request: Request, registry: Registry) -> Any:
    return _page(request, sorted({version.subject for version in _places(request, registry)}))


def _versions_of_id(request: Request, registry: Registry) -> Any:
    found = _places(request, registry)
    return _page(request, [{"subject": version.subject, "version": version.number} for version in found])


def _all_schemas(request: Request, registry: Registry) -> Any:
    prefix = request.query_params.get("subjectPrefix", "")
    found = [
        one
        for one in registry.subjects.all_versions(deleted=_flag(request, "deleted"))
        if one.subject.startswith(prefix)
    ]
    if _flag(request, "latestOnly"):
        found = list({one.subject: one for one in found}.values())
    return [one.to_json() for one in _page(request, found)]


# -- levels and modes ------------------------------------------------------------------------------------------------


def _level(request: Request, registry: Registry) -> Any:
    return {"compatibilityLevel": registry.level(_subject(request), or_global=_flag(request, "defaultToGlobal"))}


async def _set_level(request: Request, registry: Registry) -> Any:
    body = await _body(request)
    said = body.get("compatibility", body.get("compatibilityLevel"))
    return {"compatibility": await registry.set_level(_subject(request), said)}


async def _forget_level(request: Request, registry: Registry) -> Any:
    return {"compatibilityLevel": await registry.forget_level(_subject(request))}


def _mode(request: Request, registry: Registry) -> Any:
    return {"mode": registry.mode(_subject(request), or_global=_flag(request, "defaultToGlobal"))}


async def _set_mode(request: Request, registry: Registry) -> Any:
    said = (await _body(request)).get("mode")
    return {"mode": await registry.set_mode(_subject(request), said, force=_flag(request, "force"))}


async def _forget_mode(request: Request, registry: Registry) -> Any:
    return {"mode": await registry.forget_mode(_named(request))}


_ROUTES: list[tuple[str, str, Answer]] = [
    ("GET", "/", lambda request, registry: {}),
    ("GET", "/subjects", _subjects),
    ("POST", _SUBJECT, _look_up),
    ("DELETE", _SUBJECT, _delete_subject),
    ("GET", _SUBJECT + "/versions", _versions),
    ("POST", _SUBJECT + "/versions", _register),
    ("GET", _VERSION, _version),
    ("DELETE", _VERSION, _delete_version),
    ("GET", _VERSION + "/schema", _version_text),
    ("GET", _VERSION + "/referencedby", _referrers),
    ("GET", "/schemas", _all_schemas),
    ("GET", "/schemas/types", lambda request, registry: list(KINDS)),
    ("GET", _ID, _by_id),
    ("GET", _ID + "/schema", _text_by_id),
    ("GET", _ID + "/subjects", _subjects_of_id),
    ("GET", _ID + "/versions", _versions_of_id),
    ("POST", "/compatibility" + _SUBJECT + "/versions", _compatible),
    ("POST", "/compatibility" + _VERSION, _compatible),
    ("GET", "/config", _level),
    ("PUT", "/config", _set_level),
    ("DELETE", "/config", _forget_level),
    ("GET", "/config/{subject}", _level),
    ("PUT", "/config/{subject}", _set_level),
    ("DELETE", "/config/{subject}", _forget_level),
    ("GET", "/mode", _mode),
    ("PUT", "/mode", _set_mode),
    ("GET", "/mode/{subject}", _mode),
    ("PUT", "/mode/{subject}", _set_mode),
    ("DELETE", "/mode/{subject}", _forget_mode),
    ("GET", "/contexts", lambda request, registry: ["."]),
    ("GET", "/v1/metadata/id", lambda request, registry: {"id": "", "scope": {"path": [], "clusters": {}}}),
    ("GET", "/v1/metadata/version", lambda request, registry: {"version": __version__, "commitId": ""}),
]


async def _refused(request: Request, error: Any) -> Response:
    return _error(error.status, int(error.code), str(error))


async def _unknown(request: Request, error: Any) -> Response:
    return _error(error.status_code, error.status_code, f"HTTP {error.status_code} {error.detail}")


async def _too_large(request: Request, error: Exception) -> Response:
    return _error(413, 413, str(error))


async def _malformed(request: Request, error: Exception) -> Response:
    return _error(400, 400, str(error) or type(error).__name__)

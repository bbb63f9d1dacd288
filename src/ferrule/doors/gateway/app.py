"""The routes of a gateway."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from ferrule.doors.gateway import containers, conversations, files, responses, skills, uploads, vector_stores
from ferrule.doors.gateway.guard import Guard
from ferrule.doors.gateway.http import error_answer
from ferrule.doors.gateway.services import Services
from ferrule.doors.gateway.socket import Sockets
from ferrule.responses.errors import ApiError
from ferrule.serving import Callers

Handler = Callable[[Services, Request], Awaitable[Response]]

ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/responses": {"POST": responses.create},
    "/responses/compact": {"POST": responses.compact},
    "/responses/input_tokens": {"POST": responses.input_tokens},
    "/responses/{id}": {"GET": responses.retrieve, "DELETE": responses.delete},
    "/responses/{id}/cancel": {"POST": responses.cancel},
    "/responses/{id}/input_items": {"GET": responses.input_items},
    "/models": {"GET": responses.models},
    "/models/{name:path}": {"GET": responses.model},
    "/conversations": {"POST": conversations.create},
    "/conversations/{id}": {
        "GET": conversations.retrieve,
        "POST": conversations.update,
        "DELETE": conversations.delete,
    },
    "/conversations/{id}/items": {"GET": conversations.items, "POST": conversations.add_items},
    "/conversations/{id}/items/{item}": {"GET": conversations.item, "DELETE": conversations.delete_item},
    "/files": {"GET": files.list_files, "POST": files.create},
    "/files/{id}": {"GET": files.retrieve, "DELETE": files.delete},
    "/files/{id}/content": {"GET": files.content},
    "/containers": {"GET": containers.list_containers, "POST": containers.create},
    "/containers/{id}": {"GET": containers.retrieve, "DELETE": containers.delete},
    "/containers/{id}/files": {"GET": containers.files, "POST": containers.add_file},
    "/containers/{id}/files/{file}": {"GET": containers.file, "DELETE": containers.delete_file},
    "/containers/{id}/files/{file}/content": {"GET": containers.content},
    "/skills": {"GET": skills.list_skills, "POST": skills.create},
    "/skills/{id}": {"GET": skills.retrieve, "POST": skills.update, "DELETE": skills.delete},
    "/skills/{id}/content": {"GET": skills.content},
    "/skills/{id}/versions": {"GET": skills.list_versions, "POST": skills.create_version},
    "/skills/{id}/versions/{version}": {"GET": skills.retrieve_version, "DELETE": skills.delete_version},
    "/skills/{id}/versions/{version}/content": {"GET": skills.version_content},
    "/vector_stores": {"GET": vector_stores.list_stores, "POST": vector_stores.create},
    "/vector_stores/{id}": {
        "GET": vector_stores.retrieve,
        "POST": vector_stores.update,
        "DELETE": vector_stores.delete,
    },
    "/vector_stores/{id}/search": {"POST": vector_stores.search},
    "/vector_stores/{id}/files": {"GET": vector_stores.list_files, "POST": vector_stores.add_file},
    "/vector_stores/{id}/files/{file}": {
        "GET": vector_stores.retrieve_file,
        "POST": vector_stores.update_file,
        "DELETE": vector_stores.delete_file,
    },
    "/vector_stores/{id}/files/{file}/content": {"GET": vector_stores.file_content},
    "/vector_stores/{id}/file_batches": {"POST": vector_stores.create_batch},
    "/vector_stores/{id}/file_batches/{batch}": {"GET": vector_stores.retrieve_batch},
    "/vector_stores/{id}/file_batches/{batch}/cancel": {"POST": vector_stores.cancel_batch},
    "/vector_stores/{id}/file_batches/{batch}/files": {"GET": vector_stores.list_files},
    "/uploads": {"POST": uploads.create},
    "/uploads/{id}/parts": {"POST": uploads.add_part},
    "/uploads/{id}/complete": {"POST": uploads.complete},
    "/uploads/{id}/cancel": {"POST": uploads.cancel},
}
"""What is served below `/v1`. The first path that fits counts."""


def gateway(services: Services, sockets: Sockets, callers: Callers, *, needs_key: bool) -> ASGIApp:
    """Return the whole application."""
    routes = [Route(f"/v1{path}", _Methods(services, handlers)) for path, handlers in ROUTES.items()]
    connect = WebSocketRoute("/v1/responses", _socket(sockets))
    router = Router([connect, *routes], redirect_slashes=False, default=_unknown)
    return Guard(router, callers, services.store, needs_key=needs_key)


class _Methods:
    """Answers for one path: by the request's method, or with those that there are."""

    def __init__(self, services: Services, handlers: Mapping[str, Handler]) -> None:
        self._services = services
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["method"])
        if handler is None:
            await self._refusal(scope)(scope, receive, send)
            return
        answer = await handler(self._services, Request(scope, receive))
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response:
        allowed = ", ".join(self._handlers)
        said = f"{scope['path']} takes {allowed}, not {scope['method']}."
        answer = error_answer(ApiError(said, status=405, code="method_not_allowed"))
        answer.headers["allow"] = allowed
        return answer


def _socket(sockets: Sockets) -> Callable[[WebSocket], Awaitable[None]]:
    async def connect(socket: WebSocket) -> None:
        await sockets.serve(socket)

    return connect


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    raise ApiError(f"There is nothing at {scope['path']}.", status=404, code="not_found")

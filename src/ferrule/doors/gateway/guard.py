"""What stands before every route: who is asked, from where, with whose key; and what is told if something fails.

Works on plain ASGI messages, so that a stream passes through with nothing done to it.
"""

import logging
from functools import partial
from typing import Protocol

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ferrule.doors.gateway.http import error_answer
from ferrule.model.calls import random_id
from ferrule.responses.errors import ApiError
from ferrule.responses.failures import store_error
from ferrule.serving import Callers, Refused, bearer_token
from ferrule.store import NoSuchFile, StoreError, StoreRefusal, TooLarge

log = logging.getLogger("ferrule.gateway")

BROKEN = "The server made a mistake; its log says which."


class KeyStore(Protocol):
    """Knows the keys and whose they are."""

    async def has_keys(self) -> bool: ...
    async def owner_of(self, key: str) -> str | None: ...


class Guard:
    """Lets a request through to `app` if it is meant for this server and has a key, where one is needed: as soon as
    there is a key, and always if `needs_key`."""

    def __init__(self, app: ASGIApp, callers: Callers, keys: KeyStore, *, needs_key: bool) -> None:
        self._app = app
        self._callers = callers
        self._keys = keys
        self._needs_key = needs_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request or one WebSocket."""
        request_id = f"req_{random_id()}"
        sending = _Sending(send, request_id)
        try:
            await self._admit(scope)
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            log.info("%s: the client left before its request was whole", request_id)
        except Exception as error:
            if sending.begun:
                raise
            await error_answer(told(error, request_id))(scope, receive, sending)

    async def _admit(self, scope: Scope) -> None:
        """Check a request, and note its owner, and how to ask for it again. Raises `ApiError`."""
        headers = Headers(scope=scope)
        try:
            self._callers.check(headers.getlist("host"), headers.getlist("origin"))
        except Refused as refusal:
            raise ApiError(str(refusal), status=403, code="host_not_allowed") from refusal
        admit = partial(self._owner, bearer_token(headers.get("authorization", "")))
        scope["state"] = {"owner": await admit(), "admit": admit}

    async def _owner(self, key: str) -> str:
        if not self._needs_key and not await self._keys.has_keys():
            return ""
        owner = await self._keys.owner_of(key) if key else None
        if owner is None:
            raise ApiError(
                "The key is wrong." if key else "A key is missing: send `Authorization: Bearer KEY`.",
                status=401,
                kind="authentication_error",
                code="invalid_api_key",
            )
        return owner


class _Sending:
    """Names the request in the answer's head."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._header = (b"x-request-id", request_id.encode())
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
            self.begun = True
            message["headers"] = [*message.get("headers", ()), self._header]
        await self._send(message)


def told(error: Exception, request_id: str) -> ApiError:
    """Return what a client is told of an error. The cause of a fault goes to the log alone."""
    match error:
        case ApiError():
            return error
        case TooLarge():
            return ApiError(str(error), status=413, code="request_too_large", param=error.param)
        case NoSuchFile():
            return ApiError(str(error), status=404, code="not_found", param=error.param)
        case StoreRefusal():
            return ApiError(str(error), code="invalid_value", param=error.param)
        case StoreError():
            log.error("%s: %s", request_id, error)
            return store_error(error)
    log.error("%s failed", request_id, exc_info=error)
    return broken()


def broken() -> ApiError:
    """Return what a client is told of a fault of ours."""
    return ApiError(BROKEN, status=500, kind="server_error", code="server_error")

"""Failures of the model server and of the store, as the API tells them.

What was wrong with the request is told in the server's own words. What is wrong with the gateway's own access to the
server, its address or its key, is for whoever runs the gateway: it goes to the log.
"""

import logging
import re

from ferrule.hosted.tool import ToolRefused
from ferrule.model.stream import ContentRefused, ContextOverflow, ModelError, ToolsUnusable
from ferrule.responses.errors import INVALID, ApiError
from ferrule.store import StoreError, StoreFull

log = logging.getLogger("ferrule.responses")

FULL = "The disk is full where this server keeps what it stores; its log says where."
NO_STORE = "The server cannot use its store; its log says why."
UNUSABLE = "The model server cannot be used by this gateway; its log says why."

_OF_THE_REQUEST = frozenset({400, 409, 413, 415, 422})
_OF_THE_GATEWAY = frozenset({401, 403, 404, 405, 407})
_URL = re.compile(r"\s*\b(?:at\s+)?(?:https?|wss?)://[^\s'\")>]+")


def api_error(error: ModelError) -> ApiError:
    """Return an upstream's failure as the API tells it."""
    text = _without_addresses(str(error))
    if isinstance(error, ContextOverflow):
        return ApiError(text, code="context_length_exceeded", param="input")
    if error.status == 429:
        return ApiError(
            text, status=429, kind="rate_limit_error", code="rate_limit_exceeded", retry_after_ms=error.retry_after_ms
        )
    if isinstance(error, ToolsUnusable):
        return ApiError(text, code="invalid_value", param="tools")
    if error.status in _OF_THE_REQUEST or isinstance(error, ContentRefused):
        return ApiError(text, code="invalid_prompt")
    if error.status == 404 and "model" in error.said.lower():
        return ApiError(_without_addresses(error.said), status=404, code="model_not_found", param="model")
    log.warning("%s", error)
    if error.status in _OF_THE_GATEWAY or 300 <= (error.status or 0) < 400:
        text = UNUSABLE
    return ApiError(text, status=502, kind="server_error", code="server_error")


def tool_refusal(error: ToolRefused, param: str) -> ApiError:
    """Return what is told of a tool that can never run; `param` is the field that is wrong."""
    kind = INVALID if error.status < 500 else "server_error"
    return ApiError(f"{param}: {error}", status=error.status, kind=kind, code=error.code, param=param)


def store_error(error: StoreError) -> ApiError:
    """Return a failure of the store as the API tells it: without the place where it lies."""
    if isinstance(error, StoreFull):
        return ApiError(FULL, status=507, kind="server_error", code="storage_full")
    return ApiError(NO_STORE, status=500, kind="server_error", code="server_error")


def _without_addresses(text: str) -> str:
    """Remove URLs: where the model server is does not concern its clients."""
    return _URL.sub("", text)

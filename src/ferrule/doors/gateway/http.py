"""What the routes share: bodies in, JSON out, pages of lists."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from ferrule.protocol.json_text import JsonValue
from ferrule.responses.errors import ApiError
from ferrule.store import Page, Paging

Order = Literal["asc", "desc"]

PAGE_ITEMS = 20
"""Entries of a page where a client does not say how many; the API's default."""

SILENT_S = 60.0
"""Seconds in which a body that is not whole has to go on: what came of it would be kept for nothing."""

NUMBER_DIGITS = 12
"""Digits of a number in a query: more than any has."""


NOT_RUN = "x-ferrule-not-run"
"""The header that names types of tools, and fields, which nobody runs."""

NOT_RUN_NAMES, NOT_RUN_CHARS = 32, 64
"""Names in this header, and characters of each, at most: they are the client's, and too large a head is lost."""


class JsonAnswer(Response):
    """A body of JSON."""

    media_type = "application/json"

    def __init__(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(msgspec.json.encode(value), status, headers)


def error_answer(error: ApiError) -> JsonAnswer:
    """Return an error as the API tells it."""
    wait = error.retry_after_ms
    headers = {} if wait is None else {"retry-after": str(-(-wait // 1000)), "retry-after-ms": str(wait)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status == 408:
        headers["connection"] = "close"
    return JsonAnswer(error.body, error.status, headers)


def too_large(limit: int) -> ApiError:
    """Return the error for a body that is too large."""
    return ApiError(
        f"The body has more than {limit} bytes, the limit of this server.", status=413, code="request_too_large"
    )


def limited(request: Request, limit: int) -> Request:
    """Return a request whose body raises `ApiError` as soon as it is known to be larger than `limit`."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise too_large(limit)
    size = 0

    async def receive() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout(SILENT_S):
                message = await request.receive()
        except TimeoutError as error:
            raise ApiError(
                f"No more of the body came for {SILENT_S:g} seconds.", status=408, code="request_timeout"
            ) from error
        size += len(message.get("body", b""))
        if size > limit:
            raise too_large(limit)
        return message

    return Request(request.scope, receive)


async def body_of(request: Request, limit: int) -> bytes:
    """Return a whole body. Raises `ApiError` if it is larger than `limit`, or packed."""
    if (packing := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise ApiError(f"Send the body as it is, not as {packing}.", status=415, code="unsupported_media_type")
    return await limited(request, limit).body()


def paging_of(request: Request, *, limit: int = PAGE_ITEMS) -> Paging:
    """Return the page that a query asks for. Raises `ApiError` that names the wrong parameter."""
    query = request.query_params
    return Paging(
        after=query.get("after") or None,
        before=query.get("before") or None,
        limit=number_of(request, "limit", limit),
        order=_order(query.get("order") or "desc"),
    )


def number_of(request: Request, name: str, default: int) -> int:
    """Return a number of the query. Raises `ApiError`."""
    given = request.query_params.get(name)
    if given is None or given == "":
        return default
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_DIGITS):
        raise ApiError(f"{name}: {given!r} is not a whole number", code="invalid_value", param=name)
    return int(given)


def not_run(names: Iterable[str]) -> dict[str, str]:
    """Return the header for what nobody runs; what no header can hold is written as in a URL."""
    shown = [quote(name[:NOT_RUN_CHARS], safe=" /:@", errors="replace")[: 3 * NOT_RUN_CHARS] for name in names][
        :NOT_RUN_NAMES
    ]
    return {NOT_RUN: ", ".join(shown)} if shown else {}


def owner_of(request: Request) -> str:
    """Return whose key a request has."""
    owner: str = request.state.owner
    return owner


def flag_of(request: Request, name: str) -> bool:
    """Return a switch of the query. Raises `ApiError`."""
    given = request.query_params.get(name, "false").lower()
    if given not in ("true", "false"):
        raise ApiError(f"{name}: {given!r} is neither true nor false", code="invalid_value", param=name)
    return given == "true"


def _order(given: str) -> Order:
    for order in get_args(Order):
        if given == order:
            return order  # type: ignore[no-any-return]
    raise ApiError(f"order: {given!r} is neither asc nor desc", code="invalid_value", param="order")


def list_answer(page: Page[Any]) -> JsonAnswer:
    """Return a page as the API shows it. Items are JSON already, or values to encode."""
    data = [msgspec.Raw(entry) if isinstance(entry, bytes) else entry for entry in page.data]
    ends = {"first_id": page.first_id, "last_id": page.last_id, "has_more": page.has_more}
    return JsonAnswer({"object": "list", "data": data, **ends})


def deleted(entry_id: str, kind: str) -> JsonAnswer:
    """Return what the API says of something that was deleted."""
    answer: dict[str, JsonValue] = {"id": entry_id, "object": kind, "deleted": True}
    return JsonAnswer(answer)

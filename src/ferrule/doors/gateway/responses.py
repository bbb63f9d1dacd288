"""The routes of responses and of models."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ferrule.doors.gateway.http import (
    JsonAnswer,
    body_of,
    deleted,
    flag_of,
    list_answer,
    not_run,
    number_of,
    owner_of,
    paging_of,
)
from ferrule.doors.gateway.services import Services
from ferrule.doors.gateway.sse import EventStream, gone
from ferrule.responses.errors import not_found
from ferrule.responses.ledger import Batch, Ledger
from ferrule.responses.request import ResponseRequest, read_request


async def create(services: Services, request: Request) -> Response:
    """`POST /responses`."""
    asked, owner = await _request(services, request), owner_of(request)
    ledger = await services.running.open(asked, owner)
    leave = partial(services.running.leave, ledger, owner)
    headers = not_run(ledger.not_run)
    if asked.known.stream:
        return EventStream(ledger.batches(), headers, leave)
    try:
        if not asked.background:
            await _end_or_leaving(ledger, request)
    finally:
        await leave()
    if ledger.error is not None and not ledger.output:
        raise ledger.error
    return JsonAnswer(ledger.object, headers=headers)


async def _end_or_leaving(ledger: Ledger, request: Request) -> None:
    """Wait for a response's end, or until its client leaves."""
    waiting = asyncio.create_task(ledger.finished()), asyncio.create_task(gone(request.receive))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


async def retrieve(services: Services, request: Request) -> Response:
    """`GET /responses/{id}`, as it is now or as the events after a number."""
    response_id, owner = request.path_params["id"], owner_of(request)
    if not flag_of(request, "stream"):
        return JsonAnswer(await services.engine.retrieve(response_id, owner))
    after = number_of(request, "starting_after", -1)
    ledger = services.engine.ledger(response_id, owner)
    if ledger is not None and ledger.object.get("background"):
        return EventStream(ledger.batches(after), {})
    events = await services.engine.events(response_id, owner, after)
    return EventStream(_at_once([event for _, event in events]), {})


async def _at_once(events: Sequence[bytes]) -> AsyncIterator[Batch]:
    yield Batch(events, is_last=True)


async def delete(services: Services, request: Request) -> Response:
    """`DELETE /responses/{id}`."""
    await services.engine.delete(request.path_params["id"], owner_of(request))
    return deleted(request.path_params["id"], "response")


async def cancel(services: Services, request: Request) -> Response:
    """`POST /responses/{id}/cancel`."""
    return JsonAnswer(await services.engine.cancel(request.path_params["id"], owner_of(request)))


async def input_items(services: Services, request: Request) -> Response:
    """`GET /responses/{id}/input_items`."""
    found = await services.engine.input_items(request.path_params["id"], owner_of(request), paging_of(request))
    return list_answer(found)


async def compact(services: Services, request: Request) -> Response:
    """`POST /responses/compact`."""
    return JsonAnswer(await services.engine.compact(await _request(services, request), owner_of(request)))


async def input_tokens(services: Services, request: Request) -> Response:
    """`POST /responses/input_tokens`."""
    count = await services.engine.input_tokens(await _request(services, request), owner_of(request))
    return JsonAnswer({"object": "response.input_tokens", "input_tokens": count})


async def models(services: Services, request: Request) -> Response:
    """`GET /models`."""
    names = await services.engine.list_models()
    return JsonAnswer({"object": "list", "data": [_model(name) for name in names]})


async def model(services: Services, request: Request) -> Response:
    """`GET /models/{name}`."""
    name = request.path_params["name"]
    if name not in await services.engine.list_models():
        raise not_found("model", name)
    return JsonAnswer(_model(name))


async def _request(services: Services, request: Request) -> ResponseRequest:
    return read_request(await body_of(request, services.settings.max_body_bytes))


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "upstream"}

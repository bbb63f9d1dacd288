"""Answer requests of the Responses API from any model: the heart of `ferrule serve`, without HTTP."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from ferrule.history.compaction import newest_words
from ferrule.history.tokens import estimate_all
from ferrule.hosted.tool import HostedTool, Scope
from ferrule.model.calls import random_id
from ferrule.model.stream import ModelError
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.json_text import JsonObject
from ferrule.protocol.truncation import tokens_of_bytes
from ferrule.responses.asking import Asked, Asker
from ferrule.responses.compaction import summarised
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.event_log import EventLog, output_in, terminal_event
from ferrule.responses.failures import api_error, store_error
from ferrule.responses.held import shown
from ferrule.responses.history import BOUNDARY, RUNS, Histories, History, ResponseCache
from ferrule.responses.hosted_calls import HostedCalls, containers_in
from ferrule.responses.ledger import Ending, Ledger, new_id, usage_json
from ferrule.responses.objects import as_bytes, response_object
from ferrule.responses.request import ResponseRequest
from ferrule.responses.run import ResponseRun
from ferrule.responses.seals import sealed
from ferrule.responses.tools import echoed_choice
from ferrule.responses.transcript import encode_items, whole_message
from ferrule.responses.upstream import Upstream
from ferrule.store import Page, Paging, Store, StoredResponse, StoreError
from ferrule.sync import uninterrupted
from ferrule.web.download import Downloads

log = logging.getLogger("ferrule.responses")


BROKEN = "The server made a mistake; its log says which."
RECOVERED_AT_ONCE = 100
"""Responses that are ended together at the start: they share a transaction, and no more of them are in memory."""
NOT_STORED = "The end of this response could not be stored; the server's log says why."
INTERRUPTED = "The server ended while this response ran."


class _Running(msgspec.Struct):
    """A response that runs in this process. `left` is done when it is none of the running ones any more."""

    ledger: Ledger
    owner: str
    left: "asyncio.Future[None]"
    conversation: str | None = None
    task: "asyncio.Task[None] | None" = None
    has_begun: bool = False
    is_cancelled: bool = False


class ResponseEngine:
    """Runs responses, and answers for those that are stored. Call `recover` first and `close` last. `downloads` gets
    the files and images that input names by address."""

    def __init__(
        self,
        upstream: Upstream,
        store: Store,
        *,
        hosted: Sequence[HostedTool] = (),
        downloads: Downloads | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._upstream = upstream
        self._store = store
        self._clock = clock
        self._histories = Histories(store)
        self._asker = Asker(upstream, self._histories, store, hosted, downloads)
        self._running: dict[str, _Running] = {}
        self._taken: set[tuple[str, str]] = set()

    async def recover(self) -> int:
        """End what ran when the last process died. Returns the number of such responses."""
        count = 0
        while found := await self._store.unfinished(RECOVERED_AT_ONCE):
            await asyncio.gather(*(self._fail(stored, INTERRUPTED) for stored in found))
            count += len(found)
        return count

    async def _fail(self, stored: StoredResponse, why: str) -> None:
        """End a response that nobody runs any more."""
        events = await self._store.events(stored.owner, stored.id) if stored.background else ()
        output = output_in(event for _, event in events)
        ended: JsonObject = {
            "status": "failed",
            "error": {"code": "server_error", "message": why},
            "output": [msgspec.json.decode(item) for item in output],
        }
        await self._store.finish_response(
            stored.owner,
            stored.id,
            status="failed",
            body=as_bytes(msgspec.json.decode(stored.body) | ended),
            output=output,
            transcript=stored.transcript or b"[]",
            to_conversation=False,
        )

    async def close(self) -> None:
        """End all that runs."""
        await asyncio.gather(*(self._end(running) for running in list(self._running.values())))

    async def open(self, request: ResponseRequest, owner: str = "", *, cache: ResponseCache | None = None) -> Ledger:
        """Start a response. `cache` holds what one connection did not store. Raises `ApiError` if the request cannot be
        answered."""
        parent = request.known.previous_response_id
        with self._alone_in(request.conversation, owner):
            try:
                asked = await self._asker.read(request, owner, cache)
                allowed = await self._asker.allow(asked)
            except ApiError:
                if cache is not None and parent is not None:
                    cache.drop(parent)
                raise
            return await self._start(asked, allowed, owner, cache)

    async def _start(self, asked: Asked, allowed: frozenset[str], owner: str, cache: ResponseCache | None) -> Ledger:
        request = asked.request
        ledger = self._ledger(asked)
        left = asyncio.get_running_loop().create_future()
        running = self._running[ledger.id] = _Running(ledger, owner, left, request.conversation)
        if request.store and not await self._keep(asked, ledger):
            # Its parent is not stored, or not any more: what comes after must find all of it here.
            asked = msgspec.structs.replace(asked, new=(*asked.history.items, *asked.new))
        running.task = asyncio.create_task(self._run(asked, running, allowed, cache), name=f"ferrule-{ledger.id}")
        return ledger

    async def _keep(self, asked: Asked, ledger: Ledger) -> bool:
        """Store a response that begins; False if its parent is not stored. If nobody waits for that any more, nothing
        is kept: its id was never told."""
        try:
            return await self._store.create_response(self._record(asked, ledger))
        except asyncio.CancelledError:
            await uninterrupted(self._discard(ledger, asked.owner))
            raise
        except BaseException:
            self._forget(ledger)
            raise

    async def _discard(self, ledger: Ledger, owner: str) -> None:
        try:
            await self._store.delete_response(owner, ledger.id)
        finally:
            self._forget(ledger)

    def _forget(self, ledger: Ledger) -> None:
        """The response runs no more."""
        self._running.pop(ledger.id).left.set_result(None)

    @contextmanager
    def _alone_in(self, conversation: str | None, owner: str) -> Iterator[None]:
        """Keep a conversation as it is while a response is read that goes on in it. Raises `ApiError` if one runs."""
        if conversation is None:
            yield
            return
        place = (conversation, owner)
        if place in self._taken or any((one.conversation, one.owner) == place for one in self._running.values()):
            raise ApiError(
                f"Another response of the conversation {conversation!r} runs: wait for its end.",
                status=409,
                code="conversation_locked",
                param="conversation",
            )
        self._taken.add(place)
        try:
            yield
        finally:
            self._taken.discard(place)

    # What stands

    async def retrieve(self, response_id: str, owner: str = "") -> JsonObject:
        """Return a response as it is now. Raises `ApiError` if there is none."""
        ledger = self.ledger(response_id, owner)
        if ledger is not None:
            return ledger.object
        body: JsonObject = msgspec.json.decode((await self._stored(response_id, owner)).body)
        return body

    def ledger(self, response_id: str, owner: str = "") -> Ledger | None:
        """Return the ledger of a response that runs here."""
        running = self._own(response_id, owner)
        return None if running is None else running.ledger

    async def events(self, response_id: str, owner: str, after: int = -1) -> tuple[tuple[int, bytes], ...]:
        """Return the stored events of a background response that has ended, each with its number, after a number.
        Raises `ApiError`."""
        stored = await self._stored(response_id, owner)
        if not stored.background:
            raise ApiError("Only the events of a background response can be read again.", param="stream")
        events = await self._store.events(owner, response_id, -1)
        return tuple(entry for entry in (*events, *terminal_event(stored, events)) if entry[0] > after)

    async def cancel(self, response_id: str, owner: str = "") -> JsonObject:
        """End a background response, and return it. One that has ended stays as it is. Raises `ApiError`."""
        running = self._own(response_id, owner)
        if not (await self.retrieve(response_id, owner)).get("background"):
            raise ApiError(
                "Only a background response can be cancelled; any other ends when its client leaves.",
                code="not_background",
            )
        if running is not None:
            await self._end(running)
        return await self.retrieve(response_id, owner)

    async def abandon(self, ledger: Ledger) -> None:
        """End a response whose client has left, unless it runs in the background."""
        running = self._running.get(ledger.id)
        if running is not None and not ledger.object["background"]:
            await self._end(running)

    async def delete(self, response_id: str, owner: str = "") -> None:
        """Delete a response; one that runs is ended first. Raises `ApiError` if there is none."""
        running = self._own(response_id, owner)
        if running is not None:
            await self._end(running)
        self._histories.recent.drop_all_with(response_id)
        if not await self._store.delete_response(owner, response_id):
            raise not_found("response", response_id)

    async def input_items(self, response_id: str, owner: str, paging: Paging) -> Page[bytes]:
        """Return a page of the items that a response was given. Raises `ApiError` if there is none."""
        page = await self._store.input_items(owner, response_id, paging)
        if page is None:
            raise not_found("response", response_id)
        return page

    # What is asked beside responses

    async def items(self, given: Sequence[JsonObject], owner: str = "") -> tuple[bytes, ...]:
        """Return items for a conversation as JSON; those that are named come along. Raises `ApiError`."""
        return tuple(map(as_bytes, await self._histories.referenced(given, owner, "items")))

    async def input_tokens(self, request: ResponseRequest, owner: str = "") -> int:
        """Return about how many tokens a request would have. Raises `ApiError` as `open` does."""
        asked = (await self._asker.read(request, owner)).upstream
        fixed = len(asked.instructions.encode()) + sum(len(spec.responses_json) for spec in asked.tools)
        return estimate_all(asked.items) + tokens_of_bytes(fixed)

    async def compact(self, request: ResponseRequest, owner: str = "") -> JsonObject:
        """Return a conversation as the user's newest messages and a summary. Raises `ApiError`."""
        if request.known.model is None:
            raise ApiError("model: name the model", code="missing_required_parameter", param="model")
        asked = await self._asker.read(request, owner)
        seen = shown(asked.upstream.items)
        try:
            summary = await summarised(self._upstream.model, msgspec.structs.replace(asked.upstream, items=seen))
        except ModelError as error:
            raise api_error(error) from error
        messages = [whole_message(msgspec.json.decode(item.raw)) for item in newest_words(seen)]
        content = sealed(summary.text)
        return {
            "id": f"resp_{random_id()}{random_id()}",
            "object": "response.compaction",
            "created_at": int(self._clock()),
            "output": [*messages, {"id": new_id("compaction"), "type": "compaction", "encrypted_content": content}],
            "usage": usage_json(summary.usage),
        }

    async def list_models(self) -> tuple[str, ...]:
        """Return the names of the upstream's models. Raises `ApiError`."""
        try:
            return await self._upstream.list_models()
        except ModelError as error:
            raise api_error(error) from error

    # Running

    def _ledger(self, asked: Asked) -> Ledger:
        body = response_object(
            asked.request,
            response_id=f"resp_{random_id()}{random_id()}",
            created_at=int(self._clock()),
            model=asked.upstream.model,
            tools=asked.plan.echoed,
            choice=echoed_choice(asked.request.known.tool_choice),
        )
        obfuscates = asked.request.obfuscates
        return Ledger(body, not_run=asked.plan.not_run, obfuscates=obfuscates, clock=self._clock)

    async def _run(self, asked: Asked, running: _Running, allowed: frozenset[str], cache: ResponseCache | None) -> None:
        """Run a response to its end, whatever that is."""
        ledger, running.has_begun = running.ledger, True
        lane = asked.upstream.session_id or ledger.id
        upstream = msgspec.structs.replace(asked.upstream, session_id=lane)
        known = asked.request.known
        scope = Scope(
            owner=asked.owner,
            lane=lane,
            include=frozenset(known.include or ()),
            containers=containers_in(asked.input),
            items=upstream.items,
            searches=asked.plan.search is not None,
        )
        search = asked.plan.search
        hosted = HostedCalls(asked.plan.hosted, scope, ledger, known.max_tool_calls, allowed, search)
        run = ResponseRun(self._upstream.model, upstream, asked.plan, ledger, asked.options, hosted)
        kept = EventLog(self._store, ledger) if asked.request.background else None
        try:
            ledger.begin(queued=asked.request.background)
            ledger.start()
            ending = Ending("cancelled") if running.is_cancelled else await run.run()
        except asyncio.CancelledError:
            ending = Ending("cancelled", run.usage)
        except Exception:
            log.exception("%s failed", ledger.id)
            ending = Ending("failed", run.usage, "server_error", BROKEN)
        await uninterrupted(self._conclude(asked, ledger, run, ending, cache, kept, hosted))

    async def _conclude(
        self,
        asked: Asked,
        ledger: Ledger,
        run: ResponseRun,
        ending: Ending,
        cache: ResponseCache | None,
        kept: EventLog | None,
        hosted: HostedCalls,
    ) -> None:
        """Store how a response ended, then tell it: what a client was told to be complete is not lost."""
        last = ledger.close(ending)
        history = History((*run.items, *run.said), asked.history.lane or ledger.id)
        try:
            await hosted.close()
            if kept is not None:
                await kept.close()
            if asked.request.store:
                await self._finish(asked, ledger, run, last)
                self._histories.recent.put(ledger.id, history)
            elif cache is not None and ending.status in ("completed", "incomplete"):
                cache.put(ledger.id, history)
        except FerruleError as error:
            log.error("%s could not be stored: %s", ledger.id, error)
            ledger.error = store_error(error) if isinstance(error, StoreError) else ApiError(NOT_STORED, status=500)
            last |= {"status": "failed", "error": {"code": "server_error", "message": str(ledger.error)}}
        finally:
            self._forget(ledger)
            ledger.publish(last)

    async def _finish(self, asked: Asked, ledger: Ledger, run: ResponseRun, last: JsonObject) -> None:
        added = (BOUNDARY, *run.items) if run.compacted else asked.new
        await self._store.finish_response(
            asked.owner,
            ledger.id,
            status=str(last["status"]),
            body=as_bytes(last),
            output=tuple(map(as_bytes, ledger.output)),
            transcript=encode_items((*added, *run.said)),
        )

    async def _end(self, running: _Running) -> None:
        """Cancel a response, and wait until it has ended. A task that is cancelled before its first step would not even
        conclude, so one that has not begun finds it noted."""
        running.is_cancelled = True
        if running.task is not None and running.has_begun:
            running.task.cancel()
        await asyncio.shield(running.left)

    # Stored responses

    def _record(self, asked: Asked, ledger: Ledger) -> StoredResponse:
        return StoredResponse(
            id=ledger.id,
            owner=asked.owner,
            created_at=int(self._clock()),
            status=str(ledger.object["status"]),
            body=as_bytes(ledger.object),
            parent=asked.request.known.previous_response_id,
            conversation=asked.request.conversation,
            background=asked.request.background,
            input=tuple(map(as_bytes, asked.input)),
        )

    def _own(self, response_id: str, owner: str) -> _Running | None:
        running = self._running.get(response_id)
        return running if running is not None and running.owner == owner else None

    async def _stored(self, response_id: str, owner: str) -> StoredResponse:
        """Return a stored response that does not run. One whose end could not be stored gets one now."""
        stored = await self._store.response(owner, response_id)
        if stored is not None and stored.status in RUNS and response_id not in self._running:
            await self._fail(stored, NOT_STORED)
            stored = await self._store.response(owner, response_id)
        if stored is None:
            raise not_found("response", response_id)
        return stored

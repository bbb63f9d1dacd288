"""The shared request cycle of all wires: build the body, send it, merge the stream, retry if that helps."""

import asyncio
import operator
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import lru_cache
from typing import ClassVar, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from ferrule.model.adapt import WireTools, adapt_tools, knows_tool, without_refused
from ferrule.model.calls import CallReader, random_id
from ferrule.model.http import Server
from ferrule.model.lessons import Lesson, about, changed_fields, taken_for
from ferrule.model.names import KnownIds
from ferrule.model.profiles import Profiles, ProviderProfile
from ferrule.model.recipient import ANYWHERE, MAX_HEALS, NOTHING_OMITTED, Healed, Recipient, family_of
from ferrule.model.retry import Batches, in_words, with_retries
from ferrule.model.stream import (
    CallUnreadable,
    ContentFiltered,
    Created,
    ItemDone,
    Learned,
    LeftOut,
    ModelError,
    ModelRequest,
    PassedOver,
    ResponseEvent,
)
from ferrule.model.switched import left_behind
from ferrule.protocol.items import Origin, ResponseItem
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.specs import ToolSpec, Wire

DRAIN_S = 0.5
"""Longest wait for the end of a finished stream. A longer one would cost more than a new connection."""


_TOOL_PLACE = re.compile(r"\btools[\[.]([0-9]{1,4})")


LOST_RESPONSE = "previous_response_not_found"
"""The error code for a stored response that is gone."""


KEPT_MODELS = 64
"""Names of models whose profiles are kept: looking one up takes as long as a short request's head."""
KEPT_SESSIONS = 64
"""Sessions with cached conversions, unless told otherwise: another one only converts its history again."""


class Body(Protocol):
    """A builder of request bodies that remembers its conversions."""

    def build(self, request: ModelRequest, tools: WireTools, profile: ModelProfile) -> bytes:
        """Build the body of one request."""
        ...


class Merger(Protocol):
    """A merger of one response's payloads into events."""

    @property
    def ended(self) -> bool:
        """Nothing more is expected."""
        ...

    @property
    def said_all(self) -> bool:
        """The answer is whole even if the stream breaks now."""
        ...

    @property
    def error(self) -> ModelError | None:
        """The server's error; it counts after the events of the same `feed`."""
        ...

    def feed(self, payloads: Iterable[bytes]) -> Sequence[ResponseEvent]:
        """Return the events of these payloads."""
        ...

    def close(self) -> Sequence[ResponseEvent]:
        """Return the events at the end of the stream. Raises `ModelError` if it came too early."""
        ...

    def partial(self) -> ResponseItem | None:
        """Return the text of an incomplete message."""
        ...


class _Asked(NamedTuple):
    """A session's server and model, and what is sent there."""

    recipient: Recipient
    body: Body
    profile: ModelProfile
    left_behind: tuple[str, ...]
    """What the conversation held that cannot go there, in words."""


class _SessionState:
    """The state kept between a session's requests."""

    def __init__(self, accepts: ProviderProfile) -> None:
        self.accepts = accepts
        self.omitted = NOTHING_OMITTED
        self.model = ""
        self.asked: _Asked | None = None
        self.specs: tuple[ToolSpec, ...] = ()
        self.tools = WireTools.empty()
        self.ids = KnownIds()
        self.passed_over: set[str] = set()
        self.is_told = True
        self.left_out: set[str] = set()


class WireModel:
    """A model behind a server. One object can serve many sessions at once; each has its own history cache."""

    wire: ClassVar[Wire]
    path: ClassVar[str]
    native_calls: ClassVar[bool] = True
    """The server reads the model's calls. Where it does not, all are read as calls of functions."""
    functions_only: ClassVar[bool] = False
    """The wire has no freeform tools."""
    fixed_headers: ClassVar[Mapping[str, str]] = {}
    """Headers that the API wants with every request."""

    def __init__(
        self,
        server: Server,
        accepts: ProviderProfile,
        profiles: Profiles,
        *,
        max_retries: int,
        new_id: Callable[[], str] = random_id,
        kept_sessions: int = KEPT_SESSIONS,
    ) -> None:
        self.server = server
        plain = self.functions_only or not self.native_calls
        self.accepts = msgspec.structs.replace(accepts, custom_tools=False) if plain else accepts
        self.profiles = profiles
        self._profile_of = lru_cache(KEPT_MODELS)(profiles.model)
        self._max_retries = max_retries
        self._new_id = new_id
        self._kept_sessions = kept_sessions
        self._sessions: OrderedDict[str, _SessionState] = OrderedDict()

    def new_body(self, recipient: Recipient) -> Body:
        """Return this wire's request builder for one server and model family."""
        raise NotImplementedError

    def new_merger(self, calls: CallReader, tools: WireTools) -> Merger:
        """Return the merger for one response of this wire."""
        raise NotImplementedError

    def headers(self, given: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Return the headers of a request: those that it was `given`, and what this wire adds."""
        return given

    async def aclose(self) -> None:
        """Close the connections."""
        await self.server.aclose()

    def tools(self, specs: tuple[ToolSpec, ...], session_id: str = "") -> WireTools:
        """Return the tools as sent, rebuilt only if a spec changed. Raises `ModelError` for a tool that cannot be
        sent."""
        state = self._state(session_id)
        if len(specs) != len(state.specs) or any(map(operator.is_not, specs, state.specs)):
            state.tools = without_refused(adapt_tools(specs, state.accepts, self.wire), state.omitted)
            state.specs = specs
        return state.tools

    def knows_tool(self, kind: str) -> bool:
        """Return whether the server takes native tools of this type."""
        return knows_tool(self.accepts, self.wire, kind)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body sent for `request`. Raises `ModelError` if a tool cannot be sent."""
        tools = self.tools(request.tools, request.session_id)
        asked = self._asked(request)
        return asked.body.build(request, tools, asked.profile)

    def _asked(self, request: ModelRequest) -> _Asked:
        """Return a session's server and model, rebuilt only for another model or after a refusal."""
        state = self._state(request.session_id)
        if state.asked is None or state.model != request.model:
            profile = self._profile_of(request.model)
            recipient = Recipient(
                state.accepts,
                self._provider,
                family_of(request.model),
                self.wire,
                profile.image_input,
                state.omitted,
            )
            state.model, state.asked = (
                request.model,
                _Asked(recipient, self.new_body(recipient), profile, left_behind(request.items, recipient)),
            )
        return state.asked

    def maker(self, model: str) -> Origin:
        """Return the origin of what this model says, without the place in a conversation."""
        return Origin(self._provider, family_of(model))

    @property
    def _provider(self) -> str:
        endpoint = self.server.endpoint
        return f"{endpoint.provider}{ANYWHERE}{endpoint.name}@{urlsplit(endpoint.base_url).hostname}"

    def _state(self, session_id: str) -> _SessionState:
        """Return what is kept of a session and mark it as most recently used."""
        state = self._sessions.pop(session_id, None) or _SessionState(self.accepts)
        self._sessions[session_id] = state
        if len(self._sessions) > self._kept_sessions:
            self._sessions.popitem(last=False)
        return state

    def stream(self, request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        """Send one request; see `Model.stream`."""
        return with_retries(lambda: self._attempt(request), self._max_retries)

    async def _attempt(self, request: ModelRequest, healed_before: tuple[Healed, ...] = ()) -> Batches:
        """Send one request. If the server has lost the stored response, send the whole history instead; if it refuses
        a dispensable part, send the rest."""
        self._recall(request)
        body = self.body(request)
        tools = self.tools(request.tools, request.session_id)
        asked = self._asked(request)
        if news := self._untold(request, (*tools.left_out, *asked.left_behind)):
            yield news
        reader = CallReader(tools.names, request, self._new_id, self._state(request.session_id).ids)
        merger = self.new_merger(reader, tools)
        recipient = asked.recipient
        origin = Origin(recipient.provider, recipient.family, len(request.items))
        given_out = False
        try:
            headers = self.headers(request.headers, body)
            async with aclosing(self.server.events(self.path, body, request.on_sent, headers)) as arrivals:
                async for payloads in arrivals:
                    events = self._told_once(request, _signed(merger.feed(payloads), origin))
                    given_out = given_out or any(not isinstance(event, Created | PassedOver) for event in events)
                    yield events
                    if merger.error is not None:
                        raise merger.error
                    if merger.ended:
                        yield [*_signed(merger.close(), origin), *self._learned(request)]
                        await _drain(arrivals)
                        return
            yield [*_signed(merger.close(), origin), *self._learned(request)]
            return
        except ModelError as error:
            self.server.hide(error)
            if merger.said_all:
                yield _signed(merger.close(), origin)
                return
            if request.previous_response_id is not None and LOST_RESPONSE in str(error):
                request = _without_stored(request)
            elif self._may_heal(error, given_out, healed_before) and (healed := _heal(error, request, recipient, body)):
                _name_tool(error, tools)
                healed_before = (*healed_before, Healed(recipient.accepts, recipient.omitted, str(error)))
                self._take_for(request, healed)
                if healed.omitted.unreadable != recipient.omitted.unreadable:  # the stored response holds it, too
                    request = _without_stored(request)
                yield [LeftOut(f"{str(error).rstrip('.')}; going on without {healed.what}")]
            else:
                error.partial = merger.partial()
                self._give_up(request, error, tools, healed_before)
                raise
        async with aclosing(self._attempt(request, healed_before)) as batches:
            async for batch in batches:
                yield batch

    def _give_up(
        self, request: ModelRequest, error: ModelError, tools: WireTools, healed_before: tuple[Healed, ...]
    ) -> None:
        """Make an error ready for whoever asked. What was healed in vain is forgotten, or told of."""
        self._limit_wait(error)
        _name_tool(error, tools)
        if healed_before and not error.retryable:
            self._take_for(request, healed_before[0])  # it was something else, so everything may be sent again
        elif healed_before:
            error.args = (f"{error} Before that: {healed_before[-1].what}",)

    def _limit_wait(self, error: ModelError) -> None:
        """Report a pause longer than the user accepts instead of waiting."""
        wait, endpoint = error.retry_after_ms, self.server.endpoint
        if wait is not None and wait > endpoint.longest_wait_ms and error.retryable:
            error.retryable = False
            text = f"{endpoint.name} asks to wait {in_words(wait)} before the next request (longest_wait_ms): {error}"
            error.args = (text,)

    def _told_once(self, request: ModelRequest, events: Sequence[ResponseEvent]) -> Sequence[ResponseEvent]:
        """Return the events, with each kind of unreadable event reported once per session."""
        if not any(type(event) is PassedOver for event in events):
            return events
        told = self._state(request.session_id).passed_over
        kept: list[ResponseEvent] = []
        for event in events:
            if not isinstance(event, PassedOver) or event.kind not in told:
                kept.append(event)
            if isinstance(event, PassedOver):
                told.add(event.kind)
        return kept

    def _untold(self, request: ModelRequest, left_out: Sequence[str]) -> Sequence[ResponseEvent]:
        """Report once what is not sent in a session."""
        told = self._state(request.session_id).left_out
        news = [LeftOut(text) for text in left_out if text not in told]
        told.update(left_out)
        return news

    @staticmethod
    def _may_heal(error: ModelError, given_out: bool, healed_before: tuple[Healed, ...]) -> bool:
        return (
            not given_out and not isinstance(error, CallUnreadable | ContentFiltered) and len(healed_before) < MAX_HEALS
        )

    def _take_for(self, request: ModelRequest, healed: Healed) -> None:
        """Remember for the session what its server refuses."""
        state = self._state(request.session_id)
        state.accepts, state.omitted, state.specs, state.asked = healed.accepts, healed.omitted, (), None
        state.is_told = False

    def _recall(self, request: ModelRequest) -> None:
        """Apply the session's lessons to the server."""
        if not request.lessons or request.session_id in self._sessions:
            return
        if (lesson := about(request.lessons, self._provider, self.wire, request.model)) is not None:
            state = self._state(request.session_id)
            state.accepts, state.omitted = taken_for(self.accepts, lesson), lesson.omitted

    def _learned(self, request: ModelRequest) -> Sequence[ResponseEvent]:
        """Report new lessons about the server, once a request has confirmed them."""
        state = self._state(request.session_id)
        if state.is_told:
            return ()
        state.is_told = True
        changed = changed_fields(self.accepts, state.accepts)
        return [Learned(Lesson(self._provider, self.wire, request.model, changed, state.omitted))]


def _heal(error: ModelError, request: ModelRequest, recipient: Recipient, body: bytes) -> Healed | None:
    """Return how to treat the server from now on, if a rule knows. The rules are loaded for the first refusal."""
    from ferrule.model.heal import heal

    return heal(error, request, recipient, body)


def _without_stored(request: ModelRequest) -> ModelRequest:
    """Return the request with the whole history, without what the server has stored of it."""
    return msgspec.structs.replace(request, previous_response_id=None, stored_items=0)


def _signed(events: Sequence[ResponseEvent], origin: Origin) -> Sequence[ResponseEvent]:
    """Return the events, with items marked by their maker."""
    if not any(type(event) is ItemDone for event in events):
        return events
    return [_with_origin(event, origin) if isinstance(event, ItemDone) else event for event in events]


def _with_origin(event: ItemDone, origin: Origin) -> ItemDone:
    own = Origin(origin.provider, origin.family, origin.response, event.place)
    return ItemDone(ResponseItem(event.item.raw, event.item.view, own), event.place)


def _name_tool(error: ModelError, sent: WireTools) -> None:
    """Name the tool if a server refuses `tools[3]`."""
    place = _TOOL_PLACE.search(str(error))
    if place is not None and int(place[1]) < len(sent.tools):
        tool = sent.tools[int(place[1])]
        error.args = (f"{error} The tool there is {tool.name or tool.kind!r}.",)


async def _drain(arrivals: AsyncIterator[object]) -> None:
    """Read a finished stream to its end, so that its connection can be reused."""
    with suppress(TimeoutError, ModelError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in arrivals:
                pass

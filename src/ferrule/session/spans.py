"""The spans and metrics of a session, by OpenTelemetry's conventions for generative AI. See docs/observability.md.

They are wrapped around the seams of a session when it is opened: its turns, its requests to the model, its dispatcher
and its host. So each span ends however its work ends, and is the parent of what happens in it, in other tasks too.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import Histogram, Meter, MeterProvider
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, use_span

from ferrule._version import __version__
from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.dispatch.host import SessionHost
from ferrule.dispatch.router import RoutedCall
from ferrule.history.pairs import called_id
from ferrule.model.profiles import UNRECOGNISED
from ferrule.model.stream import (
    Completed,
    Created,
    ItemDone,
    LeftOut,
    Model,
    ModelError,
    ModelRequest,
    ResponseEvent,
    Retrying,
)
from ferrule.model.wire import WireModel
from ferrule.protocol.errors import UnknownTool
from ferrule.protocol.events import ElicitationRequest, ExecApproval, TokenUsage
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.settings import Settings
from ferrule.session.span_contents import Redaction, arguments_of, messages, secrets_of
from ferrule.tools.context import Access, Attempt, ToolContext, ToolInvocation
from ferrule.tools.effects import CommandEffect, CommandResult, Effect
from ferrule.tools.handler import ToolHandler
from ferrule.tools.questions import Answer, Decision, NoAnswer, Question


class Turn(Protocol):
    """A turn, as far as its span tells of it."""

    @property
    def id(self) -> str: ...
    @property
    def usage(self) -> TokenUsage: ...


T = TypeVar("T")
Stream = Callable[[ModelRequest], AsyncGenerator[ResponseEvent, None]]

log = logging.getLogger("ferrule.session")

NAME = "ferrule"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.42.0"
"""The version of the conventions."""

TOKENS = tuple(4**power for power in range(14))
"""Bounds of the histograms' buckets, as the conventions say."""
SECONDS = tuple(0.01 * 2**power for power in range(14))
AGENT_SECONDS = tuple(0.1 * 2**power for power in range(13))

CANCELLED = "cancelled"
OTHER = "_OTHER"
"""An error without a kind of its own, and a tool that does not exist."""
PROVIDERS = {
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "gemini": "gcp.gemini",
    "xai": "x_ai",
    "moonshot": "moonshot_ai",
}
"""Where the conventions have another name for a provider."""

FINISH_REASONS = {"max_output_tokens": "length"}


class _Metrics:
    """The instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, description: str, bounds: Sequence[float]) -> Histogram:
            try:
                return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=list(bounds))
            except TypeError:  # OpenTelemetry before 1.30, which a program may bring
                return meter.create_histogram(name, unit, description)

        self.tokens = histogram(
            "gen_ai.client.token.usage", "{token}", "Number of input and output tokens used.", TOKENS
        )
        self.request = histogram("gen_ai.client.operation.duration", "s", "GenAI operation duration.", SECONDS)
        self.first_chunk = histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "Time to receive the first chunk.", SECONDS
        )
        self.agent = histogram("gen_ai.invoke_agent.duration", "s", "Duration of an agent's turn.", AGENT_SECONDS)
        self.tool = histogram("gen_ai.execute_tool.duration", "s", "Duration of a tool call.", SECONDS)


@lru_cache(maxsize=8)
def _metrics_of(provider: MeterProvider) -> _Metrics:
    """Make a provider's instruments once: an SDK warns of a second one of the same name, and the bare API, where only
    spans are collected, keeps each meter for ever."""
    return _Metrics(provider.get_meter(NAME, __version__, schema_url=SCHEMA_URL))


class Spans:
    """Reports one session. `agent` is the role of a sub-agent."""

    def __init__(
        self,
        settings: Settings,
        model: Model,
        model_name: str,
        session_id: str,
        agent: str | None,
        env: Mapping[str, str],
        secrets: Sequence[str],
    ) -> None:
        self._tracer = trace.get_tracer(NAME, __version__, schema_url=SCHEMA_URL)
        self.metrics = _metrics_of(metrics.get_meter_provider())
        self.hide = Redaction((*secrets, *secrets_of(settings, env))) if settings.otel.contents else None
        self._propagate = settings.otel.propagate
        self.agent = agent or NAME
        self.conversation = {"gen_ai.conversation.id": session_id}
        self._model = _said({"gen_ai.request.model": model_name, "gen_ai.provider.name": _provider(model)})
        self._model |= _address(model)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any], kind: SpanKind = SpanKind.INTERNAL) -> Iterator[Span]:
        """Open a span, inside which the block runs. What the block raises is the span's error."""
        span = self.start(name, attributes, kind)
        try:
            with use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            self.fail(span, kind_of(error), str(error))
            raise
        finally:
            end(span)

    def start(self, name: str, attributes: Mapping[str, Any], kind: SpanKind) -> Span:
        """Begin a span. Nothing that a program has put into its SDK, such as a sampler, fails a turn."""
        try:
            return self._tracer.start_span(name, kind=kind, attributes={**attributes, **self.conversation})
        except Exception:  # the program's own code
            log.exception("a span could not be started")
            return INVALID_SPAN

    def fail(self, span: Span, kind: str, message: str) -> None:
        """Mark a span as failed. The message can quote what was said, so it is told only with contents."""
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, self.hide(message) if self.hide is not None and message else None))

    async def turn(self, turn: Turn, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work of a turn."""
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self.agent}
        started, labels = (
            time.monotonic(),
            _said({"gen_ai.agent.name": self.agent, "gen_ai.request.model": self._model.get("gen_ai.request.model")}),
        )
        with self.span(f"invoke_agent {self.agent}", self._model | about | {"ferrule.turn.id": turn.id}) as span:
            try:
                return await work()
            except BaseException as error:
                labels["error.type"] = kind_of(error)
                raise
            finally:
                span.set_attributes(_tokens(turn.usage))
                self.metrics.agent.record(time.monotonic() - started, labels)

    def asking(self, stream: Stream) -> Stream:
        """Return `stream` with a span around each request."""

        async def ask(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
            asked = _Request(self, self._model | {"gen_ai.operation.name": "chat"})
            name, attributes = f"chat {request.model}".rstrip(), asked.attributes(request)
            span = self.start(name, attributes, SpanKind.CLIENT)
            try:
                if self._propagate:
                    headers = dict(request.headers)
                    propagate.inject(headers, trace.set_span_in_context(span))
                    request = msgspec.structs.replace(request, headers=headers)
                async with aclosing(stream(request)) as events:
                    while (event := await _next(events, span)) is not None:
                        asked.saw(span, event)
                        yield event
            except BaseException as error:
                asked.failed(span, error)
                raise
            finally:
                asked.end(span)

        return ask

    def host(self, *parts: Any) -> SessionHost:
        """Make the session's host."""
        return _Host(self, *parts)

    def dispatcher(self, *parts: Any, **more: Any) -> Dispatcher:
        """Make a dispatcher."""
        return _Dispatcher(self, *parts, **more)


def end(span: Span) -> None:
    """End a span. Nothing that a program has put into its SDK, such as a processor, fails a turn."""
    try:
        span.end()
    except Exception:  # the program's own code
        log.exception("a span could not be reported")


async def _next(events: AsyncGenerator[ResponseEvent, None], span: Span) -> ResponseEvent | None:
    """Return the next event, None at the end. The span is the current one only while the model works: the calls that
    its events start are not part of the request."""
    with use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        try:
            return await events.__anext__()
        except StopAsyncIteration:
            return None


class _Request:
    """One request to the model, with all its retries."""

    def __init__(self, spans: Spans, labels: dict[str, Any]) -> None:
        self._spans = spans
        self._labels = labels
        self._started = time.monotonic()
        self._first: float | None = None
        self._usage = TokenUsage()
        self._ended = False
        self._items: list[ResponseItem] = []

    def attributes(self, request: ModelRequest) -> dict[str, Any]:
        """Return what is known before the answer."""
        settings, hide = request.settings, self._spans.hide
        given: dict[str, Any] = {
            **self._labels,
            "gen_ai.request.stream": True,
            "gen_ai.output.type": None if request.output_format is None else "json",
            "gen_ai.request.temperature": settings.temperature,
            "gen_ai.request.top_p": settings.top_p,
            "gen_ai.request.presence_penalty": settings.presence_penalty,
            "gen_ai.request.frequency_penalty": settings.frequency_penalty,
            "gen_ai.request.stop_sequences": settings.stop or None,
            "gen_ai.request.seed": settings.seed,
            "gen_ai.request.max_tokens": settings.max_output_tokens,
        }
        if hide is not None:
            instructions = [{"type": "text", "content": hide(request.instructions)}]
            given["gen_ai.system_instructions"] = msgspec.json.encode(instructions).decode()
            given["gen_ai.input.messages"] = messages(request.items, hide)
        return _said(given)

    def saw(self, span: Span, event: ResponseEvent) -> None:
        """Take an event of the answer."""
        if isinstance(event, Retrying):
            self._usage += event.usage or TokenUsage()
            span.add_event("ferrule.retry", {"ferrule.retry.delay": event.delay_ms / 1000})
            return
        if self._first is None and not isinstance(event, LeftOut):
            self._first = time.monotonic() - self._started
            span.set_attribute("gen_ai.response.time_to_first_chunk", self._first)
        if isinstance(event, Created) and event.model:
            self._labels["gen_ai.response.model"] = event.model
        elif isinstance(event, ItemDone):
            self._items.append(event.item)
        elif isinstance(event, Completed):
            self._ended = True
            self._usage += event.usage or TokenUsage()
            if event.response_id:
                span.set_attribute("gen_ai.response.id", event.response_id)
            span.set_attribute("gen_ai.response.finish_reasons", [self._reason(event.incomplete)])

    def _reason(self, incomplete: str | None) -> str:
        """Return why the model stopped, in the conventions' words where they have one."""
        if incomplete is not None:
            return FINISH_REASONS.get(incomplete, incomplete)
        return "tool_call" if any(called_id(item.view) is not None for item in self._items) else "stop"

    def failed(self, span: Span, error: BaseException) -> None:
        """Take the error that ended the request. Whoever closes a finished answer ends it well."""
        if isinstance(error, GeneratorExit) and self._ended:
            return
        if isinstance(error, ModelError):
            self._usage += error.usage or TokenUsage()
        self._labels["error.type"] = kind_of(error)
        self._spans.fail(span, kind_of(error), str(error))

    def end(self, span: Span) -> None:
        """End the span and record the metrics."""
        measured, labels = self._spans.metrics, self._labels
        if "gen_ai.response.model" in labels:
            span.set_attribute("gen_ai.response.model", labels["gen_ai.response.model"])
        if self._usage.total_tokens:
            span.set_attributes(_tokens(self._usage))
            measured.tokens.record(self._usage.input_tokens, _without_error(labels) | {"gen_ai.token.type": "input"})
            measured.tokens.record(self._usage.output_tokens, _without_error(labels) | {"gen_ai.token.type": "output"})
        if self._first is not None:
            measured.first_chunk.record(self._first, _without_error(labels))
        if self._spans.hide is not None and self._items:
            span.set_attribute("gen_ai.output.messages", messages(self._items, self._spans.hide))
        measured.request.record(time.monotonic() - self._started, labels)
        end(span)


_call_labels: ContextVar[dict[str, str]] = ContextVar("ferrule_call_labels")
"""Of the call that runs: what it raises is noted there."""


class _Dispatcher(Dispatcher):
    """A dispatcher with a span around each call, also those of one tool by another."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Spans, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._spans = spans

    async def run(self, routed: RoutedCall) -> ToolOutput:
        with self._call(routed.invocation, known=routed.handler is not None) as answered:
            return answered(await super().run(routed))

    async def call(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        known = self.registry.find(invocation.tool_name, invocation.namespace) is not None
        with self._call(invocation, known=known) as answered:
            return answered(await super().call(invocation, ctx))

    async def _handle(self, handler: ToolHandler, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Tell the span what the tool raised, before that becomes the model's text."""
        try:
            return await super()._handle(handler, invocation, ctx)
        except BaseException as error:
            _call_labels.get()["error.type"] = kind_of(error)
            raise

    @contextmanager
    def _call(self, invocation: ToolInvocation, *, known: bool) -> Iterator[Callable[[ToolOutput], ToolOutput]]:
        spans, started = self._spans, time.monotonic()
        name = ".".join(filter(None, invocation.key)) if known else OTHER
        labels = {"gen_ai.tool.name": name, "gen_ai.tool.type": "function", "gen_ai.agent.name": spans.agent}
        about = labels | {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": invocation.call_id}
        if spans.hide is not None:
            about["gen_ai.tool.call.arguments"] = spans.hide(arguments_of(invocation.payload))
        with spans.span(f"execute_tool {name}", about) as span:

            def answered(output: ToolOutput) -> ToolOutput:
                if spans.hide is not None:
                    span.set_attribute("gen_ai.tool.call.result", spans.hide(output.text))
                if output.success is False:
                    spans.fail(
                        span, labels.setdefault("error.type", OTHER if known else UnknownTool.__name__), output.text
                    )
                return output

            token = _call_labels.set(labels)
            try:
                yield answered
            except BaseException as error:
                labels["error.type"] = kind_of(error)
                raise
            finally:
                _call_labels.reset(token)
                spans.metrics.tool.record(time.monotonic() - started, labels)


class _Host(SessionHost):
    """A host with a span around each command and each wait for the user."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Spans, *parts: Any) -> None:
        super().__init__(*parts)
        self._spans = spans

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """See `ToolContext.run`."""
        if not isinstance(effect, CommandEffect):
            return await super().run(ctx, effect, attempt)
        return await super().run(ctx, effect, lambda access: self._command(ctx, effect, access, attempt))

    async def _command(self, ctx: ToolContext, effect: CommandEffect, access: Access, attempt: Attempt[T]) -> T:
        about = {"gen_ai.tool.call.id": ctx.call_id, "ferrule.sandboxed": access.sandboxed}
        if self._spans.hide is not None:
            about["process.command_args"] = [self._spans.hide(word) for word in effect.argv]
        with self._spans.span("run_command", about) as span:
            result = await attempt(access)
            if isinstance(result, CommandResult):
                span.set_attribute("ferrule.command.running", result.exit_code is None)
                if result.exit_code is not None:
                    span.set_attribute("process.exit.code", result.exit_code)
                if result.timed_out:
                    self._spans.fail(span, "timeout", "")
            return result

    async def question(self, question: Question) -> Answer:
        """Ask the user. What a sub-agent asks is its own wait."""
        if question.agent_id:
            return await super().question(question)
        kind = question.kind if isinstance(question, ExecApproval) else str(question.__struct_config__.tag)
        about = {"ferrule.question.kind": kind}
        if not isinstance(question, ElicitationRequest):
            about["gen_ai.tool.call.id"] = question.call_id
        with self._spans.span(f"ask_user {kind}", about) as span:
            answer = await super().question(question)
            if isinstance(answer, Decision):
                span.set_attribute("ferrule.question.decision", str(answer.decision.value))
            elif isinstance(answer, NoAnswer):
                span.set_attribute("ferrule.question.decision", "unanswered")
            return answer


def kind_of(error: BaseException) -> str:
    """Return an error's kind: one of few words, none of what was said. The HTTP status of a server's refusal."""
    if isinstance(error, ModelError) and error.status is not None:
        return str(error.status)
    return CANCELLED if type(error).__name__ in ("CancelledError", "GeneratorExit") else type(error).__name__


def _tokens(usage: TokenUsage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_input_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_output_tokens,
    }


def _without_error(labels: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in labels.items() if name != "error.type"}


def _said(labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a value."""
    return {name: value for name, value in labels.items() if value not in (None, "")}


def _provider(model: Model) -> str:
    """Return the conventions' name of a provider, else the profile's, else the user's."""
    if not isinstance(model, WireModel):
        return type(model).__name__
    profile = model.accepts.name
    if profile in UNRECOGNISED.values():
        return model.server.endpoint.provider or OTHER
    return PROVIDERS.get(profile, profile)


def _address(model: Model) -> dict[str, Any]:
    """Return where a model's server is."""
    if not isinstance(model, WireModel):
        return {}
    parts = urlsplit(model.server.endpoint.base_url)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }

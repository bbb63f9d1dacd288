"""`Agent`: a model, its tools and its rights in one object, for programs that want a result and no terminal."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import MethodType
from typing import Any

import msgspec

from ferrule.config import ferrule_home
from ferrule.dispatch.front_end import callbacks, policy_for
from ferrule.model.stream import Model
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import Event
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import SandboxMode, SandboxPolicy, as_policy
from ferrule.protocol.prices import Prices
from ferrule.protocol.settings import ModelSettings, ProviderSettings, ReasoningEffort, Settings, usual_provider
from ferrule.protocol.specs import Wire
from ferrule.session.hooks import Hook
from ferrule.session.offline import open_offline
from ferrule.session.opening import open_session
from ferrule.session.output_type import OutputType
from ferrule.session.result import TurnResult
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import StoredSession
from ferrule.session.session import ImageLike, Prompt, Session
from ferrule.session.sources import ToolLike
from ferrule.session.stream import EventStream
from ferrule.session.tool_choice import ToolChoiceLike
from ferrule.sync import Closing, background_loop, close_at_exit, wait_for_coroutine
from ferrule.tools.answering import Approver, Listener, Questioned
from ferrule.tools.context import ToolContext
from ferrule.tools.events import ToolEvent


class _on_class_or_instance:  # noqa: N801 - a decorator
    """A method that, called on the class, acts on an agent made without arguments: `Agent.resume(id)`."""

    def __init__(self, method: "Callable[[Agent, str | None], Coroutine[Any, Any, Session]]") -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, agent: "Agent | None", owner: "type[Agent]") -> "Callable[..., Coroutine[Any, Any, Session]]":
        return MethodType(self._method, owner() if agent is None else agent)


class Agent(Closing):
    """Runs prompts. Each `run` is a session of its own; `open` gives a session for several turns. The end of `async
    with` or `with` closes what `tools_map` keeps open.

    `model` is a name, or a `Model`. `base_url` and `wire` reach any server; without them it is OpenAI by
    `OPENAI_API_KEY`, with no more than `wire="messages"` Anthropic by `ANTHROPIC_API_KEY`. `tools` are names (globs,
    `/regex/`), functions and definitions; None: what the model was trained on. `mcp_config` is `{"mcpServers": {NAME:
    {"command": ...}}}`. `on_approval` decides what `approval_policy` asks (`on-request` with it, `never` without,
    unless given), and `on_question` answers the rest; without them it is refused. `on_event` sees everything.
    `token_budget` and `cost_budget` bound a session; the latter needs `prices` per million tokens: `{"input": 1.25,
    "cached_input": 0.125, "output": 10}`. Raises `UsageError` for what does not exist.
    """

    def __init__(  # noqa: PLR0913 - the one place where everything can be said
        self,
        model: str | Model | None = None,
        *,
        tools: Sequence[ToolLike] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        sandbox: str | SandboxPolicy | None = None,
        approval_policy: str | None = None,
        instructions: str | None = None,
        base_url: str | None = None,
        wire: Wire | None = None,
        provider: ProviderSettings | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        max_turns: int | None = None,
        max_tool_calls: int | None = None,
        token_budget: int | None = None,
        cost_budget: float | None = None,
        prices: Prices | Mapping[str, float] | None = None,
        timeout: float | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        output_type: Any = None,
        store: bool = False,
        output_schema: Mapping[str, Any] | None = None,
        mcp_config: Mapping[str, Any] | None = None,
        hooks: Sequence[Hook] = (),
        on_event: Listener | None = None,
        on_approval: Approver | None = None,
        on_question: Questioned | None = None,
    ) -> None:
        if base_url is not None and provider is None:
            provider = ProviderSettings(name="server", base_url=base_url)
        if wire is not None and provider is None:
            provider = ProviderSettings(name=usual_provider(wire))
        if wire is not None and provider is not None:
            provider = msgspec.structs.replace(provider, wire_api=wire)
        if api_key is not None and provider is None:
            provider = ProviderSettings(name="openai")
        name = model if isinstance(model, str) or model is None else None
        self._model = None if isinstance(model, str) else model
        self._given = Given(
            cwd=cwd is not None,
            sandbox=sandbox is not None,
            approval=approval_policy is not None,
            provider=provider is not None,
            tools=tools is not None,
        )
        self._tools = tools
        self._hooks = hooks
        self._answers = (on_event, on_approval, on_question)
        self._kept: _Kept | None = None
        self._api_key = api_key
        self._output_type = None if output_type is None else OutputType(output_type)
        if self._output_type is not None and output_schema is None:
            output_schema = self._output_type.schema
        self.settings = Settings(
            cwd=os.path.realpath(cwd or "."),
            home=ferrule_home(),
            model=ModelSettings(
                model=name,
                reasoning_effort=reasoning_effort,
                temperature=temperature,
                max_output_tokens=max_output_tokens,
            ),
            provider=provider,
            approval_policy=policy_for(approval_policy, on_approval),
            sandbox_policy=as_policy(sandbox or SandboxMode.WORKSPACE_WRITE),
            instructions=instructions,
            max_turns=max_turns,
            max_tool_calls=max_tool_calls,
            run_token_budget=token_budget,
            run_cost_budget=cost_budget,
            prices={} if prices is None else {"*": _prices(prices)},
            turn_timeout=timeout,
            output_schema=None if output_schema is None else dict(output_schema),
            ephemeral=not store,
            mcp_servers=_servers(mcp_config),
            named_servers=_without_approval(mcp_config),
        )

    async def open(self) -> Session:
        """Open a session for several turns; close it, or use it in `async with`."""
        return await self._open(self.settings)

    @_on_class_or_instance
    async def resume(self, session_id: str | None = None) -> Session:
        """Go on with a stored session (`store=True`), by its id or the beginning of it; None: the newest.

        Its directory, rights, server, model and tools count, except for what this agent was given; on the class, as
        `Agent.resume(id)`, all of them. Functions and keys are not stored: give `tools` and `api_key` again. Raises
        `UsageError` for a session that is not there.
        """
        settings, stored = resume_settings(self.settings, session_id, self._given)
        return await self._open(msgspec.structs.replace(settings, ephemeral=False), stored=stored)

    async def _open(
        self, settings: Settings, listener: Listener | None = None, stored: StoredSession | None = None
    ) -> Session:
        on_event, on_approval, on_question = self._answers
        return await open_session(
            settings,
            callbacks(_both(on_event, listener), on_approval, on_question),
            tools=self._tools,
            model=self._model,
            stored=stored,
            hooks=self._hooks,
            api_key=self._api_key,
            output_type=self._output_type,
        )

    def as_tool(self, name: str, description: str) -> Any:
        """Return this agent as a tool of another one: it takes a `message` and answers with the agent's last words.

        Each call is a session of its own, with this agent's rights and callbacks.
        """
        from ferrule.tools.decorator import tool

        async def ask(message: str) -> str:
            return (await self.run(message)).text

        ask.__name__ = name
        return tool(name=name, description=description, read_only=True)(ask)

    async def run(
        self, prompt: Prompt, *, images: Sequence[ImageLike] = (), tool_choice: ToolChoiceLike = "auto"
    ) -> TurnResult:
        """Do what the prompt says in a new session. Takes and raises what `Session.run` does."""
        async with await self.open() as session:
            return await session.run(prompt, images=images, tool_choice=tool_choice)

    def run_sync(
        self, prompt: Prompt, *, images: Sequence[ImageLike] = (), tool_choice: ToolChoiceLike = "auto"
    ) -> TurnResult:
        """`run`, for plain code. Ctrl-C ends the turn and its children."""
        return wait_for_coroutine(self.run(prompt, images=images, tool_choice=tool_choice))

    def stream(
        self, prompt: Prompt, *, images: Sequence[ImageLike] = (), tool_choice: ToolChoiceLike = "auto"
    ) -> EventStream:
        """`run`, as events while they happen: `async for event in agent.stream(prompt)`; then `stream.result`."""

        async def run(listener: Listener) -> TurnResult:
            async with await self._open(self.settings, listener) as session:
                return await session.run(prompt, images=images, tool_choice=tool_choice)

        return EventStream(run)

    @property
    def tools_map(self) -> dict[str, Any]:
        """Every tool by name, as the definition that would run; no provider is needed.

        `tool.call(action)` runs one by itself, in the agent's directory and with its rights. What they need, such as
        MCP servers, stays open until `close`, the end of `with`, or the end of the program.
        """
        return wait_for_coroutine(self._tools_map())

    async def _tools_map(self) -> dict[str, Any]:
        from ferrule.tools.definition import ToolDefinition

        if self._kept is None or not self._kept.is_here:
            front_end = callbacks(*self._answers)
            session, _ = await open_offline(self.settings, front_end, tools=self._tools, hooks=self._hooks)
            self._kept = _Kept(session)
        toolset = self._kept.session.toolset
        await toolset.settled()
        registry = toolset.current()[1]
        tools = {name: registry.handler(name, namespace) for namespace, name in registry}
        for name, tool in tools.items():
            if isinstance(tool, ToolDefinition):
                tools[name] = tool.at_home(self._kept.context)
        return tools

    async def aclose(self) -> None:
        """End what `tools_map` keeps open."""
        kept, self._kept = self._kept, None
        if kept is not None and kept.is_here:
            await asyncio.wrap_future(kept.close())


class _Kept:
    """The session behind `tools_map`, on the loop of plain code."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._loop = background_loop()
        self._context = session.toolset.local_context()
        self._closed = False
        self._forget = close_at_exit(session.aclose)

    @property
    def is_here(self) -> bool:
        """True in the process that opened it: a forked child leaves its parent's session alone."""
        return self._loop is background_loop()

    def context(self) -> ToolContext | None:
        """Return where the tools act; None once it is closed, and in a forked child."""
        return self._context if self.is_here and not self._closed else None

    def close(self) -> "Future[None]":
        """End the session, once."""
        self._closed = True
        self._forget()
        return asyncio.run_coroutine_threadsafe(self.session.aclose(), background_loop())


def _both(first: Listener | None, second: Listener | None) -> Listener | None:
    if first is None or second is None:
        return first or second

    def on_event(event: Event | ToolEvent) -> None:
        first(event)
        second(event)

    return on_event


def _prices(given: Prices | Mapping[str, float]) -> Prices:
    try:
        return given if isinstance(given, Prices) else msgspec.convert(dict(given), Prices)
    except msgspec.ValidationError as error:
        raise UsageError(f"prices: {error}") from error


def _servers(config: Mapping[str, Any] | None) -> dict[str, McpServerSettings]:
    if config is None:
        return {}
    from ferrule.config.mcp_json import mcp_servers_of

    return mcp_servers_of(config)


def _without_approval(config: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the servers that say nothing of how their calls are approved."""
    servers = {} if config is None else config["mcpServers"]
    return frozenset(name for name, table in servers.items() if "approval" not in table)

"""`Agent`: a model, its tools and its rights in one object, for programs that want a result and no terminal."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from ferrule.config import ferrule_home
from ferrule.dispatch.front_end import callbacks, policy_for
from ferrule.model.stream import Model
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import SandboxMode, SandboxPolicy, as_policy
from ferrule.protocol.settings import ModelSettings, ProviderSettings, ReasoningEffort, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.hooks import Hook
from ferrule.session.offline import open_offline
from ferrule.session.opening import open_session
from ferrule.session.session import Prompt, Session
from ferrule.session.sources import ToolLike
from ferrule.session.tool_choice import ToolChoiceLike
from ferrule.session.turn import TurnResult
from ferrule.sync import Closing, background_loop, close_at_exit, wait_for_coroutine
from ferrule.tools.answering import Approver, Listener, Questioned
from ferrule.tools.context import ToolContext


class Agent(Closing):
    """Runs prompts. Each `run` is a session of its own; `open` gives a session for several turns. The end of `async
    with` or `with` closes what `tools_map` keeps open.

    `model` is a name, or a `Model`. `base_url` and `wire` reach any server; without them it is OpenAI by
    `OPENAI_API_KEY`. `tools` are names (globs, `/regex/`), functions and definitions; None: what the model was trained
    on. `mcp_config` is `{"mcpServers": {NAME: {"command": ...}}}`. `on_approval` decides what `approval_policy` asks
    (`on-request` with it, `never` without, unless given), and `on_question` answers the rest; without them it is
    refused. `on_event` sees everything. Raises `UsageError`
    for what does not exist.
    """

    def __init__(  # noqa: PLR0913 - the one place where everything can be said
        self,
        model: str | Model | None = None,
        *,
        tools: Sequence[ToolLike] | None = None,
        cwd: str | os.PathLike[str] = ".",
        sandbox: str | SandboxPolicy = SandboxMode.WORKSPACE_WRITE,
        approval_policy: str | None = None,
        instructions: str | None = None,
        base_url: str | None = None,
        wire: Wire | None = None,
        provider: ProviderSettings | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        max_turns: int | None = None,
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
            provider = ProviderSettings(name="openai")
        if wire is not None and provider is not None:
            provider = msgspec.structs.replace(provider, wire_api=wire)
        name = model if isinstance(model, str) or model is None else None
        self._model = None if isinstance(model, str) else model
        self._tools = tools
        self._hooks = hooks
        self._answers = (on_event, on_approval, on_question)
        self._kept: _Kept | None = None
        self.settings = Settings(
            cwd=os.path.realpath(cwd),
            home=ferrule_home(),
            model=ModelSettings(model=name, reasoning_effort=reasoning_effort),
            provider=provider,
            approval_policy=policy_for(approval_policy, on_approval),
            sandbox_policy=as_policy(sandbox),
            instructions=instructions,
            max_turns=max_turns,
            output_schema=None if output_schema is None else dict(output_schema),
            ephemeral=True,
            mcp_servers=_servers(mcp_config),
        )

    async def open(self) -> Session:
        """A session for several turns; close it, or use it in `async with`."""
        front_end = callbacks(*self._answers)
        return await open_session(self.settings, front_end, tools=self._tools, model=self._model, hooks=self._hooks)

    async def run(self, prompt: Prompt, *, tool_choice: ToolChoiceLike = "auto") -> TurnResult:
        """Do what the prompt says in a new session. Takes and raises what `Session.run` does."""
        async with await self.open() as session:
            return await session.run(prompt, tool_choice=tool_choice)

    def run_sync(self, prompt: Prompt, *, tool_choice: ToolChoiceLike = "auto") -> TurnResult:
        """`run`, for plain code. Ctrl-C ends the turn and its children."""
        return wait_for_coroutine(self.run(prompt, tool_choice=tool_choice))

    @property
    def tools_map(self) -> dict[str, Any]:
        """Every tool by name, as the definition that would run; no provider is needed.

        `tool.call(action)` runs one by itself, in the agent's directory and with its rights. What they need, such as
        MCP servers, stays open until `close`, the end of `with`, or the end of the program.
        """
        return wait_for_coroutine(self._tools_map())

    async def _tools_map(self) -> dict[str, Any]:
        from ferrule.tools.definition import ToolDefinition

        if self._kept is None:
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
        if kept is not None:
            await asyncio.wrap_future(kept.close())


class _Kept:
    """The session behind `tools_map`, on the loop of plain code."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._context = session.toolset.local_context()
        self._closed = False
        self._forget = close_at_exit(session.aclose)

    def context(self) -> ToolContext | None:
        """Where the tools act; None once it is closed."""
        return None if self._closed else self._context

    def close(self) -> "Future[None]":
        """End the session, once."""
        self._closed = True
        self._forget()
        return asyncio.run_coroutine_threadsafe(self.session.aclose(), background_loop())


def _servers(config: Mapping[str, Any] | None) -> dict[str, McpServerSettings]:
    if config is None:
        return {}
    from ferrule.config.mcp_json import mcp_servers_of

    return mcp_servers_of(config)

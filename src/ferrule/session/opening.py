"""From settings to a session: what every door calls."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ferrule.dispatch.front_end import Answers, FrontEnd, answers_of, reporter
from ferrule.history.pairs import settled
from ferrule.model.profiles import Profiles, load_profiles, profile_files
from ferrule.model.provider import choose_model, open_model
from ferrule.model.stream import Model
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import AskForApproval
from ferrule.protocol.profiles import ModelProfile, ToolProfile
from ferrule.protocol.settings import Settings
from ferrule.session.brought import (
    Brought,
    NativeSource,
    accepted_property_names,
    as_servers,
    fitting_profile,
    group_by_owner,
    runs_remote_mcp,
)
from ferrule.session.budget import Budget
from ferrule.session.dialogue import Dialogue, restored_history
from ferrule.session.family import Family
from ferrule.session.hooks import Hook, SessionHooks, hook_base
from ferrule.session.opener import Opener, Parent, SharedResources
from ferrule.session.output_type import OutputType
from ferrule.session.project_choice import without_unknown
from ferrule.session.record import Parentage, SessionRecord
from ferrule.session.rollout import (
    Rollout,
    StoredSession,
    is_brought,
    new_session_id,
)
from ferrule.session.runtime import Runtime, build_runtime
from ferrule.session.session import Session
from ferrule.session.sources import ToolLike, tool_sources
from ferrule.session.telemetry import telemetry
from ferrule.session.toolset import Toolset
from ferrule.session.turn_hooks import TurnHooks
from ferrule.session.undo import Undoing
from ferrule.tools.registry import ToolSource
from ferrule.undo.undo_log import UndoLog

if TYPE_CHECKING:
    from ferrule.mcp.source import McpSource
    from ferrule.session.spans import Spans


class _Start(NamedTuple):
    """What a session begins with: its id, what it goes on from, where it is written, and its model."""

    session_id: str
    stored: StoredSession | None
    parentage: Parentage
    record: SessionRecord
    model: Model
    model_name: str


async def open_session(
    settings: Settings,
    front_end: FrontEnd | None = None,
    *,
    tools: Sequence[ToolLike] | None = None,
    model: Model | None = None,
    stored: StoredSession | None = None,
    hooks: Sequence[Hook] = (),
    env: Mapping[str, str] = os.environ,
    api_key: str | None = None,
    output_type: OutputType | None = None,
    parent: Parent | None = None,
    shared: SharedResources | None = None,
    session_id: str | None = None,
) -> Session:
    """Open a session; nothing is sent to the model before the first turn.

    `hooks` come after the settings'. `tools` are used instead of the settings' and the profile's, `model` instead of
    the provider's; `stored` is a session to go on with; `api_key` replaces the key of the provider's variable. `shared`
    is what somebody else closes; `session_id` is that of a new session whose id is known already. Raises `UsageError`,
    and `ModelError` where the server must be asked for its models and cannot be reached.
    """
    opener = Opener(front_end, tools, hooks, env, api_key, parent, shared, reporter(front_end))
    profiles = load_profiles(profile_files(settings.home))
    settings, warnings = without_unknown(settings, profiles)
    async with AsyncExitStack() as on_failure:
        start = await _start(settings, profiles, model, stored, session_id, opener, on_failure)
        session_id, model, name = start.session_id, start.model, start.model_name
        profile, tool_set = _profiles_of(settings, profiles, model, name)
        if tools is not None:
            settings = msgspec.structs.replace(settings, tools=tuple(tool for tool in tools if isinstance(tool, str)))
        brought = group_by_owner(tools if tools is not None else settings.tools, settings.hosted_tools)
        budget = Budget(settings, name, parent.budget if parent else None)
        undo_log = parent.undo_log if parent else UndoLog(settings.home, session_id, opener.report)
        runtime = _runtime(settings, profile, undo_log, opener)
        notes: list[str] = []
        session_hooks = _session_hooks(settings, runtime, start, notes.append, opener)
        spans = telemetry(settings, model, name, session_id, start.parentage.role, env, api_key)
        sources = tool_sources(runtime.conversation, tool_set.include, brought.own, settings.features)
        toolset = _toolset(runtime, sources, start, session_hooks, warnings, spans, opener)
        on_failure.push_async_callback(toolset.aclose)
        servers = await _complete(toolset, brought, model, settings, opener)
        history = restored_history(start.stored, settings, name)
        family = Family(open_session, settings, opener, name, session_id, model, runtime, servers, budget, undo_log)
        toolset.children = children = family.children(toolset.host, history)
        dialogue = Dialogue(
            settings,
            model,
            name,
            toolset,
            start.record,
            history,
            budget=budget,
            output_type=output_type,
            stored=start.stored,
            notes=notes,
            parentage=start.parentage,
            children=children,
            spans=spans,
            checks_server=shared is None,
        )
        if runtime.conversation.web is not None:
            runtime.conversation.web.history = lambda: history.items
        on_failure.pop_all()
    undoing = Undoing.of(settings, undo_log, runtime.workspace, opener.report) if opener.is_user else None
    turn_hooks = TurnHooks(session_hooks, resumed=start.stored is not None)
    return Session(dialogue, turn_hooks, undoing, owns_model=opener.is_user)


async def _start(
    settings: Settings,
    profiles: Profiles,
    model: Model | None,
    stored: StoredSession | None,
    session_id: str | None,
    opener: Opener,
    on_failure: AsyncExitStack,
) -> _Start:
    """Decide what the session goes on from, and open its model. A session that was brought from elsewhere is copied
    into a new one."""
    parent, shared = opener.parent, opener.shared
    parentage = Parentage() if parent is None else Parentage(parent.session_id, parent.role, None, parent.history)
    if stored is not None and is_brought(stored.path, settings.home):
        parentage, stored = Parentage(forked_from=stored.meta.id, history=tuple(settled(stored.responses))), None
    session_id = stored.meta.id if stored else session_id or new_session_id()
    rollout = _rollout_of(settings, session_id, stored) if shared is None else Rollout(shared.record, new=True)
    record = SessionRecord(rollout, opener.report)
    on_failure.callback(record.close)
    lender, name = parent or shared, settings.model.model or ""
    if lender is not None:
        return _Start(session_id, stored, parentage, record, lender.model, name)
    if model is None:
        model = open_model(settings.provider, profiles=profiles, env=opener.env, api_key=opener.api_key)
        on_failure.push_async_callback(model.aclose)
        name = await choose_model(model, settings.model.model)
    else:
        on_failure.push_async_callback(model.aclose)
    return _Start(session_id, stored, parentage, record, model, name)


def _rollout_of(settings: Settings, session_id: str, stored: StoredSession | None) -> Rollout | None:
    if settings.ephemeral:
        return None
    return Rollout.go_on(stored) if stored else Rollout.create(settings.home, session_id)


def _profiles_of(
    settings: Settings, profiles: Profiles, model: Model, model_name: str
) -> tuple[ModelProfile, ToolProfile]:
    """Return the model's profile, as its server and the user want it, and the tool set."""
    profile = profiles.model(model_name)
    tool_set = profiles.tool_set(settings.profile or profile.tools)
    return _with_risk(fitting_profile(profile, model), tool_set, settings), tool_set


def _runtime(settings: Settings, profile: ModelProfile, undo_log: UndoLog, opener: Opener) -> Runtime:
    """Make what the session stands on, partly out of what others share with it."""
    parent, shared = opener.parent, opener.shared
    return build_runtime(
        settings,
        profile,
        opener.env,
        _answers(opener.front_end, (*settings.hooks, *opener.hooks)),
        opener.report,
        policies=parent.policies if parent else None,
        undo_log=undo_log,
        parent=parent.workspace if parent else None,
        folders=parent.file_search if parent else None,
        login=shared.login if shared else None,
    )


def _toolset(
    runtime: Runtime,
    sources: Sequence[ToolSource],
    start: _Start,
    hooks: SessionHooks | None,
    warnings: Sequence[str],
    spans: "Spans | None",
    opener: Opener,
) -> Toolset:
    toolset = Toolset(
        runtime,
        sources,
        front_end=opener.front_end,
        session_id=start.session_id,
        hooks=hooks,
        property_names=accepted_property_names(start.model),
        warnings=warnings,
        borrowed=() if opener.parent is None else opener.tools or (),
        spans=spans,
    )
    toolset.warms_up = opener.shared is None or runtime.workspace.container is not None
    return toolset


def _answers(front_end: FrontEnd | None, hooks: Sequence[Hook]) -> Answers:
    """Tell which questions can be answered: a hook may approve where nobody else can."""
    answers = answers_of(front_end)
    decides = any(hook.event == "PermissionRequest" for hook in hooks)
    return answers._replace(approvals=True) if decides else answers


async def _complete(
    toolset: Toolset, brought: Brought, model: Model, settings: Settings, opener: Opener
) -> "McpSource | None":
    """Add the tools that others run, and wait until all is ready that the first request needs. Return the MCP servers,
    which are its parent's in a sub-agent."""
    file_search = toolset.conversation.file_search
    if file_search is not None and opener.parent is None:
        file_search.search.start()
    mcp_servers = settings.mcp_servers
    toolset.add_source(NativeSource(brought.hosted))
    if runs_remote_mcp(model):
        toolset.add_source(NativeSource(brought.remote))
    else:
        mcp_servers = {**mcp_servers, **as_servers(brought.remote)}
    servers = None if opener.parent is None else opener.parent.servers
    if servers is not None:
        toolset.add_source(servers)
    else:
        servers = _with_servers(toolset, mcp_servers, settings, opener.env)
    if brought.dynamic:
        toolset.add_dynamic_tools(brought.dynamic)
    await toolset.warm_up()
    if servers is not None:
        await servers.ready()
    return servers


def _session_hooks(
    settings: Settings,
    runtime: Runtime,
    start: _Start,
    add_context: Callable[[str], None],
    opener: Opener,
) -> SessionHooks | None:
    """Make the hooks, or None if there are none. `add_context` takes what they add for the model."""
    hooks = (*settings.hooks, *opener.hooks)
    if not hooks:
        return None
    commands, permissions = runtime.conversation.commands, runtime.conversation.permissions
    transcript = None if start.record.path is None else str(start.record.path)
    return SessionHooks(
        hooks,
        PlainLauncher(),
        hook_base(start.session_id, settings.cwd, start.model_name, permissions.approval_policy, transcript),
        commands.base,
        commands.policy.secrets,
        runtime.workspace.places,
        programs=settings.hook_programs,
        report=opener.report,
        add_context=add_context,
    )


def _with_risk(profile: ModelProfile, chosen: ToolProfile, settings: Settings) -> ModelProfile:
    """Return the model's profile with whether it is asked for the risk of its calls: a tool profile that the user chose
    knows better, and a user who wants risky calls confirmed needs the estimate."""
    asked = profile.security_risk if settings.profile is None else chosen.security_risk
    return msgspec.structs.replace(profile, security_risk=asked or settings.confirmation == "risky")


def _with_servers(
    toolset: Toolset, mcp_servers: dict[str, McpServerSettings], settings: Settings, env: Mapping[str, str]
) -> "McpSource | None":
    """Return the MCP servers, which start now and are not waited for."""
    if not mcp_servers:
        return None
    from ferrule.mcp.source import McpSource

    permissions = toolset.conversation.permissions
    if permissions.approval_policy is AskForApproval.NEVER or not permissions.answers_approvals:
        mcp_servers = {
            name: msgspec.structs.replace(server, approval="allow") if name in settings.named_servers else server
            for name, server in mcp_servers.items()
        }
    servers = McpSource(
        mcp_servers,
        cwd=settings.cwd,
        home=settings.home,
        env=env,
        places=toolset.workspace.places,
        emit=toolset.host.emit,
        ask=toolset.host.question,
        property_names=toolset.property_names,
        propagate=settings.otel.propagate,
    )
    toolset.add_live_source(servers)
    servers.start()
    return servers

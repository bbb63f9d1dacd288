"""From settings to a session: what every door calls."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ferrule.dispatch.front_end import Answers, FrontEnd, answers_of, reporter
from ferrule.history.pairs import settled
from ferrule.model.profiles import Profiles, load_profiles, profile_files
from ferrule.model.provider import choose_model, open_model
from ferrule.model.stream import Model
from ferrule.process.plain import PlainLauncher
from ferrule.process.shell import LoginShell
from ferrule.protocol.errors import UsageError
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
from ferrule.session.dialogue import Dialogue
from ferrule.session.family import Family, Parent
from ferrule.session.hooks import Hook, SessionHooks, hook_base
from ferrule.session.index import locate
from ferrule.session.lines import TurnContext
from ferrule.session.output_type import OutputType
from ferrule.session.project_choice import without_unknown
from ferrule.session.record import Parentage, SessionRecord
from ferrule.session.rollout import (
    Rollout,
    StoredSession,
    is_brought,
    is_own,
    new_session_id,
    read_rollout,
)
from ferrule.session.runtime import Runtime, build_runtime
from ferrule.session.session import Session
from ferrule.session.sources import ToolLike
from ferrule.session.telemetry import telemetry
from ferrule.session.toolset import Toolset, tool_sources
from ferrule.session.turn_hooks import TurnHooks
from ferrule.session.undo import Undoing
from ferrule.undo.undo_log import UndoLog

if TYPE_CHECKING:
    from ferrule.mcp.source import McpSource


class Lent(msgspec.Struct, frozen=True):
    """What a program that runs many sessions lends to one of them: the model's connections, the environment of the
    login shell, and a new file for its rollout, which is not among the user's own sessions.

    Such a session asks nothing of the model's server beside its work, builds its sandbox when a command needs it, and
    is not undone.
    """

    model: Model
    login: LoginShell
    record: Path


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
    lent: Lent | None = None,
    session_id: str | None = None,
) -> Session:
    """Open a session; nothing is sent to the model before the first turn.

    `hooks` come after the settings'. `tools` are used instead of the settings' and the profile's, `model` instead of
    the provider's; `stored` is a session to go on with; `api_key` replaces the key of the provider's variable. `lent`
    is what somebody else closes; `session_id` is that of a new session whose id is known already. Raises `UsageError`,
    and `ModelError` where the server must be asked for its models and cannot be reached.
    """
    profiles = load_profiles(profile_files(settings.home))
    settings, warnings = without_unknown(settings, profiles)
    name = settings.model.model or ""
    came_from = Parentage() if parent is None else Parentage(parent.session_id, parent.role, None, parent.history)
    if stored is not None and is_brought(stored.path, settings.home):
        items = settled(stored.responses)
        came_from, stored = Parentage(forked_from=stored.meta.id, history=tuple(items)), None
    session_id = stored.meta.id if stored else session_id or new_session_id()
    rollout = _rollout_of(settings, session_id, stored) if lent is None else Rollout(lent.record, new=True)
    if parent is not None:
        model = parent.model
    elif lent is not None:
        model = lent.model
    if model is None:
        model, name = await _open_model(settings, profiles, env, api_key)
    budget = Budget(settings, name, parent.budget if parent else None)
    profile = profiles.model(name)
    chosen = profiles.tool_set(settings.profile or profile.tools)
    profile = _with_risk(fitting_profile(profile, model), chosen, settings)
    if tools is not None:
        settings = msgspec.structs.replace(settings, tools=tuple(tool for tool in tools if isinstance(tool, str)))
    all_hooks = (*settings.hooks, *hooks)
    report = reporter(front_end)
    undo_log = parent.undo_log if parent else UndoLog(settings.home, session_id, report)
    runtime = build_runtime(
        settings,
        profile,
        env,
        _answers(front_end, all_hooks),
        report,
        policies=parent.policies if parent else None,
        undo_log=undo_log,
        parent=parent.workspace if parent else None,
        folders=parent.file_search if parent else None,
        login=lent.login if lent else None,
    )
    spans = telemetry(settings, model, name, session_id, came_from.role, env, api_key)
    notes: list[str] = []
    made_hooks = _session_hooks(all_hooks, settings, runtime, session_id, name, rollout, report, notes)
    brought = group_by_owner(tools if tools is not None else settings.tools, settings.hosted_tools)
    family = Family(
        open_session, settings, tools, hooks, env, name, session_id, model, runtime, budget, undo_log, parent
    )
    children = family.children(lambda: toolset.host, lambda: dialogue.history.items, lambda: servers)
    toolset = Toolset(
        runtime,
        tool_sources(runtime.conversation, chosen.include, brought.own, settings.features),
        front_end=front_end,
        session_id=session_id,
        hooks=made_hooks,
        property_names=accepted_property_names(model),
        warnings=warnings,
        children=children,
        lent=() if parent is None else tools or (),
        spans=spans,
    )
    try:
        if runtime.conversation.file_search is not None and parent is None:
            runtime.conversation.file_search.search.start()
        if lent is not None and runtime.workspace.container is None:
            toolset.warms_up = False
        servers = await _complete(toolset, brought, model, settings, env, parent.servers if parent else None)
    except BaseException:
        if rollout is not None:
            rollout.close()
        await toolset.aclose()
        if parent is None and lent is None:
            await model.aclose()
        raise
    dialogue = Dialogue(
        settings,
        model,
        name,
        toolset,
        SessionRecord(rollout, report),
        budget=budget,
        output_type=output_type,
        stored=stored,
        notes=notes,
        parentage=came_from,
        children=children,
        spans=spans,
        checks_server=lent is None,
    )
    if runtime.conversation.web is not None:
        runtime.conversation.web.history = lambda: dialogue.history.items
    own = parent is None and lent is None
    undoing = Undoing.of(settings, undo_log, runtime.workspace, report) if own else None
    return Session(dialogue, TurnHooks(made_hooks, resumed=stored is not None), undoing, owns_model=own)


async def _open_model(
    settings: Settings, profiles: Profiles, env: Mapping[str, str], api_key: str | None
) -> tuple[Model, str]:
    """Return the configured model, and its name, for which the server may have to be asked."""
    model = open_model(settings.provider, profiles=profiles, env=env, api_key=api_key)
    return model, await choose_model(model, settings.model.model)


def _answers(front_end: FrontEnd | None, hooks: Sequence[Hook]) -> Answers:
    """Tell which questions can be answered: a hook may approve where nobody else can."""
    answers = answers_of(front_end)
    decides = any(hook.event == "PermissionRequest" for hook in hooks)
    return answers._replace(approvals=True) if decides else answers


async def _complete(
    toolset: Toolset,
    brought: Brought,
    model: Model,
    settings: Settings,
    env: Mapping[str, str],
    shared: "McpSource | None",
) -> "McpSource | None":
    """Add the tools that others run, and wait until all is ready that the first request needs. Return the MCP servers,
    which are `shared` in a sub-agent."""
    mcp_servers = settings.mcp_servers
    toolset.add_source(NativeSource(brought.hosted))
    if runs_remote_mcp(model):
        toolset.add_source(NativeSource(brought.remote))
    else:
        mcp_servers = {**mcp_servers, **as_servers(brought.remote)}
    servers = shared or _with_servers(toolset, mcp_servers, settings, env)
    if shared is not None:
        toolset.add_source(shared)
    if brought.dynamic:
        toolset.add_dynamic_tools(brought.dynamic)
    await toolset.warm_up()
    if servers is not None:
        await servers.ready()
    return servers


def _rollout_of(settings: Settings, session_id: str, stored: StoredSession | None) -> Rollout | None:
    if settings.ephemeral:
        return None
    return Rollout.go_on(stored) if stored else Rollout.create(settings.home, session_id)


def _session_hooks(
    hooks: Sequence[Hook],
    settings: Settings,
    runtime: Runtime,
    session_id: str,
    model_name: str,
    rollout: Rollout | None,
    report: Callable[[str], None],
    notes: list[str],
) -> SessionHooks | None:
    """Make the hooks, or None if there are none. What they add for the model goes into `notes`."""
    if not hooks:
        return None
    commands, permissions = runtime.conversation.commands, runtime.conversation.permissions
    transcript = None if rollout is None else str(rollout.path)
    return SessionHooks(
        hooks,
        PlainLauncher(),
        hook_base(session_id, settings.cwd, model_name, permissions.approval_policy, transcript),
        commands.base,
        commands.policy.secrets,
        runtime.workspace.places,
        programs=settings.hook_programs,
        report=report,
        add_context=notes.append,
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


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Marks the settings that the user gave anew for a resumed session; the rest stays as it was."""

    cwd: bool = False
    sandbox: bool = False
    approval: bool = False
    provider: bool = False
    tools: bool = False


def resume_settings(
    settings: Settings, session_id: str | None, given: Given, *, begun_in: str | None = None
) -> tuple[Settings, StoredSession]:
    """Return the stored session and the settings to go on with: its directory, policies, server, model and tools,
    unless given. `session_id` may be the beginning of one, a name, or the path of a session file, of which a copy goes
    on; None: the newest, in the directory `begun_in` if one is given.

    A file that lies elsewhere decides none of this: it could send a key to another server. Raises `UsageError` when the
    directory is gone: nothing is opened then.
    """
    stored = read_rollout(locate(settings.home, session_id, begun_in))
    return settings_to_go_on(settings, stored, given), stored


def settings_to_go_on(settings: Settings, stored: StoredSession, given: Given) -> Settings:
    """Return the settings to go on with a stored session that was found; see `resume_settings`."""
    context = stored.context if is_own(stored.path, settings.home) else None
    cwd = settings.cwd if given.cwd else (context.cwd if context else "") or settings.cwd
    if not Path(cwd).is_dir():
        raise UsageError(f"the session's directory {cwd} no longer exists; choose another one with -C")
    settings = msgspec.structs.replace(settings, cwd=cwd)
    return settings if context is None else _as_before(settings, context, given)


def _as_before(settings: Settings, context: TurnContext, given: Given) -> Settings:
    model, provider = settings.model, settings.provider
    if model.model is None:
        model = msgspec.structs.replace(model, model=context.model or None)
    if not given.provider and context.provider is not None and not context.provider.is_that_of(provider):
        provider = context.provider.settings()
    return msgspec.structs.replace(
        settings,
        sandbox_policy=settings.sandbox_policy if given.sandbox else context.sandbox_policy,
        approval_policy=settings.approval_policy if given.approval else context.approval_policy,
        model=model,
        provider=provider,
        tools=settings.tools if given.tools else context.tools,
    )

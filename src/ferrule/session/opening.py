"""From settings to a session: what every door calls."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ferrule.dispatch.front_end import Answers, FrontEnd, answers_of, reporter
from ferrule.model.profiles import Profiles, load_profiles
from ferrule.model.provider import choose_model, open_model
from ferrule.model.stream import Model
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import UsageError
from ferrule.protocol.mcp_settings import McpServerSettings
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
from ferrule.session.dialogue import Dialogue
from ferrule.session.hooks import Hook, SessionHooks, hook_base
from ferrule.session.project_choice import without_unknown
from ferrule.session.record import SessionRecord
from ferrule.session.rollout import Rollout, StoredSession, find_rollout, new_session_id, read_rollout
from ferrule.session.runtime import Runtime, build_runtime, profile_files
from ferrule.session.session import Session
from ferrule.session.sources import ToolLike
from ferrule.session.toolset import Toolset, tool_sources
from ferrule.session.turn_hooks import TurnHooks

if TYPE_CHECKING:
    from ferrule.mcp.source import McpSource


async def open_session(
    settings: Settings,
    front_end: FrontEnd | None = None,
    *,
    tools: Sequence[ToolLike] | None = None,
    model: Model | None = None,
    stored: StoredSession | None = None,
    hooks: Sequence[Hook] = (),
    env: Mapping[str, str] = os.environ,
) -> Session:
    """Open a session; nothing is sent to the model before the first turn.

    `hooks` come after the settings'. `tools` are used instead of the settings' and the profile's, `model` instead of
    the provider's; `stored` is a session to go on with. Raises `UsageError`, and `ModelError` where the server must be
    asked for its models and cannot be reached.
    """
    profiles = load_profiles(profile_files(settings.home))
    settings, warnings = without_unknown(settings, profiles)
    name = settings.model.model or ""
    if model is None:
        model, name = await _open_model(settings, profiles, env)
    profile = profiles.model(name)
    chosen = profiles.tool_set(settings.profile or profile.tools)
    profile = _with_risk(fitting_profile(profile, model), chosen, settings)
    hooks = (*settings.hooks, *hooks)
    report = reporter(front_end)
    runtime = build_runtime(settings, profile, env, _answers(front_end, hooks), report)
    session_id = stored.meta.id if stored else new_session_id()
    rollout = _rollout_of(settings, session_id, stored)
    notes: list[str] = []
    made_hooks = _session_hooks(hooks, settings, runtime, session_id, name, rollout, report, notes)
    brought = group_by_owner(tools if tools is not None else settings.tools, settings.hosted_tools)
    toolset = Toolset(
        runtime,
        tool_sources(runtime.conversation, chosen.include, brought.own, settings.features),
        front_end=front_end,
        session_id=session_id,
        hooks=made_hooks,
        property_names=accepted_property_names(model),
        warnings=warnings,
    )
    try:
        await _complete(toolset, brought, model, settings, env)
    except BaseException:
        await toolset.aclose()
        await model.aclose()
        raise
    record = SessionRecord(rollout, report)
    dialogue = Dialogue(settings, model, name, toolset, record, front_end=front_end, stored=stored, notes=notes)
    return Session(dialogue, TurnHooks(made_hooks, resumed=stored is not None))


async def _open_model(settings: Settings, profiles: Profiles, env: Mapping[str, str]) -> tuple[Model, str]:
    """Return the configured model, and its name, for which the server may have to be asked."""
    model = open_model(settings.provider, profiles=profiles, env=env)
    return model, await choose_model(model, settings.model.model)


def _answers(front_end: FrontEnd | None, hooks: Sequence[Hook]) -> Answers:
    """What somebody answers: a hook may approve where nobody else does."""
    answers = answers_of(front_end)
    decides = any(hook.event == "PermissionRequest" for hook in hooks)
    return answers._replace(approvals=True) if decides else answers


async def _complete(
    toolset: Toolset, brought: Brought, model: Model, settings: Settings, env: Mapping[str, str]
) -> None:
    """Add the tools that others run, and wait until all is ready that the first request needs."""
    mcp_servers = settings.mcp_servers
    toolset.add_source(NativeSource(brought.hosted))
    if runs_remote_mcp(model):
        toolset.add_source(NativeSource(brought.remote))
    else:
        mcp_servers = {**mcp_servers, **as_servers(brought.remote)}
    servers = _with_servers(toolset, mcp_servers, settings, env)
    if brought.dynamic:
        toolset.add_dynamic_tools(brought.dynamic)
    await toolset.warm_up()
    if servers is not None:
        await servers.ready()


def _rollout_of(settings: Settings, session_id: str, stored: StoredSession | None) -> Rollout | None:
    if settings.ephemeral:
        return None
    return Rollout(stored.path) if stored else Rollout.create(settings.home, session_id)


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
    """The model's profile, which says whether it is asked for the risk of its calls: a tool profile that the user chose
    knows better, and a user who wants risky calls confirmed needs the estimate."""
    asked = profile.security_risk if settings.profile is None else chosen.security_risk
    return msgspec.structs.replace(profile, security_risk=asked or settings.confirmation == "risky")


def _with_servers(
    toolset: Toolset, mcp_servers: dict[str, McpServerSettings], settings: Settings, env: Mapping[str, str]
) -> "McpSource | None":
    """The MCP servers, which start now and are not waited for."""
    if not mcp_servers:
        return None
    from ferrule.mcp.source import McpSource

    servers = McpSource(
        mcp_servers,
        cwd=settings.cwd,
        home=settings.home,
        env=env,
        places=toolset.workspace.places,
        emit=toolset.host.emit,
        ask=toolset.host.question,
        property_names=toolset.property_names,
    )
    toolset.add_live_source(servers)
    servers.start()
    return servers


def resume_settings(
    settings: Settings, session_id: str | None, *, cwd_given: bool, sandbox_given: bool, approval_given: bool
) -> tuple[Settings, StoredSession]:
    """The stored session (None: the newest) and the settings to go on with: its directory and policies, unless given.

    Raises `UsageError` when the directory is gone: nothing is opened then.
    """
    stored = read_rollout(find_rollout(settings.home, session_id))
    context = stored.context
    cwd = settings.cwd if cwd_given else (context.cwd if context else stored.meta.cwd) or settings.cwd
    if not Path(cwd).is_dir():
        raise UsageError(f"the session's directory {cwd} does not exist any more; choose another one with -C")
    sandbox, approval = settings.sandbox_policy, settings.approval_policy
    if context is not None:
        sandbox = sandbox if sandbox_given else context.sandbox_policy
        approval = approval if approval_given else context.approval_policy
    model = settings.model
    if model.model is None and context is not None:
        model = msgspec.structs.replace(model, model=context.model or None)
    changed = msgspec.structs.replace(settings, cwd=cwd, sandbox_policy=sandbox, approval_policy=approval, model=model)
    return changed, stored

"""The client's requests that belong to no thread: models, configuration, commands."""

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from ferrule.dispatch.workspace import Workspace
from ferrule.doors.app_server import forms
from ferrule.doors.app_server.connection import Answer, Connection
from ferrule.doors.app_server.openings import directory
from ferrule.doors.app_server.shapes import told
from ferrule.doors.app_server.shapes.common import Empty
from ferrule.doors.app_server.shapes.requests import (
    AccountRead,
    AccountReadParams,
    CommandExecParams,
    CommandExecResult,
    ConfigReadParams,
    ConfigReadResult,
    ConfigRequirements,
    FoundFile,
    FuzzyFileSearchParams,
    FuzzyFileSearchResult,
    ModelList,
    ModelListParams,
    SkillError,
    SkillsEntry,
    SkillsList,
    SkillsListParams,
    SkillTold,
)
from ferrule.doors.app_server.shapes.threads import Model, ReasoningEffortOption
from ferrule.doors.app_server.stored import page
from ferrule.egress.names import DomainNames
from ferrule.model.profiles import load_profiles, profile_files
from ferrule.model.provider import list_models, open_model
from ferrule.process.environment import child_environment
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from ferrule.protocol.permissions import DangerFullAccess, ExternalSandbox
from ferrule.protocol.settings import Settings
from ferrule.rpc import RpcError
from ferrule.sandbox.environment import refuse_nesting
from ferrule.sandbox.local_way import ListOnly
from ferrule.session.file_names import best, files_below
from ferrule.session.skills import installed
from ferrule.tools.tasks import run_blocking

MOST_FILES_FOUND = 50
"""Files in each folder that a search tells, as the reference."""
COMMAND_TIMEOUT_MS = 10_000
"""How long a command runs where the client gives no time: the reference's."""
MOST_OUTPUT = 1 << 20
"""Bytes of each stream that are kept, the first and the last."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh")


async def models(client: Connection, params: ModelListParams, answer: Answer) -> None:
    """List the models of the configured server."""
    given = {"model_provider": params.model_provider} if params.model_provider else {}
    settings = client.configure(None, given).settings
    profiles = load_profiles(profile_files(settings.home))
    model = open_model(settings.provider, profiles=profiles, env=os.environ)
    try:
        names = await list_models(model)
    finally:
        await model.aclose()
    default = settings.model.model
    listed = names if default is None or default in names else (default, *names)
    part, after = page(params.cursor, params.limit, len(listed))
    first = default or next(iter(listed), None)
    answer(ModelList(data=tuple(_model(name, name == first) for name in listed[part]), next_cursor=after))


def _model(name: str, is_default: bool) -> Model:
    efforts = tuple(ReasoningEffortOption(reasoning_effort=effort, description=effort) for effort in EFFORTS)
    return Model(
        id=name,
        model=name,
        display_name=name,
        description="",
        is_default=is_default,
        default_reasoning_effort="medium",
        supported_reasoning_efforts=efforts,
    )


async def account(client: Connection, params: AccountReadParams, answer: Answer) -> None:
    """Say that no login is needed: clients ask before anything else."""
    answer(AccountRead())


async def requirements(client: Connection, params: Empty, answer: Answer) -> None:
    """Say that nothing is demanded of the configuration."""
    answer(ConfigRequirements())


async def skills(client: Connection, params: SkillsListParams, answer: Answer) -> None:
    """List the skills that hold in some directories; without any, in the server's own."""
    settings = [client.configure(directory(cwd, "cwds"), {}).settings for cwd in params.cwds or (None,)]
    answer(SkillsList(data=tuple([await run_blocking(_skills, one) for one in settings])))


def _skills(settings: Settings) -> SkillsEntry:
    found = installed(settings)
    told_skills = tuple(
        SkillTold(
            name=skill.name,
            description=skill.description,
            path=skill.path,
            scope="user" if skill.scope == "user" else "repo",
            enabled=skill in found.used,
        )
        for skill in (*found.used, *found.off)
    )
    errors = tuple(SkillError(path=bad.path, message=bad.text) for bad in found.bad)
    return SkillsEntry(cwd=settings.cwd, skills=told_skills, errors=errors)


async def config(client: Connection, params: ConfigReadParams, answer: Answer) -> None:
    """Read what holds in a directory, as far as clients of the reference look for it."""
    settings = client.configure(directory(params.cwd), {}).settings
    answer(ConfigReadResult(config=_config(settings), layers=() if params.include_layers else None))


def _config(settings: Settings) -> dict[str, Any]:
    policy, model = forms.policy_shape(settings.sandbox_policy), settings.model
    mode = {"dangerFullAccess": "danger-full-access", "readOnly": "read-only", "workspaceWrite": "workspace-write"}
    return {
        "model": model.model,
        "model_provider": settings.provider_name or None,
        "model_reasoning_effort": model.reasoning_effort,
        "model_reasoning_summary": model.reasoning_summary,
        "model_verbosity": model.verbosity,
        "model_context_window": model.context_window,
        "model_auto_compact_token_limit": model.auto_compact_token_limit,
        "service_tier": model.service_tier,
        "approval_policy": settings.approval_policy.value,
        "sandbox_mode": mode.get(str(policy.__struct_config__.tag)),
        "instructions": settings.instructions,
        "profile": settings.profile,
        # Clients ask no question about a folder of which this is known; its own files are confirmed by `ferrule trust`.
        "projects": {settings.cwd: {"trust_level": "trusted" if settings.trusted else "untrusted"}},
    }


async def find_files(client: Connection, params: FuzzyFileSearchParams, answer: Answer) -> None:
    """Find files by what is remembered of their names."""
    roots = [directory(root, "roots") or root for root in params.roots]
    answer(FuzzyFileSearchResult(files=await run_blocking(_found, params.query, roots)))


def _found(query: str, roots: Iterable[str]) -> tuple[FoundFile, ...]:
    found = [(root, path) for root in roots for path in best(query, list(files_below(root)), MOST_FILES_FOUND)]
    return tuple(
        FoundFile(root=root, path=path, file_name=os.path.basename(path), score=len(found) - at)
        for at, (root, path) in enumerate(found)
    )


async def execute(client: Connection, params: CommandExecParams, answer: Answer) -> None:
    """Run a command to its end. Its output is text; bytes that are none are replaced."""
    for name in ("tty", "stream_stdin", "stream_stdout_stderr", "process_id"):
        if getattr(params, name):
            raise RpcError(f"{name}: commands are run to their end here, without a terminal; leave it out")
    if not params.command:
        raise RpcError("command: name a program")
    for name in ("timeout_ms", "output_bytes_cap"):
        if (getattr(params, name) or 0) < 0:
            raise RpcError(f"{name}: not below 0")
    if any("=" in name or not name for name in params.env or ()):
        raise RpcError("env: a variable's name has a letter and no =")
    settings = client.configure(directory(params.cwd), {}).settings
    if params.sandbox_policy is not None:
        settings = msgspec.structs.replace(settings, sandbox_policy=forms.policy_of(params.sandbox_policy))
    refuse_nesting(settings)
    limit = None if params.disable_timeout else params.timeout_ms or COMMAND_TIMEOUT_MS
    cap = min(params.output_bytes_cap or MOST_OUTPUT, MOST_OUTPUT)
    free = isinstance(settings.sandbox_policy, DangerFullAccess | ExternalSandbox)
    workspace = _workspace(settings, client)
    launcher = PlainLauncher() if free else workspace
    base = os.environ if workspace.container is None else workspace.container.environment
    env = child_environment(settings.command_environment, base).variables
    for name, value in (params.env or {}).items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    try:
        done = await run(launcher, params.command, env=env, cwd=settings.cwd, timeout_ms=limit, capture_bytes=cap)
    except LaunchError as error:
        raise RpcError(f"command: {error}") from error
    finally:
        await workspace.close()
    answer(CommandExecResult(exit_code=done.exit_code, stdout=done.stdout.text(), stderr=done.stderr.text()))


def _workspace(settings: Settings, client: Connection) -> Workspace:
    """Return what confines a command; of the network it reaches what a list of domains has, and nobody is asked."""
    domains = getattr(settings.sandbox_policy, "network_access", False)
    decider = None
    if isinstance(domains, tuple):
        decider = ListOnly(DomainNames(domains), lambda text: client.tell(told.Warned(message=text)))
    accepted = settings.accept_no_sandbox
    return Workspace(
        settings.sandbox_policy, settings.cwd, settings.home, unconfined_accepted=accepted, decider=decider
    )

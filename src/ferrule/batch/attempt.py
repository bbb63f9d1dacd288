"""One try of one task: a workspace, a session, a patch, a check, a result."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from ferrule.batch.gate import Gate
from ferrule.batch.messages import Done, Setup, Unable
from ferrule.batch.results import Result, Status
from ferrule.batch.tasks import Task, has_image
from ferrule.batch.trace import conversation, last_words, messages_of, rollout_name
from ferrule.model.abilities import ROOM, ask_abilities, is_own
from ferrule.model.profiles import load_profiles, profile_files
from ferrule.model.provider import choose_model, open_model
from ferrule.model.stream import ModelError
from ferrule.process.launcher import Child, Launcher, Limits, Pipes, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from ferrule.process.shell import LoginShell, default_shell, shell_argv
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.json_text import encodable
from ferrule.protocol.permissions import InContainer, ReadOnly, SandboxMode, SandboxPolicy, WorkspaceWrite, as_policy
from ferrule.protocol.settings import Settings
from ferrule.sandbox.plan import is_within
from ferrule.sandbox.policy import SLASH_TMP, command_places
from ferrule.session.bounds import COMMAND_GRACE, TurnTimeout
from ferrule.session.budget import BudgetSpent
from ferrule.session.opener import SharedResources
from ferrule.session.opening import open_session
from ferrule.session.session import Session
from ferrule.session.turn import TurnLimit
from ferrule.sync import AsyncClosing
from ferrule.workspaces import Empty, Folder, Repository, Source, Workspace, Workspaces

CHECK_SECONDS = 1800.0
"""How long a check may run for a task without `max_seconds`: the tests of a large project end within it."""
CHECK_BYTES = 4096
"""Kept of what a check prints, which nobody reads."""
LEAST_SPACE = 1 << 20
"""Bytes on the disk of the results, below which it is full: what fails then may fail for that."""
LEAST_WINDOW = 16_384
"""Tokens of a window, as the server states it, in which a task can be done: below it, it is not believed."""

_LIMITS: dict[type[FerruleError], Status] = {
    TurnLimit: "turn_limit",
    BudgetSpent: "token_limit",
    TurnTimeout: "timeout",
}


class _Found(msgspec.Struct):
    """What is known of a try so far."""

    status: Status = "done"
    error: str | None = None
    text: str | None = None
    patch: str = ""
    code: int | None = None
    session: Session | None = None
    unreachable: bool = False

    def failed(self, error: FerruleError) -> None:
        """Note why the model's work ended before it was done."""
        self.status = next((status for kind, status in _LIMITS.items() if isinstance(error, kind)), "error")
        self.error = encodable(str(error))
        self.unreachable = isinstance(error, ModelError) and _is_of_server(error.status)


def _is_of_server(status: int | None) -> bool:
    """Return whether every task would fail so: nobody answers, the key or the name of the model is wrong, a quota is
    used up."""
    return status in (None, 401, 402, 403, 404, 429) or status >= 500


class Attempts(AsyncClosing):
    """What the tasks of a worker share: the model's connections, the login shell, where workspaces are made."""

    def __init__(self, setup: Setup, workspaces: Workspaces, gate: Gate) -> None:
        self._setup = setup
        self._workspaces = workspaces
        self._gate = gate
        home = setup.settings.home
        self._profiles = load_profiles(profile_files(home))
        self._model = open_model(
            setup.settings.provider,
            profiles=self._profiles,
            api_key=setup.api_key,
            kept_sessions=setup.slots,
            gate=gate,
        )
        places = command_places(setup.settings.sandbox_policy, setup.scratch, home, os.environ)
        shell = default_shell(os.environ, places)
        self._login = LoginShell(PlainLauncher(), shell, os.environ, os.sep, places=places)
        self._chosen: str | None = None
        self._windows: dict[str, int | None] = {}
        self._asking = asyncio.Lock()

    async def aclose(self) -> None:
        """Close the connections, and end the shell."""
        await self._login.close()
        await self._model.aclose()

    async def run(self, key: str, task: Task, tries: int) -> Done | Unable:
        """Do the task, whatever happens on the way. An error where the disk is full is not the task's."""
        started = time.monotonic()
        found = _Found()
        record = Path(self._setup.rollouts, rollout_name(key))
        try:
            record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            record.unlink(missing_ok=True)
            whole = has_image(_policy_of(task, self._setup.settings.sandbox_policy))
            async with self._workspaces.enter(_source_of(task), whole=whole) as workspace:
                await self._within(workspace, task, record, found)
        except FerruleError as error:
            found.status, found.error = "error", encodable(str(error))
        except Exception as fault:  # noqa: BLE001 - it ends one task, not the thousand others; its result tells it
            traceback.print_exc(file=sys.stderr)
            found.status, found.error = "error", encodable(f"internal error: {fault!r}")
        result = self._result(task, found, record, tries, time.monotonic() - started)
        if result.status == "error" and shutil.disk_usage(record.parent.parent).free < LEAST_SPACE:
            return Unable(f"the disk of {record.parent} is full; free some space")
        sent = _taken(record) if self._setup.sends_rollouts else None
        return Done(key, result.line(), result.status, result.verdict, found.unreachable, sent)

    def _result(self, task: Task, found: _Found, record: Path, tries: int, seconds: float) -> Result:
        recorded = record.exists()
        items, whole = conversation(record, encodable(task.prompt)) if recorded else ([], False)
        if found.status == "done" and not whole:
            found.status, found.error = "error", f"what was said could not be kept in {record}: is the disk full?"
        judged, kept = found.code is not None, self._setup.kept_rollouts
        return Result(
            id=task.id,
            status=found.status,
            verdict=("pass" if found.code == 0 else "fail") if judged else None,
            check_exit_code=found.code,
            last_message=last_words(items) if found.text is None else found.text,
            patch=found.patch,
            usage=TokenUsage() if found.session is None else found.session.usage,
            seconds=round(seconds, 3),
            attempts=tries,
            error=found.error,
            rollout=os.path.join(kept, record.name) if recorded and kept is not None else None,
            messages=messages_of(items, self._profiles),
        )

    async def _within(self, workspace: Workspace, task: Task, record: Path, found: _Found) -> None:
        """Let the model work in the workspace; then take the patch, and check it."""
        async with AsyncExitStack() as ends:
            limit = task.max_seconds or self._setup.settings.run_timeout
            try:
                async with asyncio.timeout(limit) as bound:
                    with self._gate.not_counted(bound):
                        opened = await self._open(task, workspace.path, record)
                        found.session = await ends.enter_async_context(opened)
                        result = await found.session.run(task.prompt)
                        found.text = result.text
                        if result.aborted:
                            found.status, found.error = "error", "the turn was interrupted"
            except FerruleError as error:
                found.failed(error)
            except TimeoutError:
                if not bound.expired():
                    raise
                found.status, found.error = "timeout", f"stopped after {limit:g} s (max_seconds)"
            if found.session is not None:
                await found.session.settle_commands(COMMAND_GRACE if found.status == "done" else 0.0)
            found.patch = await workspace.patch()
            if task.check is not None and found.status != "error" and found.session is not None:
                found.code = await _check(found.session, task.check, limit or CHECK_SECONDS)

    async def _open(self, task: Task, place: Path, record: Path) -> Session:
        """Open a session in the workspace. A container has temporary files of its own, and where nothing can be written
        there are none."""
        settings, env = await self._settings(task, place), {**os.environ}
        if not isinstance(settings.sandbox_policy, ReadOnly | InContainer):
            env["TMPDIR"] = tempfile.mkdtemp(prefix="tmp-", dir=place.parent)
            settings = _with_temporary(settings, env["TMPDIR"])
        return await open_session(settings, shared=SharedResources(self._model, self._login, record), env=env)

    async def _settings(self, task: Task, place: Path) -> Settings:
        """Return the batch's settings with what the task says."""
        base = self._setup.settings
        model = task.model or base.model.model or await self._default_model()
        window = base.model.context_window or await self._window(model)
        return msgspec.structs.replace(
            base,
            cwd=str(place),
            model=msgspec.structs.replace(base.model, model=model, context_window=window),
            sandbox_policy=_policy_of(task, base.sandbox_policy),
            tools=base.tools if task.tools is None else task.tools,
            max_turns=task.max_turns or base.max_turns,
            run_token_budget=task.max_tokens or base.run_token_budget,
            ephemeral=True,
        )

    async def _default_model(self) -> str:
        if self._chosen is None:
            self._chosen = await choose_model(self._model, None)
        return self._chosen

    async def _window(self, model: str) -> int | None:
        """Return the window that a server of the user's own states, asked once for all tasks."""
        async with self._asking:  # all tasks of a worker that starts come at once
            if model not in self._windows:
                profile, server = self._model.accepts.name, self._model.server
                own = is_own(self._profiles, profile, server.endpoint.base_url)
                told = await ask_abilities(server, profile, model) if own else None
                usable = told is not None and not told.is_default and (told.window or 0) > LEAST_WINDOW + ROOM
                self._windows[model] = told.window if told is not None and usable else None
        return self._windows[model]


async def _check(session: Session, script: str, seconds: float) -> int:
    """Run the check as the model's commands are run; return its exit code, 124 if it took too long."""
    toolset = session.toolset
    commands, workspace = toolset.conversation.commands, toolset.workspace
    launcher = _Whole(PlainLauncher() if workspace.plan is None else workspace)
    pipes = Pipes(merge=True)
    try:
        done = await run(
            launcher,
            shell_argv(commands.shell, script),
            env=await commands.environment(True, pipes),
            cwd=session.settings.cwd,
            timeout_ms=round(seconds * 1000),
            stdio=pipes,
            capture_bytes=CHECK_BYTES,
        )
    finally:
        await launcher.end()
    return done.exit_code


class _Whole:
    """A launcher whose commands end with all that they have started."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._children: list[Child] = []

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """See `Launcher.launch`."""
        child = await self._launcher.launch(argv, env, cwd, stdio, limits)
        self._children.append(child)
        return child

    async def end(self) -> None:
        """End what still runs."""
        for child in self._children:
            await child.kill_tree()


def _taken(record: Path) -> bytes | None:
    """Return the rollout, and remove it."""
    if not record.exists():
        return None
    found = record.read_bytes()
    record.unlink()
    return found


def _source_of(task: Task) -> Source:
    if task.repository is not None:
        return Repository(task.repository)
    return Empty() if task.folder is None else Folder(task.folder)


def _with_temporary(settings: Settings, folder: str) -> Settings:
    """Let commands keep temporary files in a folder, which no other task has and which ends with this one. Where the
    workspaces are in /tmp, that cannot be written: the results are there, and what belongs to other tasks."""
    policy = settings.sandbox_policy
    if isinstance(policy, WorkspaceWrite) and is_within(folder, SLASH_TMP):
        policy = msgspec.structs.replace(policy, exclude_slash_tmp=True)
    rules = settings.shell_environment_policy
    rules = msgspec.structs.replace(rules, set={**rules.set, "TMPDIR": folder})
    return msgspec.structs.replace(settings, sandbox_policy=policy, shell_environment_policy=rules)


def _policy_of(task: Task, usual: SandboxPolicy) -> SandboxPolicy:
    """Return the policy for a task: the batch's, unless it names another mode or an image."""
    mode = SandboxMode.CONTAINER if task.image is not None else task.sandbox
    if mode is None or (mode == usual.__struct_config__.tag and task.image is None):
        return usual
    if mode is not SandboxMode.CONTAINER:
        return as_policy(mode)
    fields = msgspec.structs.asdict(usual) if isinstance(usual, WorkspaceWrite) else {}
    return InContainer(**fields | ({} if task.image is None else {"image": task.image}))

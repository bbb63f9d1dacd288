"""Hooks: commands and functions of the user that see what happens, and may block, rewrite, replace or add to it.

A hook that fails, hangs or prints rubbish never stops the turn: it is reported and passed over. The JSON protocol is
Codex's, so hooks that were written for it work here.
"""

import asyncio
import inspect
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

import msgspec

from ferrule.builtin.command_forms import Command, given_command, patch_text
from ferrule.builtin.table import COMMAND_FIELDS, SCRIPTS
from ferrule.config.project import changed_program
from ferrule.dispatch.hooks import AfterTool, BeforeTool
from ferrule.execpolicy import command_text
from ferrule.lookup import NOWHERE, Places, exposed_folders, safe_search
from ferrule.patch.hosted import operation_text
from ferrule.process.environment import child_environment
from ferrule.process.launcher import Launcher, LaunchError
from ferrule.process.run import run
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import CustomPayload, ToolOutput
from ferrule.protocol.permissions import ReviewDecision
from ferrule.protocol.settings import HookCommand, HookName, HookPrograms
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.effects import CommandEffect, Effect, McpEffect, NetworkEffect, PatchEffect
from ferrule.tools.questions import Decision
from ferrule.tools.tasks import run_blocking

BLOCK_EXIT = 2
"""The exit code by which a command blocks; its stderr says why."""
NOT_FOUND = 127
"""The exit code of a shell that finds no such program."""
DEFAULT_STOP = "PostToolUse hook stopped execution"


class HookInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of a hook; a command gets it as JSON on standard input."""

    hook_event_name: HookName
    session_id: str
    cwd: str
    model: str = ""
    turn_id: str = ""
    transcript_path: str | None = None
    permission_mode: str = ""
    tool_name: str | None = None
    tool_input: JsonValue = None
    tool_use_id: str | None = None
    tool_response: JsonValue = None
    prompt: str | None = None
    last_assistant_message: str | None = None
    stop_hook_active: bool = False
    """True if a Stop hook has already sent the model back to work in this turn."""
    source: str | None = None
    trigger: str | None = None
    """Who wanted a compaction: auto or manual."""
    compact_summary: str | None = None


class PermissionAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decision of a PermissionRequest hook."""

    behavior: Literal["allow", "deny"]
    message: str | None = None


class SpecificOutput(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The part of an answer that is for one event."""

    hook_event_name: str | None = None
    permission_decision: Literal["allow", "deny", "ask"] | None = None
    permission_decision_reason: str | None = None
    updated_input: JsonValue = None
    additional_context: str | None = None
    decision: PermissionAnswer | None = None


class HookOutput(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The answer of a hook; a command prints it as JSON, a function returns it."""

    continue_: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    suppress_output: bool = False
    system_message: str | None = None
    decision: Literal["block", "approve"] | None = None
    reason: str | None = None
    hook_specific_output: SpecificOutput = SpecificOutput()

    @property
    def block_reason(self) -> str | None:
        """Why the event is blocked, or None."""
        specific = self.hook_specific_output
        if self.decision == "block":
            return self.reason or "no reason was given"
        if specific.permission_decision == "deny":
            return specific.permission_decision_reason or self.reason or "no reason was given"
        return None


HookFunction = Callable[[HookInput], "Awaitable[HookOutput | None] | HookOutput | None"]


class PythonHook(msgspec.Struct, frozen=True):
    """A function that is called at an event. `matcher` is a regular expression for the tool's name (empty: all)."""

    event: HookName
    function: HookFunction
    matcher: str = ""
    timeout: float = 60.0


Hook = HookCommand | PythonHook


class _Failed(Exception):
    """A hook failed; the text says how."""


class SessionHooks:
    """All hooks of a session: the `ToolHooks` of dispatch, and those of the orchestrator and the turn.

    `programs` are those that a project's hooks may start, as confirmed. `report` is told of failed hooks;
    `add_context` takes the text that hooks add for the model.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        launcher: Launcher,
        base: HookInput,
        env: Mapping[str, str],
        secrets: frozenset[str] = frozenset(),
        places: Places = NOWHERE,
        *,
        programs: HookPrograms | None = None,
        report: Callable[[str], object] = lambda text: None,
        add_context: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._hooks = [(hook, re.compile(hook.matcher or ".*")) for hook in hooks]
        self._launcher = launcher
        self._base = base
        variables = child_environment(ShellEnvironmentPolicy(secrets=secrets), env).variables
        self._env = {**variables, "PATH": safe_search(variables.get("PATH"), places)}
        """Hooks run with all rights, so they find no program in `places`, where commands can write."""
        self._not_searched = exposed_folders(variables.get("PATH"), places)
        self._programs = programs
        self._report = report
        self._add_context = add_context

    async def before(self, invocation: ToolInvocation, tool_input: JsonValue, ctx: ToolContext) -> BeforeTool:
        """PreToolUse: may block the call or rewrite its input."""
        name, shown = _as_hooks_see(invocation, tool_input)
        outputs = await self.ask("PreToolUse", invocation, tool_name=name, tool_input=shown)
        rewritten: JsonValue = msgspec.UNSET
        for output in outputs:  # in the order in which they finished: the last one wins
            if output.block_reason is not None:
                return BeforeTool(block=_block_text(name, shown, output.block_reason))
            specific = output.hook_specific_output
            if specific.updated_input is not None and specific.permission_decision == "allow":
                rewritten = _as_tools_see(invocation, tool_input, specific.updated_input)
        return BeforeTool(tool_input=rewritten)

    async def after(
        self, invocation: ToolInvocation, tool_input: JsonValue, output: ToolOutput, ctx: ToolContext
    ) -> AfterTool:
        """PostToolUse: may replace what the model reads."""
        name, shown = _as_hooks_see(invocation, tool_input)
        outputs = await self.ask("PostToolUse", invocation, tool_name=name, tool_input=shown, tool_response=output.text)
        feedback = [text for answer in outputs if (text := _feedback(answer)) is not None]
        return AfterTool(output="\n".join(feedback) or None)

    async def permission(self, ctx: ToolContext, effect: Effect) -> Decision | None:
        """PermissionRequest: answers instead of the user, or not. One denial outweighs every permission."""
        invocation_name, shown = _effect_as_hooks_see(effect)
        answers = [
            answer
            for output in await self.ask("PermissionRequest", None, tool_name=invocation_name, tool_input=shown)
            if (answer := output.hook_specific_output.decision) is not None
        ]
        for answer in answers:
            if answer.behavior == "deny":
                return Decision(ReviewDecision.DENIED, answer.message)
        return Decision(ReviewDecision.APPROVED) if answers else None

    async def ask(
        self, event: HookName, invocation: ToolInvocation | None = None, **fields: JsonValue
    ) -> list[HookOutput]:
        """Run the event's hooks together. Returns the answers in the order in which they came."""
        name = fields.get("tool_name", fields.get("trigger"))
        chosen = [hook for hook, matcher in self._hooks if hook.event == event and _matches(matcher, name)]
        if not chosen:
            return []
        if invocation is not None:
            fields |= {"turn_id": invocation.turn_id, "tool_use_id": invocation.call_id}
        told = msgspec.structs.replace(self._base, hook_event_name=event, **fields)
        answers: list[HookOutput] = []
        for finished in asyncio.as_completed([self._run(hook, told) for hook in chosen]):
            try:
                answer = await finished
            except _Failed as failure:
                self._report(f"a {event} hook {failure}; it was passed over")
                continue
            if answer is not None:
                answers.append(answer)
                self._tell(answer)
        return answers

    def has(self, event: HookName) -> bool:
        """Tell whether a hook listens to the event."""
        return any(hook.event == event for hook, _ in self._hooks)

    def _tell(self, answer: HookOutput) -> None:
        if answer.system_message:
            self._report(answer.system_message)
        context = answer.hook_specific_output.additional_context
        if context:
            self._add_context(context)

    async def _run(self, hook: Hook, told: HookInput) -> HookOutput | None:
        if isinstance(hook, HookCommand):
            return await self._run_command(hook, told)
        try:
            async with asyncio.timeout(hook.timeout):
                answer = hook.function(told)
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError as error:
            raise _Failed(f"did not answer within {hook.timeout:g} s") from error
        except Exception as error:
            raise _Failed(f"raised {type(error).__name__}: {error}") from error

    async def _run_command(self, hook: HookCommand, told: HookInput) -> HookOutput | None:
        if hook.of_project and self._programs is not None:
            changed = await run_blocking(changed_program, self._programs)
            if changed is not None:
                raise _Failed(f"({hook.command}) of the project was not run: {changed} is not as you confirmed it")
        try:
            done = await run(
                self._launcher,
                ["/bin/sh", "-c", hook.command],
                env=self._env,
                cwd=told.cwd,
                stdin=msgspec.json.encode(told),
                timeout_ms=round(hook.timeout * 1000),
            )
        except LaunchError as error:
            raise _Failed(f"could not be started: {error}") from error
        if done.timed_out:
            raise _Failed(f"({hook.command}) did not answer within {hook.timeout:g} s")
        if done.exit_code == BLOCK_EXIT:
            reason = done.stderr.text().strip()
            if not reason:
                raise _Failed(f"({hook.command}) blocked without a reason on stderr")
            return HookOutput(decision="block", reason=reason)
        if done.exit_code == NOT_FOUND and self._not_searched:
            folders = f"commands can write in {', '.join(self._not_searched)}"
            raise _Failed(f"({hook.command}) found no such program; {folders}, so it is not looked for there")
        if done.exit_code != 0:
            raise _Failed(f"({hook.command}) ended with exit code {done.exit_code}")
        answer = _read_answer(hook, done.stdout.render())
        permission = None if answer is None else answer.hook_specific_output.decision
        if hook.of_project and permission is not None and permission.behavior == "allow":
            raise _Failed(f"({hook.command}) of the project wants to allow what only you and your own hooks may allow")
        return answer


def _read_answer(hook: HookCommand, printed: bytes) -> HookOutput | None:
    """Return the answer on standard output. Nothing, or text that is not meant as JSON, says nothing."""
    text = printed.strip()
    if not text.startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(text, type=HookOutput)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Failed(f"({hook.command}) printed something that is no answer: {error}") from error


_PATCH = "apply_patch"
_ALIASES = {_PATCH: ("Write", "Edit")}


def _matches(matcher: re.Pattern[str], name: JsonValue) -> bool:
    if not isinstance(name, str):
        return True
    return any(matcher.fullmatch(each) for each in (name, *_ALIASES.get(name, ())))


def _as_hooks_see(invocation: ToolInvocation, tool_input: JsonValue) -> tuple[str, JsonValue]:
    """Return the tool's name and input: what runs commands is `Bash`, what patches is `apply_patch`."""
    name, field = invocation.tool_name, COMMAND_FIELDS.get(invocation.key)
    if field is not None and isinstance(tool_input, dict):
        return "Bash", {"command": _script(field, given_command(tool_input, field))}
    if name == _PATCH:
        return _PATCH, {"command": _patch_text(tool_input)}
    return f"{invocation.namespace}__{name}" if invocation.namespace else name, tool_input


def _script(field: str, command: Command | None) -> str:
    if isinstance(command, str):
        return command
    words = command or ()
    return "\n".join(words) if field == SCRIPTS else shlex.join(words)


def _patch_text(tool_input: JsonValue) -> str:
    """Return the patch, whichever form of the tool was called: text, an argument, or one native operation."""
    if isinstance(tool_input, dict) and "path" in tool_input:
        return operation_text(tool_input["type"], tool_input["path"], tool_input.get("diff", ""))
    return patch_text(tool_input) or ""


def _as_tools_see(invocation: ToolInvocation, tool_input: JsonValue, updated: JsonValue) -> JsonValue:
    """Bring a rewritten input into the tool's own shape."""
    field = COMMAND_FIELDS.get(invocation.key)
    command = updated.get("command") if isinstance(updated, dict) else None
    if not isinstance(command, str):
        return updated
    if field == SCRIPTS:
        return {**tool_input, field: [command]}
    if field is not None and isinstance(tool_input, dict):
        argv = isinstance(given_command(tool_input, field), tuple)
        return {**tool_input, field: ["bash", "-lc", command] if argv else command}
    if invocation.key == (None, _PATCH):
        return command if isinstance(invocation.payload, CustomPayload) else {"input": command}
    return updated


def _effect_as_hooks_see(effect: Effect) -> tuple[str, JsonValue]:
    match effect:
        case CommandEffect(argv=argv):
            return "Bash", {"command": command_text(argv)}
        case PatchEffect(text=text):
            return _PATCH, {"command": text}
        case McpEffect(server=server, tool=tool, arguments=arguments):
            return f"mcp__{server}__{tool}", {"arguments": arguments}
        case NetworkEffect(host=host, port=port):
            return "Network", {"url": effect.url, "host": host, "port": port}
    return effect.name, {"arguments": effect.arguments}


def _block_text(name: str, shown: JsonValue, reason: str) -> str:
    if name in ("Bash", _PATCH):
        return f"Command blocked by PreToolUse hook: {reason}. Command: {shown['command']}"
    return f"Tool call blocked by PreToolUse hook: {reason}. Tool: {name}"


def _feedback(answer: HookOutput) -> str | None:
    if answer.block_reason is not None:
        return answer.block_reason
    return None if answer.continue_ else answer.stop_reason or DEFAULT_STOP


def hook_base(session_id: str, cwd: str, model: str, permission_mode: str, transcript: str | None) -> HookInput:
    """Return the input that all hooks of a session share."""
    return HookInput(
        hook_event_name="SessionStart",
        session_id=session_id,
        cwd=cwd,
        model=model,
        permission_mode=permission_mode,
        transcript_path=transcript and os.fspath(transcript),
    )

"""Hooks: real commands and functions at every event, through whole turns."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import cast

import msgspec
import pytest

from ferrule import tool
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.content import text_of
from ferrule.protocol.events import WarningEvent
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, ItemView, Message
from ferrule.protocol.payload import FunctionPayload, NativePayload
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.settings import HookCommand, HookName, ModelSettings, Settings
from ferrule.session.hooks import HookInput, HookOutput, PythonHook, SessionHooks, SpecificOutput, hook_base
from ferrule.session.opening import open_session
from ferrule.session.session import Session
from ferrule.session.turn_hooks import PromptBlocked
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.registry import NATIVE
from tests.session.models import InProcessModel, calls, says


@tool
async def echo(text: str = "") -> str:
    return f"echo {text}"


class Door:
    can_answer = False

    def __init__(self) -> None:
        self.events: list[object] = []

    def on_event(self, event: object) -> None:
        self.events.append(event)

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, WarningEvent)]


def prints(answer: object, *, code: int = 0, stderr: str = "", save: Path | None = None) -> str:
    """A shell command that reads its input, perhaps saves it, and answers."""
    text = "" if answer is None else json.dumps(answer)
    script = f"import sys\ndata = sys.stdin.read()\nsys.stderr.write({stderr!r})\nsys.stdout.write({text!r})\n"
    if save is not None:
        script += f"open({str(save)!r}, 'w').write(data)\n"
    return shlex.join([sys.executable, "-c", script + f"sys.exit({code})"])


class Run:
    """One turn with hooks."""

    def __init__(self, tmp_path: Path, *hooks: HookCommand | PythonHook) -> None:
        self.tmp_path = tmp_path
        self.commands = tuple(hook for hook in hooks if isinstance(hook, HookCommand))
        self.functions = [hook for hook in hooks if isinstance(hook, PythonHook)]
        self.door = Door()
        self.session: Session | None = None

    async def turn(self, *steps: list[ItemView], policy: AskForApproval = AskForApproval.NEVER) -> list[str]:
        """The answers to the calls."""
        settings = Settings(
            cwd=str(self.tmp_path),
            home=str(self.tmp_path / "home"),
            model=ModelSettings(model="m"),
            sandbox_policy=DangerFullAccess(),
            approval_policy=policy,
            hooks=self.commands,
            ephemeral=True,
        )
        self.model = InProcessModel(*steps)
        tools = [echo, "shell_command", "apply_patch"]
        self.session = await open_session(settings, self.door, tools=tools, model=self.model, hooks=self.functions)
        async with self.session:
            self.result = await self.session.run("go")
        views = [item.view for item in self.session.history.items]
        return [text_of(view.output) for view in views if isinstance(view, FunctionCallOutput)]


def shell(command: str) -> ItemView:
    return FunctionCall(call_id="s", name="shell_command", arguments=json.dumps({"command": command}))


async def test_a_command_sees_the_call_in_the_words_that_hooks_know(tmp_path: Path) -> None:
    saved = tmp_path / "seen.json"
    hook = HookCommand(event="PreToolUse", command=prints(None, save=saved), matcher="Bash")
    run = Run(tmp_path, hook)
    [output] = await run.turn([shell("echo hi")], [says("ok")])
    assert "hi" in output
    seen = json.loads(saved.read_text())
    assert seen["hook_event_name"] == "PreToolUse"
    assert (seen["tool_name"], seen["tool_input"]) == ("Bash", {"command": "echo hi"})
    assert seen["cwd"] == str(tmp_path)
    assert seen["tool_use_id"] == "s"
    assert run.session is not None
    assert seen["session_id"] == run.session.id


@pytest.mark.parametrize(
    "command",
    [
        prints(None, code=2, stderr="not here"),
        prints({"decision": "block", "reason": "not here"}),
        prints({"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "not here"}}),
    ],
)
async def test_each_way_of_blocking(command: str, tmp_path: Path) -> None:
    run = Run(tmp_path, HookCommand(event="PreToolUse", command=command))
    outputs = await run.turn([shell("touch made"), calls("echo")], [says("ok")])
    assert outputs == [
        "Command blocked by PreToolUse hook: not here. Command: touch made",
        "Tool call blocked by PreToolUse hook: not here. Tool: echo",
    ]
    assert not (tmp_path / "made").exists()


async def test_an_input_is_rewritten_in_the_tools_own_shape(tmp_path: Path) -> None:
    answer = {"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"command": "echo other"}}}
    [output] = await Run(tmp_path, HookCommand(event="PreToolUse", command=prints(answer))).turn(
        [shell("echo first")], [says("ok")]
    )
    assert "other" in output
    assert "first" not in output


async def test_an_output_is_replaced_and_context_added(tmp_path: Path) -> None:
    replace = PythonHook("PostToolUse", lambda told: HookOutput(decision="block", reason=f"saw {told.tool_response}"))
    adds = PythonHook(
        "PostToolUse", lambda told: HookOutput(hook_specific_output=SpecificOutput(additional_context="by the way"))
    )
    run = Run(tmp_path, replace, adds)
    assert await run.turn([calls("echo", '{"text":"x"}')], [says("ok")]) == ["saw echo x"]
    sent = [item.view for item in run.model.requests[1].items]
    assert isinstance(sent[-1], Message)
    assert (sent[-1].role, text_of(sent[-1].content)) == ("developer", "by the way")
    assert isinstance(sent[-2], FunctionCallOutput)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("exit 3", "ended with exit code 3"),
        ("exit 2", "blocked without a reason"),
        ("echo '{\"decision\": 5}'", "printed something that is no answer"),
        ('echo \'{"decison": "block"}\'', "printed something that is no answer"),
        ("sleep 60", "did not answer within 0.3 s"),
    ],
)
async def test_a_hook_that_fails_hangs_or_prints_rubbish_is_passed_over_and_told(
    command: str, problem: str, tmp_path: Path
) -> None:
    run = Run(tmp_path, HookCommand(event="PreToolUse", command=command, timeout=0.3 if "sleep" in command else 20))
    assert await run.turn([calls("echo")], [says("ok")]) == ["echo "]
    [warning] = run.door.warnings
    assert problem in warning


async def test_a_function_that_raises_is_passed_over(tmp_path: Path) -> None:
    def broken(told: HookInput) -> HookOutput:
        raise KeyError("oops")

    run = Run(tmp_path, PythonHook("PreToolUse", broken))
    assert await run.turn([calls("echo")], [says("ok")]) == ["echo "]
    assert "raised KeyError" in run.door.warnings[0]


async def test_plain_text_says_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, HookCommand(event="PreToolUse", command="echo looks good"))
    assert await run.turn([calls("echo")], [says("ok")]) == ["echo "]
    assert run.door.warnings == []


async def test_matchers_choose_tools(tmp_path: Path) -> None:
    seen: list[str | None] = []
    hook = PythonHook("PreToolUse", lambda told: seen.append(told.tool_name), matcher="Write|Bash")
    patch = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"
    call = FunctionCall(call_id="p", name="apply_patch", arguments=json.dumps({"input": patch}))
    await Run(tmp_path, hook).turn([calls("echo"), shell("true"), call], [says("ok")])
    assert seen == ["Bash", "apply_patch"]


async def test_a_permission_is_answered_by_a_hook(tmp_path: Path) -> None:
    def decide(told: HookInput) -> HookOutput:
        allowed = "true" in told.tool_input["command"]
        answer = {"behavior": "allow"} if allowed else {"behavior": "deny", "message": "only true"}
        return msgspec.convert({"hookSpecificOutput": {"decision": answer}}, HookOutput)

    run = Run(tmp_path, PythonHook("PermissionRequest", decide, matcher="Bash"))
    allowed, denied = await run.turn(
        [FunctionCall(call_id="a", name="shell_command", arguments='{"command":"test true"}'), shell("make")],
        [says("ok")],
        policy=AskForApproval.UNTRUSTED,
    )
    assert allowed.startswith("Exit code: 0")
    assert denied == "exec command rejected by user: only true"


async def test_a_prompt_is_blocked_before_anything_is_sent(tmp_path: Path) -> None:
    hook = PythonHook("UserPromptSubmit", lambda told: HookOutput(decision="block", reason=f"no {told.prompt}"))
    run = Run(tmp_path, hook)
    with pytest.raises(PromptBlocked, match="blocked by a hook: no go"):
        await run.turn([says("never")])
    assert run.model.requests == []


async def test_the_events_of_a_session_in_their_order(tmp_path: Path) -> None:
    order: list[HookName] = []
    names: list[HookName] = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
    hooks = [PythonHook(name, lambda told: order.append(told.hook_event_name)) for name in names]
    await Run(tmp_path, *hooks).turn([calls("echo")], [says("ok")])
    assert order == names


async def test_a_stop_hook_sends_the_model_back_to_work_but_not_for_ever(tmp_path: Path) -> None:
    hook = PythonHook(
        "Stop", lambda told: None if told.stop_hook_active else HookOutput(decision="block", reason="run the tests")
    )
    run = Run(tmp_path, hook)
    await run.turn([says("done")], [says("really done")])
    assert run.result.text == "really done"
    last = run.model.requests[1].items[-1].view
    assert isinstance(last, Message)
    assert text_of(last.content) == "run the tests"
    stubborn = Run(tmp_path, PythonHook("Stop", lambda told: HookOutput(decision="block", reason="again")))
    await stubborn.turn(*[[says(str(n))] for n in range(20)])
    assert len(stubborn.model.requests) == 11


NATIVE_SHELL = ToolInvocation("c", "shell", NativePayload("shell_call", ""), NATIVE)
NATIVE_PATCH = ToolInvocation("c", "apply_patch", NativePayload("apply_patch_call", ""), NATIVE)


def function(name: str) -> ToolInvocation:
    return ToolInvocation("c", name, FunctionPayload("{}"))


@pytest.mark.parametrize(
    ("invocation", "given", "shown", "rewritten"),
    [
        (function("bash"), {"command": "ls"}, "ls", {"command": "new"}),
        (function("bash"), {"restart": True}, "", {"restart": True, "command": "new"}),
        (function("execute_bash"), {"command": "ls", "reset": True}, "ls", {"command": "new", "reset": True}),
        (function("exec_command"), {"cmd": "ls"}, "ls", {"cmd": "new"}),
        (function("container.exec"), {"command": ["ls", "-l"]}, "ls -l", {"command": ["bash", "-lc", "new"]}),
        (NATIVE_SHELL, {"commands": ["cd x", "ls"]}, "cd x\nls", {"commands": ["new"]}),
    ],
)
async def test_every_tool_that_runs_commands_is_bash(
    invocation: ToolInvocation, given: dict[str, object], shown: str, rewritten: dict[str, object], tmp_path: Path
) -> None:
    seen: list[HookInput] = []

    def rewrite(told: HookInput) -> HookOutput:
        seen.append(told)
        output = SpecificOutput(permission_decision="allow", updated_input={"command": "new"})
        return HookOutput(hook_specific_output=output)

    hooks = session_hooks(PythonHook("PreToolUse", rewrite, matcher="Bash"), tmp_path)
    before = await hooks.before(invocation, given, cast("ToolContext", None))
    assert [(told.tool_name, told.tool_input) for told in seen] == [("Bash", {"command": shown})]
    assert before.tool_input == rewritten


async def test_a_native_operation_is_shown_as_the_patch_that_it_is(tmp_path: Path) -> None:
    seen: list[HookInput] = []
    hooks = session_hooks(PythonHook("PreToolUse", seen.append, matcher="Edit"), tmp_path)
    operation = {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}
    await hooks.before(NATIVE_PATCH, operation, cast("ToolContext", None))
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch"
    assert [(told.tool_name, told.tool_input) for told in seen] == [("apply_patch", {"command": patch})]


def session_hooks(hook: PythonHook, tmp_path: Path) -> SessionHooks:
    return SessionHooks([hook], PlainLauncher(), hook_base("s", str(tmp_path), "m", "never", None), {})


async def test_s22_a_hook_does_not_see_a_variable_that_a_setting_names(tmp_path: Path) -> None:
    saved = tmp_path / "seen"
    hook = HookCommand(event="SessionStart", command=f'printf "%s/%s" "$CORP" "$SEEN" > {shlex.quote(str(saved))}')
    base = hook_base("s", str(tmp_path), "m", "never", None)
    env = {"PATH": os.environ["PATH"], "CORP": "canary", "SEEN": "1"}
    await SessionHooks([hook], PlainLauncher(), base, env, frozenset({"CORP"})).ask("SessionStart", source="startup")
    assert saved.read_text() == "/1"

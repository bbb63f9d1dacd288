"""What a session's model is told of its shells: the sandbox, who may be asked, PowerShell."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ferrule.builtin import BUILTINS
from ferrule.builtin.escalation import ESCALATION_FIELDS, described, sandbox_text
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ExternalSandbox,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)
from ferrule.protocol.profiles import ModelProfile, PatchForm
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.tools.context import Permissions
from ferrule.tools.conversation import Conversation
from tests.builtin.states import conversation

SHELLS = ["exec_command", "shell", "shell_command"]


def session(
    policy: SandboxPolicy, approval: AskForApproval = AskForApproval.ON_REQUEST, tmpdir: str | None = None
) -> Conversation:
    state = msgspec.structs.replace(conversation(Path("/work/tree")), permissions=Permissions(approval, policy))
    state.commands.base.pop("TMPDIR", None)
    if tmpdir is not None:
        state.commands.base["TMPDIR"] = tmpdir
    return state


def told(tool: str, state: Conversation) -> ResponsesApiTool:
    spec = BUILTINS[tool].spec(state)
    assert isinstance(spec, ResponsesApiTool)
    return spec


@pytest.mark.parametrize("tool", SHELLS)
def test_under_never_nothing_can_be_asked_for(tool: str) -> None:
    state = session(WorkspaceWrite(), AskForApproval.NEVER)
    spec = told(tool, state)
    assert not set(ESCALATION_FIELDS) & set(spec.parameters.mapping["properties"])
    assert "require_escalated" not in spec.responses_json.decode()
    assert "Nobody can be asked" in spec.description


@pytest.mark.parametrize("tool", SHELLS)
@pytest.mark.parametrize("approval", [a for a in AskForApproval if a is not AskForApproval.NEVER])
def test_where_somebody_answers_it_can(tool: str, approval: AskForApproval) -> None:
    spec = told(tool, session(WorkspaceWrite(), approval))
    assert set(ESCALATION_FIELDS) <= set(spec.parameters.mapping["properties"])
    assert "require_escalated" in spec.description


@pytest.mark.parametrize("name", [tool.name for tool in BUILTINS.values() if not tool.hidden])
@pytest.mark.parametrize("approval", [AskForApproval.NEVER, AskForApproval.ON_REQUEST])
@pytest.mark.parametrize("form", ["freeform", "function"])
def test_the_cheap_spec_is_the_made_tools_spec(name: str, approval: AskForApproval, form: PatchForm) -> None:
    profile = ModelProfile(name="test", apply_patch=form)
    state = msgspec.structs.replace(session(WorkspaceWrite(), approval), profile=profile)
    assert BUILTINS[name].create(state)[0].spec.responses_json == BUILTINS[name].spec(state).responses_json


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (DangerFullAccess(), "without a sandbox"),
        (ReadOnly(), "nothing can be written, the network cannot be used"),
        (ReadOnly(network_access=True), "nothing can be written, the network can be used"),
        (WorkspaceWrite(), "only these directories can be written: /work/tree, /tmp; the network cannot be used"),
        (
            WorkspaceWrite(writable_roots=("/data", "/work/tree"), network_access=True, exclude_slash_tmp=True),
            "only these directories can be written: /work/tree, /data; the network can be used",
        ),
        (ExternalSandbox("enabled"), "outside of this program, the network can be used"),
    ],
)
def test_the_sandbox_is_described(policy: SandboxPolicy, says: str) -> None:
    assert says in sandbox_text(session(policy))


def test_the_users_own_temporary_directory_is_a_root() -> None:
    assert "/work/tree, /tmp, /var/mine;" in sandbox_text(session(WorkspaceWrite(), tmpdir="/var/mine"))
    excluded = sandbox_text(session(WorkspaceWrite(exclude_tmpdir_env_var=True), tmpdir="/var/mine"))
    assert "/var/mine" not in excluded


@pytest.mark.parametrize("tool", SHELLS)
def test_windows_speaks_powershell(tool: str) -> None:
    state = session(ReadOnly())
    data = BUILTINS[tool]
    windows, linux = (
        described(data.description, data.windows_description, state, platform) for platform in ("win32", "linux")
    )
    assert "PowerShell" in windows and "PowerShell" not in linux
    assert windows.endswith(sandbox_text(state)) and linux.endswith(sandbox_text(state))


def test_native_tools_are_types_of_their_own() -> None:
    state = session(ReadOnly())
    assert BUILTINS["native_shell"].spec(state).to_responses() == {"type": "shell", "environment": {"type": "local"}}
    assert BUILTINS["local_shell"].spec(state).to_responses() == {"type": "local_shell"}


def test_specs_need_no_pydantic() -> None:
    program = """
import sys
from ferrule import Toolset
from ferrule.builtin import BUILTINS
from ferrule.rendering.calls import CommandCall, call_line, read_call
from ferrule.protocol.items import FunctionCall
names = [tool.name for tool in BUILTINS.values() if not tool.hidden]
with Toolset.for_model("gpt-5.5", cwd="/tmp", sandbox="read-only", tools=names, on_question=print) as tools:
    assert len(tools.specs()) == len(names) - 1 and tools.specs("chat")  # one of the two screens
call = read_call(FunctionCall(call_id="1", name="exec_command", arguments='{"cmd": "ls"}'))
assert isinstance(call, CommandCall) and call_line(call)
late = {f"ferrule.execpolicy.{name}" for name in ("bash", "decision", "git_files", "safe", "wrapper_table")}
assert "pydantic" not in sys.modules and late.isdisjoint(sys.modules)
import ferrule.builtin.exec_command  # as a session does while the model thinks
assert "ferrule.execpolicy.decision" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])

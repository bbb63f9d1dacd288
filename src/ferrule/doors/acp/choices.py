"""What a client may choose for a session: its mode, its model, when it asks; and what it brings. Pure."""

import os
from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec
from acp.schema import (
    AcpMcpServer,
    HttpMcpServer,
    McpServerStdio,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    SseMcpServer,
)

from ferrule.protocol.errors import UsageError
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import AskForApproval, SandboxMode, as_approval_policy
from ferrule.protocol.settings import ReasoningEffort, Settings

McpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
Option = SessionConfigOptionSelect | SessionConfigOptionBoolean

MODES = {
    SandboxMode.READ_ONLY: ("Read only", "Commands and edits change nothing without being asked about"),
    SandboxMode.WORKSPACE_WRITE: ("Workspace", "Commands and edits change the project, and nothing else unasked"),
    SandboxMode.DANGER_FULL_ACCESS: ("Full access", "No sandbox: commands can do all that you can"),
}
"""The modes that every session has, and what they are for people."""

APPROVALS = {
    AskForApproval.UNTRUSTED: "Before everything that is not known to only read",
    AskForApproval.ON_FAILURE: "Before what failed in the sandbox runs without it",
    AskForApproval.ON_REQUEST: "Before what wants to leave the sandbox",
    AskForApproval.NEVER: "Never: what would need an answer is refused",
}

MODE, MODEL, APPROVAL, EFFORT = "mode", "model", "approval", "reasoning_effort"
"""The ids of the options."""
DEFAULT_EFFORT = "default"


def mode_of(settings: Settings) -> str:
    """Return the id of the mode that a session has."""
    return str(settings.sandbox_policy.__struct_config__.tag)


def modes_of(settings: Settings, began_in: str) -> SessionModeState:
    """Return the modes there are, and the one that a session has. One that it began in, and that can only be configured
    (a container), is among them."""
    modes = [SessionMode(id=str(mode), name=name, description=about) for mode, (name, about) in MODES.items()]
    if began_in not in MODES:
        modes.append(SessionMode(id=began_in, name=began_in.replace("-", " ").capitalize()))
    return SessionModeState(available_modes=modes, current_mode_id=mode_of(settings))


def options_of(settings: Settings, modes: SessionModeState, model: str, models: Iterable[str]) -> list[Option]:
    """Return what can be chosen, with what is chosen now."""
    names = list(dict.fromkeys((model, *models)))
    efforts = (DEFAULT_EFFORT, *get_args(ReasoningEffort))
    return [
        _select(MODE, "Mode", "mode", modes.current_mode_id, [
            (mode.id, mode.name, mode.description) for mode in modes.available_modes
        ]),
        _select(MODEL, "Model", "model", model, [(name, name, None) for name in names]),
        _select(EFFORT, "Reasoning", "thought_level", settings.model.reasoning_effort or DEFAULT_EFFORT, [
            (effort, effort.capitalize(), None) for effort in efforts
        ]),
        _select(APPROVAL, "Ask", None, str(settings.approval_policy), [
            (str(policy), str(policy), about) for policy, about in APPROVALS.items()
        ]),
    ]  # fmt: skip


def _select(
    name: str, title: str, category: str | None, value: str, options: Sequence[tuple[str, str, str | None]]
) -> SessionConfigOptionSelect:
    return SessionConfigOptionSelect.model_validate(
        {
            "type": "select",
            "id": name,
            "name": title,
            "category": category,
            "current_value": value,
            "options": [
                SessionConfigSelectOption(value=value, name=label, description=about) for value, label, about in options
            ],
        }
    )


def chosen(settings: Settings, option: str, value: str) -> Settings:
    """Return the settings with what was chosen, for all but the mode. Raises `UsageError`."""
    model = settings.model
    match option:
        case "model":
            if not value.strip():
                raise UsageError("a model has a name")
            return msgspec.structs.replace(settings, model=msgspec.structs.replace(model, model=value))
        case "reasoning_effort":
            if value not in (DEFAULT_EFFORT, *get_args(ReasoningEffort)):
                raise UsageError(f"there is no reasoning effort {value!r}")
            effort = None if value == DEFAULT_EFFORT else value
            return msgspec.structs.replace(settings, model=msgspec.structs.replace(model, reasoning_effort=effort))
        case "approval":
            return msgspec.structs.replace(settings, approval_policy=as_approval_policy(value))
    raise UsageError(f"there is no option {option!r}; there are {MODE}, {MODEL}, {EFFORT} and {APPROVAL}")


def with_servers(settings: Settings, brought: Iterable[McpServer]) -> Settings:
    """Return the settings with the MCP servers that a client brings; of two with one name, with the client's. Raises
    `UsageError`."""
    servers = {server.name: _server(server) for server in brought}
    return msgspec.structs.replace(settings, mcp_servers={**settings.mcp_servers, **servers})


def _server(server: McpServer) -> McpServerSettings:
    match server:
        case McpServerStdio():
            env = {variable.name: variable.value for variable in server.env}
            made = McpServerSettings(command=server.command, args=tuple(server.args), env=env)
        case HttpMcpServer():
            made = McpServerSettings(url=server.url, headers={one.name: one.value for one in server.headers})
        case _:
            kind = str(server.type)
            raise UsageError(f"the MCP server {server.name}: {kind} is not spoken here; stdio and http are")
    if made.problem is not None:
        raise UsageError(f"the MCP server {server.name}: {made.problem}")
    return made


def place_of(cwd: str) -> str:
    """Return the real path of a session's directory. Raises `UsageError`."""
    if not os.path.isabs(cwd) or "\0" in cwd:
        raise UsageError(f"cwd must be an absolute path, not {cwd!r}")
    if not os.path.isdir(cwd):
        raise UsageError(f"cwd: {cwd} is not a directory")
    return os.path.realpath(cwd)

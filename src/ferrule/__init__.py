"""A coding agent's tools as a Python library and command: specs, approvals, an OS sandbox, patches, PTY sessions, MCP.

Names are imported when they are first used, so that `import ferrule` costs next to nothing.
"""

from importlib import import_module

from ferrule._version import __version__

TYPE_CHECKING = False  # as type checkers know it; `typing` itself would cost most of the import
if TYPE_CHECKING:
    from typing import Any

    from ferrule.containers.container import Container
    from ferrule.containers.screen.computer import Computer
    from ferrule.model.stream import ModelError
    from ferrule.prompts import expand_prompt
    from ferrule.protocol.approvals import ExecApprovalRequest, ExecApprovalRequirement, ExecPolicyAmendment
    from ferrule.protocol.content import InputImage, InputText
    from ferrule.protocol.dynamic_tools import DynamicToolResponse, DynamicToolSpec
    from ferrule.protocol.errors import Fatal, FerruleError, FunctionCallError, RespondToModel, UsageError
    from ferrule.protocol.events import DynamicToolCallRequest
    from ferrule.protocol.json_schema import AdditionalProperties, JsonSchema
    from ferrule.protocol.payload import ShellToolCallParams, ToolKind, ToolOutput, ToolPayload
    from ferrule.protocol.permissions import (
        AskForApproval,
        InContainer,
        InContainerReadOnly,
        ReviewDecision,
        SandboxPermissions,
        SandboxPolicy,
    )
    from ferrule.protocol.specs import ConfiguredToolSpec, FreeformTool, FreeformToolFormat, ResponsesApiTool, ToolSpec
    from ferrule.session.agent import Agent
    from ferrule.session.budget import BudgetSpent
    from ferrule.session.result import ToolCall, TurnResult
    from ferrule.session.session import Session
    from ferrule.session.toolset import Toolset
    from ferrule.session.turn import TurnLimit
    from ferrule.sync import call_async_from_sync
    from ferrule.tools.action import Action, Observation
    from ferrule.tools.annotations import ToolAnnotations
    from ferrule.tools.catalogue import Tool, register_tool, resolve_tool
    from ferrule.tools.context import ToolContext, ToolInvocation
    from ferrule.tools.decorator import tool
    from ferrule.tools.definition import ToolBase, ToolDefinition
    from ferrule.tools.effects import CommandEffect, PatchEffect, ToolEffect
    from ferrule.tools.events import ActionEvent, AgentErrorEvent, ChildEvent, ObservationEvent
    from ferrule.tools.executor import ToolExecutor
    from ferrule.tools.handler import ToolHandler
    from ferrule.tools.questions import Decision
    from ferrule.tools.registry import ToolRegistry, ToolRegistryBuilder

_HOMES = {
    "Action": "tools.action",
    "ActionEvent": "tools.events",
    "AdditionalProperties": "protocol.json_schema",
    "Agent": "session.agent",
    "BudgetSpent": "session.budget",
    "AgentErrorEvent": "tools.events",
    "AskForApproval": "protocol.permissions",
    "ChildEvent": "tools.events",
    "CommandEffect": "tools.effects",
    "Computer": "containers.screen.computer",
    "ConfiguredToolSpec": "protocol.specs",
    "Container": "containers.container",
    "Decision": "tools.questions",
    "DynamicToolCallRequest": "protocol.events",
    "DynamicToolResponse": "protocol.dynamic_tools",
    "DynamicToolSpec": "protocol.dynamic_tools",
    "ExecApprovalRequest": "protocol.approvals",
    "ExecApprovalRequirement": "protocol.approvals",
    "ExecPolicyAmendment": "protocol.approvals",
    "Fatal": "protocol.errors",
    "FerruleError": "protocol.errors",
    "FreeformTool": "protocol.specs",
    "FreeformToolFormat": "protocol.specs",
    "FunctionCallError": "protocol.errors",
    "InContainer": "protocol.permissions",
    "InContainerReadOnly": "protocol.permissions",
    "InputImage": "protocol.content",
    "InputText": "protocol.content",
    "JsonSchema": "protocol.json_schema",
    "ModelError": "model.stream",
    "Observation": "tools.action",
    "ObservationEvent": "tools.events",
    "PatchEffect": "tools.effects",
    "RespondToModel": "protocol.errors",
    "ResponsesApiTool": "protocol.specs",
    "ReviewDecision": "protocol.permissions",
    "SandboxPermissions": "protocol.permissions",
    "SandboxPolicy": "protocol.permissions",
    "Session": "session.session",
    "ShellToolCallParams": "protocol.payload",
    "Tool": "tools.catalogue",
    "ToolAnnotations": "tools.annotations",
    "ToolBase": "tools.definition",
    "ToolCall": "session.result",
    "ToolContext": "tools.context",
    "ToolDefinition": "tools.definition",
    "ToolEffect": "tools.effects",
    "ToolExecutor": "tools.executor",
    "ToolHandler": "tools.handler",
    "ToolInvocation": "tools.context",
    "ToolKind": "protocol.payload",
    "ToolOutput": "protocol.payload",
    "ToolPayload": "protocol.payload",
    "ToolRegistry": "tools.registry",
    "ToolRegistryBuilder": "tools.registry",
    "ToolSpec": "protocol.specs",
    "Toolset": "session.toolset",
    "TurnLimit": "session.turn",
    "TurnResult": "session.result",
    "UsageError": "protocol.errors",
    "call_async_from_sync": "sync",
    "expand_prompt": "prompts",
    "register_tool": "tools.catalogue",
    "resolve_tool": "tools.catalogue",
    "tool": "tools.decorator",
}

__all__ = [
    "Action",
    "ActionEvent",
    "AdditionalProperties",
    "Agent",
    "AgentErrorEvent",
    "AskForApproval",
    "BudgetSpent",
    "ChildEvent",
    "CommandEffect",
    "Computer",
    "ConfiguredToolSpec",
    "Container",
    "Decision",
    "DynamicToolCallRequest",
    "DynamicToolResponse",
    "DynamicToolSpec",
    "ExecApprovalRequest",
    "ExecApprovalRequirement",
    "ExecPolicyAmendment",
    "Fatal",
    "FerruleError",
    "FreeformTool",
    "FreeformToolFormat",
    "FunctionCallError",
    "InContainer",
    "InContainerReadOnly",
    "InputImage",
    "InputText",
    "JsonSchema",
    "ModelError",
    "Observation",
    "ObservationEvent",
    "PatchEffect",
    "RespondToModel",
    "ResponsesApiTool",
    "ReviewDecision",
    "SandboxPermissions",
    "SandboxPolicy",
    "Session",
    "ShellToolCallParams",
    "Tool",
    "ToolAnnotations",
    "ToolBase",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolEffect",
    "ToolExecutor",
    "ToolHandler",
    "ToolInvocation",
    "ToolKind",
    "ToolOutput",
    "ToolPayload",
    "ToolRegistry",
    "ToolRegistryBuilder",
    "ToolSpec",
    "Toolset",
    "TurnLimit",
    "TurnResult",
    "UsageError",
    "__version__",
    "call_async_from_sync",
    "expand_prompt",
    "register_tool",
    "resolve_tool",
    "tool",
]


def __getattr__(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ferrule' has no attribute {name!r}")
    value = getattr(import_module(f"ferrule.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

"""The settings of a sub-agent: those of the session that starts it, narrowed or changed by its role. Pure."""

import msgspec

from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ExternalSandbox,
    InContainer,
    InContainerReadOnly,
    ReadOnly,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWrite,
)
from ferrule.protocol.settings import AgentRole, Settings
from ferrule.session.instructions import base_instructions
from ferrule.session.sources import AGENT_TOOLS
from ferrule.tools.children import ChildOrder

_WIDENING = (AskForApproval.UNTRUSTED, AskForApproval.ON_REQUEST, AskForApproval.ON_FAILURE, AskForApproval.NEVER)
"""From the policy that asks most to the one that asks least."""


def child_settings(parent: Settings, model: str, order: ChildOrder, role: AgentRole, *, may_spawn: bool) -> Settings:
    """Return a child's settings. `parent` has the rights of the parent's turn and `model` its model's name; `may_spawn`
    lets the child start others."""
    texts = [role.instructions, order.instructions]
    effort = order.reasoning_effort or parent.model.reasoning_effort
    base = parent.instructions or base_instructions(effort)
    tools = parent.tools if role.tools is None else role.tools
    return msgspec.structs.replace(
        parent,
        model=msgspec.structs.replace(
            parent.model,
            model=order.model or role.model or model,
            reasoning_effort=effort,
        ),
        instructions="\n\n".join([base, *filter(None, texts)]) if any(texts) else parent.instructions,
        tools=tools if tools is None or may_spawn else tuple(tool for tool in tools if tool not in AGENT_TOOLS),
        sandbox_policy=narrower_sandbox(parent.sandbox_policy, role.sandbox_mode),
        approval_policy=narrower_approval(parent.approval_policy, role.approval_policy),
        features=msgspec.structs.replace(parent.features, multi_agent=parent.features.multi_agent and may_spawn),
        mcp_servers={},
        output_schema=None,
    )


def narrower_sandbox(parent: SandboxPolicy, wanted: SandboxMode | None) -> SandboxPolicy:
    """Return the policy of a mode, or the parent's where that is narrower."""
    if wanted is None or isinstance(parent, ReadOnly):
        return parent
    if wanted is SandboxMode.READ_ONLY and isinstance(parent, InContainer):
        return InContainerReadOnly(
            image=parent.image,
            folders=parent.writable_roots,
            network_access=parent.network_access,
            hosts=parent.hosts,
            ca_file=parent.ca_file,
        )
    if wanted is SandboxMode.CONTAINER and not isinstance(parent, InContainer):
        if not isinstance(parent, WorkspaceWrite):
            return InContainer()
        return InContainer(
            writable_roots=parent.writable_roots,
            network_access=parent.network_access is not True and parent.network_access,
            hosts=parent.hosts,
            ca_file=parent.ca_file,
        )
    if wanted is SandboxMode.READ_ONLY:
        if not isinstance(parent, WorkspaceWrite):
            return ReadOnly()
        return ReadOnly(network_access=parent.network_access, hosts=parent.hosts, ca_file=parent.ca_file)
    if wanted is SandboxMode.WORKSPACE_WRITE and isinstance(parent, DangerFullAccess | ExternalSandbox):
        return WorkspaceWrite()
    return parent


def narrower_approval(parent: AskForApproval, wanted: AskForApproval | None) -> AskForApproval:
    """Return the policy, or the parent's where that asks more."""
    return parent if wanted is None else min(parent, wanted, key=_WIDENING.index)

"""Describe the sandbox to the model, with the three arguments that ask to run a command outside it."""

import sys
from collections.abc import Mapping

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    InContainer,
    InContainerReadOnly,
    NetworkAccess,
    ReadOnly,
    WorkspaceWrite,
)
from ferrule.tools.context import Permissions
from ferrule.tools.conversation import ConversationState

ESCALATION_FIELDS = ("sandbox_permissions", "justification", "prefix_rule")


def may_ask(permissions: Permissions) -> bool:
    """Tell whether somebody may be asked to let a command run outside the sandbox."""
    answered = permissions.answers_approvals or permissions.answers_first
    return answered and permissions.approval_policy is not AskForApproval.NEVER


def without_escalation(parameters: JsonSchema) -> JsonSchema:
    """Return the schema without the arguments that ask for more rights."""
    kept = {name: node for name, node in parameters.mapping["properties"].items() if name not in ESCALATION_FIELDS}
    return JsonSchema({**parameters.mapping, "properties": kept})


def fitting(parameters: JsonSchema, permissions: Permissions) -> JsonSchema:
    """Return the schema that this session's model sees."""
    return parameters if may_ask(permissions) else without_escalation(parameters)


def described(template: str, windows: str | None, state: ConversationState, platform: str = sys.platform) -> str:
    """Fill in a tool's description for this session; `windows` replaces `template` where commands are PowerShell's."""
    text = windows if windows is not None and platform == "win32" else template
    return text.replace("{sandbox}", sandbox_text(state)).replace("{roles}", roles_text(state.roles))


def roles_text(roles: Mapping[str, str]) -> str:
    """Return the kinds of sub-agents, one a line; nothing where there is only the plain one."""
    lines = [f"- {name}: {description}" if description else f"- {name}" for name, description in roles.items()]
    return "\n".join(["\nRoles (agent_type):", *lines]) if lines else ""


def sandbox_text(state: ConversationState) -> str:
    """Describe in a short paragraph what confines this session's commands, and whether they may ask for more."""
    policy = state.permissions.sandbox_policy
    if isinstance(policy, InContainer | InContainerReadOnly):
        return _container_text(policy, state)
    if isinstance(policy, DangerFullAccess):
        return "Commands run without a sandbox, with all rights of the user."
    if isinstance(policy, ReadOnly):
        rules = f"nothing can be written, {_network(policy.network_access)}"
    elif isinstance(policy, WorkspaceWrite):
        roots = ", ".join(_writable_roots(policy, state))
        rules = f"only these directories can be written: {roots}; {_network(policy.network_access)}"
    else:
        rules = f"it is set up outside of this program, {_network(policy.network_access == 'enabled')}"
    return f"Commands run in a sandbox: {rules}. {_escalation(state.permissions)}"


def _container_text(policy: InContainer | InContainerReadOnly, state: ConversationState) -> str:
    """Describe a container: what of the machine is there, and what else."""
    roots = policy.writable_roots if isinstance(policy, InContainer) else policy.folders
    folders = ", ".join(dict.fromkeys((state.cwd, *roots)))
    rights = "cannot be written" if isinstance(policy, InContainerReadOnly) else "can be written, except .git"
    runs_on = f"on the image {policy.image}" if policy.image else "with the machine's programs"
    text = (
        f"Commands run in a container, {runs_on}: of the user's files only these directories are there, and they "
        f"{rights}: {folders}; {_network(policy.network_access)}. Everything else, like /tmp and the home directory, "
        "is the container's own: commands see it, tools that read or edit files do not."
    )
    if not may_ask(state.permissions):
        return f"{text} Nobody can be asked for more: find a way that the container allows."
    return (
        f"{text} If an important command must write what is protected in these directories, call it with "
        '`sandbox_permissions` set to "require_escalated" and a one-sentence `justification`: the user is asked then. '
        "Nothing gets a command out of the container."
    )


def _network(access: NetworkAccess) -> str:
    if isinstance(access, bool):
        return "the network can be used" if access else "the network cannot be used"
    return f"of the network only ports 80 and 443 of {', '.join(access)} can be reached"


def _writable_roots(policy: WorkspaceWrite, state: ConversationState) -> list[str]:
    temporary = None if policy.exclude_tmpdir_env_var else state.commands.base.get("TMPDIR")
    roots = (state.cwd, *policy.writable_roots, None if policy.exclude_slash_tmp else "/tmp", temporary)
    return list(dict.fromkeys(root for root in roots if root))


def _escalation(permissions: Permissions) -> str:
    if not may_ask(permissions):
        return "Nobody can be asked for more: find a way that the sandbox allows."
    return (
        "If an important command fails because of that, or certainly would, call it with `sandbox_permissions` set to "
        '"require_escalated" and a one-sentence `justification`: the user is asked then.'
    )

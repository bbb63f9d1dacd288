"""Limits on a trusted project's settings: for each configuration key, in which direction it may be set.

A project may restrict what is allowed, and choose what grants no rights. Only the user widens. `MAY_SET` has the rule
of every such key; any other is the user's alone. All pure.
"""

from collections.abc import Callable, Mapping

from ferrule.config.layers import Layer, Values
from ferrule.egress.names import DomainNames
from ferrule.protocol.permissions import AskForApproval, SandboxMode

Rule = Callable[[object, object], str | None]
"""Maps the project's value and the user's value (None: not set) to why the former is left out, or None."""
Rows = Mapping[str, "Rule | Rows"]


def free(wanted: object, yours: object) -> None:
    """Allow any value: the choice grants no rights."""


def yours_only(wanted: object, yours: object) -> str:
    """Allow no value: the key decides where requests and keys go, what commands see, or where they write."""
    return "only your own configuration may set it"


def unless_yours(wanted: object, yours: object) -> str | None:
    """Allow a value only where the user has none: the user may have set it for safety."""
    return None if yours is None or wanted == yours else "you have set it yourself"


def at_most(wanted: object, yours: object) -> str | None:
    """Allow a limit up to the user's."""
    assert isinstance(wanted, int | float) and isinstance(yours, int | float | None)
    return None if yours is None or wanted <= yours else f"{wanted:g} is more than your {yours:g}"


def new_name(wanted: object, yours: object) -> str | None:
    """Allow a table only under a name that the user has not used."""
    return None if yours is None else "you have one of that name"


def narrower_mode(wanted: object, yours: object) -> str | None:
    """Rank sandbox modes. A container is narrower than what is wide in writing, but `read-only` lets the whole disk be
    read: neither of the two replaces the other."""
    user = SandboxMode.WORKSPACE_WRITE if yours is None else yours
    if user == SandboxMode.CONTAINER or (wanted == SandboxMode.CONTAINER and user == SandboxMode.READ_ONLY):
        return None if wanted == user else f"{_shown(wanted)} is wider than your {_shown(user)}"
    if wanted == SandboxMode.CONTAINER:
        return None
    return _MODES(wanted, user)


def up_to(*order: object, default: object) -> Rule:
    """Rank values from the narrowest to the widest; allow up to the user's, or up to the default where it is not
    set."""

    def rule(wanted: object, yours: object) -> str | None:
        limit = default if yours is None else yours
        if order.index(wanted) <= order.index(limit):
            return None
        return f"{_shown(wanted)} is wider than your {_shown(limit)}"

    return rule


_MODES = up_to(
    SandboxMode.READ_ONLY,
    SandboxMode.WORKSPACE_WRITE,
    SandboxMode.DANGER_FULL_ACCESS,
    default=SandboxMode.WORKSPACE_WRITE,
)


def search(wanted: object, yours: object) -> str | None:
    """Allow a narrower search of the provider's, and none: a backend decides where queries and keys go."""
    if isinstance(wanted, Mapping):
        return yours_only(wanted, yours)
    if isinstance(yours, Mapping):
        return None if wanted == "disabled" else "yours is a table"
    return up_to("disabled", "cached", "live", default="disabled")(wanted, yours)


def within_yours(wanted: object, yours: object) -> str | None:
    """Allow no more of the network than the user: nothing, or domains that the user's list allows."""
    if wanted is False or yours is True:
        return None
    beyond: object = wanted
    if isinstance(wanted, list | tuple) and isinstance(yours, list | tuple):
        beyond = DomainNames.read(wanted).outside(DomainNames.read(yours))
    return None if beyond is None else f"{_shown(beyond)} is wider than your {_shown(yours or False)}"


MAY_SET: Rows = {
    "model": free,
    "model_provider": yours_only,
    "model_reasoning_effort": free,
    "model_reasoning_summary": free,
    "model_verbosity": free,
    "model_context_window": free,
    "model_auto_compact_token_limit": free,
    "model_max_output_tokens": at_most,
    "model_temperature": free,
    "parallel_tool_calls": free,
    "instructions": unless_yours,
    "project_doc_fallback_filenames": unless_yours,
    "project_doc_max_bytes": at_most,
    "approval_policy": up_to(
        AskForApproval.UNTRUSTED,
        AskForApproval.ON_REQUEST,
        AskForApproval.ON_FAILURE,
        AskForApproval.NEVER,
        default=AskForApproval.ON_REQUEST,
    ),
    "sandbox_mode": narrower_mode,
    "container": {"image": yours_only, "read_only": up_to(True, False, default=False)},
    "accept_no_sandbox": up_to(False, True, default=False),
    "profile": unless_yours,
    "tools": unless_yours,
    "python": yours_only,
    "hosted_tools": yours_only,
    "web_search": search,
    "tool_output_token_limit": at_most,
    "max_turns": at_most,
    "max_tool_calls": at_most,
    "run_max_tool_calls": at_most,
    "turn_token_budget": at_most,
    "run_token_budget": at_most,
    "turn_cost_budget": at_most,
    "run_cost_budget": at_most,
    "prices": yours_only,
    "turn_timeout": at_most,
    "run_timeout": at_most,
    "unusable_answer_retries": at_most,
    "same_failure_hint": at_most,
    "same_failure_limit": at_most,
    "model_providers": yours_only,
    "sandbox_workspace_write": {
        "writable_roots": yours_only,
        "network_access": within_yours,
        "ca_file": yours_only,
        "hosts": yours_only,
        "exclude_tmpdir_env_var": up_to(True, False, default=False),
        "exclude_slash_tmp": up_to(True, False, default=False),
        "caches": up_to(False, True, default=False),
    },
    "shell_environment_policy": yours_only,
    "projects": yours_only,
    "mcp_servers": {
        "*": {
            "command": free,
            "args": free,
            "env": free,
            "env_vars": free,
            "cwd": free,
            "url": free,
            "headers": free,
            "http_headers": free,
            "env_http_headers": free,
            "bearer_token_env_var": free,
            "oauth": {
                "client_id": free,
                "client_secret": free,
                "client_secret_env_var": free,
                "token_endpoint_auth_method": free,
                "client_metadata_url": free,
                "callback_port": free,
                "scopes": free,
            },
            "startup_timeout": free,
            "tool_timeout": free,
            "enabled": free,
            "enabled_tools": free,
            "disabled_tools": free,
            "required": free,
            "supports_parallel_tool_calls": free,
            "approval": up_to("prompt", "auto", "allow", default="auto"),
            "roots": free,
        }
    },
    "hooks": {"*": {"command": free, "matcher": free, "timeout": free}},
    "agents": {
        "*": {
            "description": free,
            "model": free,
            "tools": free,
            "instructions": free,
            "sandbox_mode": free,
            "approval_policy": free,
        }
    },
    "agent_max_depth": yours_only,
    "agent_max_threads": yours_only,
    "embeddings": yours_only,
    "file_search": yours_only,
    "computer": yours_only,
    "image_generation": yours_only,
    "otel": yours_only,
    "tui": yours_only,
    "gateway": yours_only,
    "snapshots": unless_yours,
    "snapshot_max_bytes": at_most,
    "snapshot_max_files": at_most,
    "snapshot_timeout": at_most,
    "features": {
        "shell_tool": up_to(False, True, default=True),
        "shell_zsh_fork": unless_yours,
        "unified_exec": unless_yours,
        "multi_agent": unless_yours,
    },
    "skills": {"enabled": up_to(False, True, default=True), "config": yours_only},
    "confirmation_policy": up_to("always", "risky", "never", default="never"),
}
"""A sub-agent never has more rights than the session that starts it. Hooks come after the user's, and cannot approve
what the user must be asked about. A server starts a program unconfined: the user has confirmed it, with the file that
declares it."""

EXCLUSIVE = frozenset({"mcp_servers.", "agents."})
"""Tables whose entries belong wholly to the project or to the user: a project adds names, and changes none."""
TOOL_KEYS = ("tools", "profile")
"""Two ways to choose tools: with either, the user has chosen."""


def narrowed(project: Layer, below: Values) -> tuple[Layer, list[str]]:
    """Return the part of a project's layer that grants no more rights than `below`, and a sentence for each omitted
    key. Both are already checked."""
    warnings: list[str] = []

    def leave_out(key: str, why: str) -> None:
        warnings.append(f"{project.source}: {key} is ignored, because {why}")

    return Layer(project.source, _kept(project.values, below, MAY_SET, "", leave_out)), warnings


def _kept(
    values: Values, below: Values, rows: Rows, prefix: str, leave_out: Callable[[str, str], None]
) -> dict[str, object]:
    kept: dict[str, object] = {}
    for key, value in values.items():
        row = rows.get(key, rows.get("*", yours_only))
        yours = below.get(key)
        if not prefix and key in TOOL_KEYS:
            yours = next((below[each] for each in (key, *TOOL_KEYS) if below.get(each) is not None), None)
        rule = row if callable(row) else (new_name if prefix in EXCLUSIVE else free)
        why = rule(value, yours)
        if why is not None:
            leave_out(prefix + key, why)
        elif callable(row):
            kept[key] = value
        else:
            kept[key] = _below(value, yours, row, f"{prefix}{key}.", leave_out)
    return kept


def _below(value: object, yours: object, rows: Rows, prefix: str, leave_out: Callable[[str, str], None]) -> object:
    if isinstance(value, Mapping):
        return _kept(value, yours if isinstance(yours, Mapping) else {}, rows, prefix, leave_out)
    assert isinstance(value, list | tuple)
    return [_kept(entry, {}, rows, prefix, leave_out) for entry in value]


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

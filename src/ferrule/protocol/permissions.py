"""Permissions: the vocabulary of approvals and of the sandbox. Values keep Codex's wire spelling."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from ferrule.protocol.errors import UsageError


class AskForApproval(StrEnum):
    """When the user is asked before a tool acts."""

    UNTRUSTED = "untrusted"
    ON_FAILURE = "on-failure"
    ON_REQUEST = "on-request"
    NEVER = "never"


class SandboxMode(StrEnum):
    """The `-s` flag; `SandboxPolicy` says the same with its details."""

    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    CONTAINER = "container"
    DANGER_FULL_ACCESS = "danger-full-access"


NetworkAccess = bool | tuple[str, ...]
"""Whether commands reach the network: all of it, nothing, or these domains, such as `example.com` or `*.example.com`
(every name below it). Of a domain they reach ports 80 and 443."""


class _Confined(msgspec.Struct, frozen=True, kw_only=True):
    """What commands reach where `network_access` is a list. `hosts` sends `"name:port"` to exactly one
    `"address:port"`, which may be private; it permits nothing. The roots in `ca_file` (absolute) are trusted beside the
    system's."""

    hosts: Mapping[str, str] = msgspec.field(default_factory=dict)
    ca_file: str | None = None


class ReadOnly(_Confined, frozen=True, tag="read-only"):
    """The whole disk can be read, nothing can be written."""

    network_access: NetworkAccess = False


class WorkspaceWrite(_Confined, frozen=True, tag="workspace-write"):
    """The working directory, `/tmp`, `$TMPDIR` and `writable_roots` (absolute paths) can be written."""

    writable_roots: tuple[str, ...] = ()
    network_access: NetworkAccess = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


class DangerFullAccess(msgspec.Struct, frozen=True, tag="danger-full-access"):
    """No sandbox."""


class ExternalSandbox(msgspec.Struct, frozen=True, tag="external-sandbox"):
    """The process is already confined from outside; Ferrule adds nothing."""

    network_access: Literal["restricted", "enabled"] = "restricted"


class InContainer(WorkspaceWrite, frozen=True, tag="container"):
    """As `WorkspaceWrite`, in a container: of the machine's files only the working directory and `writable_roots` are
    there. `image` is one that was imported; None: the machine's own programs."""

    image: str | None = None


class InContainerReadOnly(ReadOnly, frozen=True, tag="container-read-only"):
    """As `InContainer`, but the working directory cannot be written, nor can the other `folders` (absolute paths)."""

    folders: tuple[str, ...] = ()
    image: str | None = None


SandboxPolicy = ReadOnly | WorkspaceWrite | InContainer | InContainerReadOnly | DangerFullAccess | ExternalSandbox


class SandboxPermissions(StrEnum):
    """A call's request beyond the session's sandbox."""

    USE_DEFAULT = "use_default"
    REQUIRE_ESCALATED = "require_escalated"


class ReviewDecision(StrEnum):
    """The user's answer to an approval request. `APPROVED_EXECPOLICY_AMENDMENT` comes with an amendment."""

    APPROVED = "approved"
    APPROVED_FOR_SESSION = "approved_for_session"
    APPROVED_EXECPOLICY_AMENDMENT = "approved_execpolicy_amendment"
    DENIED = "denied"
    TIMED_OUT = "timed_out"
    ABORT = "abort"


_POLICIES: dict[SandboxMode, SandboxPolicy] = {
    SandboxMode.READ_ONLY: ReadOnly(),
    SandboxMode.WORKSPACE_WRITE: WorkspaceWrite(),
    SandboxMode.CONTAINER: InContainer(),
    SandboxMode.DANGER_FULL_ACCESS: DangerFullAccess(),
}


def as_policy(sandbox: str | SandboxPolicy) -> SandboxPolicy:
    """Return the policy that a mode's name means. Raises `UsageError` for another word."""
    if not isinstance(sandbox, str):
        return sandbox
    try:
        return _POLICIES[SandboxMode(sandbox)]
    except ValueError as error:
        raise UsageError(f"unknown sandbox mode {sandbox!r}; it is one of {', '.join(SandboxMode)}") from error


def as_approval_policy(policy: str) -> AskForApproval:
    """Return the approval policy of this name. Raises `UsageError` for another word."""
    try:
        return AskForApproval(policy)
    except ValueError as error:
        raise UsageError(f"unknown approval policy {policy!r}; it is one of {', '.join(AskForApproval)}") from error

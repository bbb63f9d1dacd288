"""What the shapes of several messages have in common."""

from typing import Literal

import msgspec

from ferrule.protocol.json_text import JsonValue

RequestId = str | int


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object on the wire. Unknown keys of a client are ignored, as clients ignore ours."""


class Empty(Shape, frozen=True, kw_only=True):
    """An object without keys."""


class Granular(msgspec.Struct, frozen=True, kw_only=True):
    """Which kinds of approval are asked for. Read, and refused: here one policy holds for all kinds."""

    mcp_elicitations: bool
    rules: bool
    sandbox_approval: bool
    request_permissions: bool = False
    skill_approval: bool = False


class GranularPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """An approval policy in parts."""

    granular: Granular


ApprovalPolicy = Literal["untrusted", "on-failure", "on-request", "never"]
AskForApproval = ApprovalPolicy | GranularPolicy
SandboxMode = Literal["read-only", "workspace-write", "container", "danger-full-access"]
"""`container` is Ferrule's own."""
Reviewer = Literal["user", "auto_review", "guardian_subagent"]
SortDirection = Literal["asc", "desc"]


class _Policy(Shape, frozen=True, kw_only=True, tag_field="type"):
    pass


class DangerFullAccess(_Policy, frozen=True, kw_only=True, tag="dangerFullAccess"):
    """No sandbox."""


class ReadOnly(_Policy, frozen=True, kw_only=True, tag="readOnly"):
    """Nothing can be written."""

    network_access: bool = False


class ExternalSandbox(_Policy, frozen=True, kw_only=True, tag="externalSandbox"):
    """Somebody else confines the server."""

    network_access: Literal["restricted", "enabled"] = "restricted"


class WorkspaceWrite(_Policy, frozen=True, kw_only=True, tag="workspaceWrite"):
    """The working directory, temporary folders and these roots can be written."""

    writable_roots: tuple[str, ...] = ()
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


SandboxPolicy = DangerFullAccess | ReadOnly | ExternalSandbox | WorkspaceWrite


class _Input(Shape, frozen=True, kw_only=True, tag_field="type"):
    pass


class TextInput(_Input, frozen=True, kw_only=True, tag="text"):
    """What the user says. `text_elements` are marks for the client's own display."""

    text: str
    text_elements: tuple[JsonValue, ...] = msgspec.field(default=(), name="text_elements")


class ImageInput(_Input, frozen=True, kw_only=True, tag="image"):
    """An image by its URL, which may be a `data:` URL."""

    url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class LocalImageInput(_Input, frozen=True, kw_only=True, tag="localImage"):
    """An image in a file of this machine."""

    path: str
    detail: str | None = None


class SkillInput(_Input, frozen=True, kw_only=True, tag="skill"):
    """A skill that the user names."""

    name: str
    path: str


class MentionInput(_Input, frozen=True, kw_only=True, tag="mention"):
    """A file that the user names."""

    name: str
    path: str


UserInput = TextInput | ImageInput | LocalImageInput | SkillInput | MentionInput


class TurnError(Shape, frozen=True, kw_only=True):
    """Why a turn failed."""

    message: str
    codex_error_info: JsonValue = None
    additional_details: str | None = None


class TokenUsageBreakdown(Shape, frozen=True, kw_only=True):
    """Tokens as the model's server counted them."""

    total_tokens: int
    input_tokens: int
    cached_input_tokens: int
    cache_write_input_tokens: int
    output_tokens: int
    reasoning_output_tokens: int


class ThreadTokenUsage(Shape, frozen=True, kw_only=True):
    """Tokens of a thread: in all, and of the last response."""

    total: TokenUsageBreakdown
    last: TokenUsageBreakdown
    model_context_window: int | None = None

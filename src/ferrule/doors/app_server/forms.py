"""From our own objects to the shapes of the wire, and back. Pure."""

import os
from collections.abc import Iterable

from ferrule.doors.app_server.shapes import common as wire
from ferrule.doors.app_server.shapes.items import (
    AddKind,
    ContentImage,
    ContentItem,
    ContentText,
    DeleteKind,
    FileUpdateChange,
    UpdateKind,
)
from ferrule.protocol.content import ContentPart, InputImage, InputText, text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import FileChange, TokenUsage
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ExternalSandbox,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)
from ferrule.reading import Unreadable, read_file
from ferrule.rpc import RpcError
from ferrule.session.images import MAX_IMAGE_BYTES, image_of

GRANULAR = "a granular approval policy is not served: choose untrusted, on-failure, on-request or never"


def policy_of(given: wire.SandboxPolicy) -> SandboxPolicy:
    """Return our sandbox policy. Raises `RpcError` for a root that is no absolute path."""
    match given:
        case wire.ReadOnly():
            return ReadOnly(network_access=given.network_access)
        case wire.WorkspaceWrite(writable_roots=roots):
            for root in roots:
                if not os.path.isabs(root) or "\0" in root:
                    raise RpcError(f"writableRoots: {root!r} is no absolute path")
            return WorkspaceWrite(
                writable_roots=roots,
                network_access=given.network_access,
                exclude_tmpdir_env_var=given.exclude_tmpdir_env_var,
                exclude_slash_tmp=given.exclude_slash_tmp,
            )
        case wire.ExternalSandbox():
            return ExternalSandbox(network_access=given.network_access)
        case wire.DangerFullAccess():
            return DangerFullAccess()


def policy_shape(policy: SandboxPolicy) -> wire.SandboxPolicy:
    """Return the shape of a sandbox policy. A list of domains is told as no network: that is what commands have beside
    it."""
    match policy:
        case WorkspaceWrite():
            return wire.WorkspaceWrite(
                writable_roots=policy.writable_roots,
                network_access=policy.network_access is True,
                exclude_tmpdir_env_var=policy.exclude_tmpdir_env_var,
                exclude_slash_tmp=policy.exclude_slash_tmp,
            )
        case ReadOnly():
            return wire.ReadOnly(network_access=policy.network_access is True)
        case ExternalSandbox():
            return wire.ExternalSandbox(network_access=policy.network_access)
        case DangerFullAccess():
            return wire.DangerFullAccess()


def approval_of(given: wire.AskForApproval) -> AskForApproval:
    """Return our approval policy. Raises `RpcError` for one in parts."""
    if isinstance(given, wire.GranularPolicy):
        raise RpcError(GRANULAR)
    return AskForApproval(given)


def words_of(given: Iterable[wire.UserInput]) -> tuple[ContentPart, ...]:
    """Return what the user says. Raises `RpcError` for an image that cannot be read, and where nothing is said."""
    words = tuple(map(_part, given))
    if not any(not isinstance(part, InputText) or part.text.strip() for part in words):
        raise RpcError('the input is empty: say something, as in [{"type": "text", "text": "..."}]')
    return words


def _part(given: wire.UserInput) -> ContentPart:
    match given:
        case wire.TextInput(text=text):
            return InputText(text)
        case wire.ImageInput(url=str(url)):
            return InputImage(image_url=url, detail=given.detail)
        case wire.ImageInput():
            raise RpcError("an image needs its `url`: files of a provider are not served")
        case wire.LocalImageInput(path=path):
            try:
                return image_of(read_file(path, MAX_IMAGE_BYTES), path)
            except (UsageError, Unreadable, OSError, ValueError) as error:
                raise RpcError(f"the image {path!r} cannot be sent: {error}") from error
        case wire.SkillInput(name=name, path=path):
            return InputText(f"${name} ({path})")
        case wire.MentionInput(name=name, path=path):
            return InputText(f"@{name} ({path})")


def said_shape(content: str | tuple[ContentPart, ...]) -> tuple[wire.UserInput, ...]:
    """Return what the user said, as it is told."""
    if isinstance(content, str):
        return (wire.TextInput(text=content),)
    return tuple(
        wire.ImageInput(url=part.image_url) if isinstance(part, InputImage) else wire.TextInput(text=text_of((part,)))
        for part in content
        if isinstance(part, InputText | InputImage)
    )


def tokens(usage: TokenUsage) -> wire.TokenUsageBreakdown:
    """Return tokens as they are told."""
    return wire.TokenUsageBreakdown(
        total_tokens=usage.total_tokens,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_input_tokens=usage.cache_write_input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_output_tokens=usage.reasoning_output_tokens,
    )


def change_shape(change: FileChange, cwd: str) -> FileUpdateChange:
    """Return a patch's change to one file, with absolute paths."""
    place = os.path.normpath(os.path.join(cwd, change.path))
    moved = None if change.move_path is None else os.path.normpath(os.path.join(cwd, change.move_path))
    kinds: dict[str, AddKind | DeleteKind] = {"add": AddKind(), "delete": DeleteKind()}
    return FileUpdateChange(path=place, kind=kinds.get(change.kind) or UpdateKind(move_path=moved), diff=_diff(change))


def _diff(change: FileChange) -> str:
    """Return the hunks of an update; of a file that comes or goes its text."""
    lines = change.unified_diff.splitlines(keepends=True)
    hunks = lines[next((at for at, line in enumerate(lines) if line.startswith("@@")), len(lines)) :]
    if change.kind == "update":
        return "".join(hunks)
    return "".join(line[1:] for line in hunks if line[:1] in "+-")


def content_items(output: ToolOutput) -> tuple[ContentItem, ...]:
    """Return a tool's output, as a client's tool would have given it."""
    body = output.shown
    return tuple(map(_content_item, body)) if isinstance(body, tuple) else (ContentText(text=output.text),)


def _content_item(part: ContentPart) -> ContentItem:
    if isinstance(part, InputImage):
        return ContentImage(image_url=part.image_url or "")
    return ContentText(text=text_of((part,)))

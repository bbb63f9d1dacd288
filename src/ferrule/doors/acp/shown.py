"""Calls, patches and outputs in the shapes of the protocol. Pure."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    ImageContentBlock,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolKind,
)

from ferrule.protocol.content import ContentPart, InputImage, text_of
from ferrule.protocol.events import FileChange
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.rendering.calls import (
    Call,
    CommandCall,
    InputCall,
    InvalidCall,
    PatchCall,
    PlanCall,
    ToolCall,
    call_line,
)
from ferrule.rendering.safe import safe

Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

LONGEST_TITLE = 300
"""Characters of a call's title: the whole is in its input."""
LONGEST_OUTPUT = 60_000
"""Characters shown of an output, its beginning and its end: each update repeats it."""

_KINDS: dict[str, ToolKind] = {
    "read_file": "read", "view_image": "read", "list_dir": "read", "get_memory": "read", "list_agents": "read",
    "grep": "search", "grep_files": "search", "glob": "search", "file_search": "search", "tool_search": "search",
    "search_tool_bm25": "search", "web_search": "fetch", "open_page": "fetch", "find_in_page": "fetch",
    "think": "think", "task_tracker": "think", "python": "execute", "js_repl": "execute", "bash": "execute",
    "execute_bash": "execute", "write_stdin": "execute",
}  # fmt: skip
_EDITORS = frozenset({"file_editor", "str_replace_based_edit_tool"})
_ASKED: dict[str, ToolKind] = {"command": "execute", "patch": "edit", "network": "fetch"}
_PATHS = ("path", "file_path", "dir_path")


def kind_of(call: Call) -> ToolKind:
    """Return what kind of thing a call does."""
    match call:
        case CommandCall() | InputCall():
            return "execute"
        case PatchCall(files=files):
            kinds = {file.kind for file in files}
            return "delete" if kinds == {"delete"} else "edit"
        case PlanCall():
            return "think"
        case ToolCall(name=name, arguments=arguments) if name in _EDITORS:
            return "read" if isinstance(arguments, Mapping) and arguments.get("command") == "view" else "edit"
        case ToolCall(name=name):
            return _KINDS.get(name, "other")
        case _:
            return "other"


def kind_of_question(kind: str) -> ToolKind:
    """Return what kind of thing is asked about."""
    return _ASKED.get(kind, "other")


def title_of(call: Call) -> str:
    """Return a call in a line."""
    line = call.text if isinstance(call, CommandCall) else call_line(call)
    first, *more = line.strip().split("\n")
    cut = first if len(first) <= LONGEST_TITLE else f"{first[:LONGEST_TITLE]}…"
    return safe(f"{cut} …" if more else cut) or "…"


def input_of(call: Call) -> JsonValue:
    """Return what the model wrote, as data."""
    match call:
        case CommandCall(text=text):
            return {"command": text}
        case PatchCall(files=files):
            return {"files": [{"kind": file.kind, "path": file.path} for file in files]}
        case InvalidCall(text=text):
            return text
        case _:
            return call.arguments


def places_of(call: Call, cwd: str) -> list[ToolCallLocation]:
    """Return the files that a call is about, by their absolute paths."""
    match call:
        case PatchCall(files=files):
            return [_location(cwd, file.path) for file in files]
        case ToolCall(arguments=arguments) if isinstance(arguments, Mapping):
            named = [arguments[key] for key in _PATHS if isinstance(arguments.get(key), str)]
            return [_location(cwd, path, _line(arguments)) for path in named if path]
    return []


def _line(arguments: Mapping[str, JsonValue]) -> int | None:
    for value in (arguments.get("offset"), arguments.get("insert_line"), arguments.get("view_range")):
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, int) and not isinstance(first, bool) and first > 0:
            return first
    return None


def _location(cwd: str, path: str, line: int | None = None) -> ToolCallLocation:
    return ToolCallLocation(path=absolute(cwd, path), line=line)


def absolute(cwd: str, path: str) -> str:
    """Return the absolute form of a path."""
    return encodable(os.path.normpath(os.path.join(cwd, path)))


def locations_of(changes: Iterable[FileChange], cwd: str) -> list[ToolCallLocation]:
    """Return the files of a patch."""
    return [_location(cwd, change.move_path or change.path) for change in changes]


def diffs(changes: Iterable[FileChange], cwd: str) -> list[FileEditToolCallContent]:
    """Return a patch's changes with the whole texts: a new file has no old one, a deleted file an empty new one."""
    return [
        FileEditToolCallContent(
            type="diff",
            path=absolute(cwd, change.move_path or change.path),
            old_text=change.old_text,
            new_text=change.new_text or "",
        )
        for change in changes
        if change.old_text is not None or change.new_text is not None
    ]


def text_content(text: str) -> ContentToolCallContent:
    """Return a text as a part of a call."""
    return ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=text))


def fenced(text: str) -> str:
    """Return a text as a block of code that it cannot leave."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.removesuffix(chr(10))}\n{fence}"


def output_content(body: str | Sequence[ContentPart]) -> list[Content]:
    """Return a call's output: its text and its images."""
    text = body if isinstance(body, str) else text_of(tuple(body))
    shown: list[Content] = [text_content(fenced(bounded(text)))] if text.strip() else []
    images = () if isinstance(body, str) else (part for part in body if isinstance(part, InputImage))
    pictures = [picture for image in images if (picture := picture_of(image)) is not None]
    return [*shown, *(ContentToolCallContent(type="content", content=picture) for picture in pictures)]


def bounded(text: str) -> str:
    """Return a text that is not too long to be sent again and again, control characters as escapes."""
    if len(text) > LONGEST_OUTPUT:
        half = LONGEST_OUTPUT // 2
        text = f"{text[:half]}\n… {len(text) - LONGEST_OUTPUT} characters …\n{text[-half:]}"
    return safe(encodable(text.replace("\r\n", "\n")))


def picture_of(part: InputImage) -> ImageContentBlock | None:
    """Return an image that the client can show; None for one that is elsewhere."""
    url = part.image_url or ""
    kind, marked, data = url.removeprefix("data:").partition(";base64,")
    if not marked or not url.startswith("data:"):
        return None
    return ImageContentBlock(type="image", mime_type=kind, data=data)

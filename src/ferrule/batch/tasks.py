"""Tasks: one JSON object a line, read and judged before anything starts."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.json_text import encodable
from ferrule.protocol.permissions import InContainer, InContainerReadOnly, SandboxMode, SandboxPolicy
from ferrule.protocol.settings import Positive, Seconds

LONGEST_LINE = 16 << 20
"""Bytes of a line: more than any model reads. A longer one is a file of another kind."""
_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""
_NULL = b"null"

TaskId = str | int | float


class BadTask(FerruleError):
    """A line that is no task; the text says why, and goes on behind the line's name."""


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is to be done, and where. None leaves a choice to the batch.

    `repository` or `folder` is what the workspace begins with; without both it is empty. `image`: commands run in a
    container on it. `max_tokens` counts the input and output of all requests. `check` is run by the shell afterwards.
    """

    id: TaskId
    prompt: str
    repository: str | None = None
    folder: str | None = None
    image: str | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None
    sandbox: SandboxMode | None = None
    max_turns: Positive | None = None
    max_tokens: Positive | None = None
    max_seconds: Seconds | None = None
    check: str | None = None

    @property
    def key(self) -> str:
        """See `key_of`."""
        return key_of(self.id)


def key_of(value: TaskId) -> str:
    """Return an id as JSON, by which two tasks are told apart: `"1"` is another one than `1`, which is `1.0`."""
    whole = isinstance(value, float) and value.is_integer()
    return msgspec.json.encode(int(value) if whole else value).decode()


def read_task(line: bytes, base: str) -> Task:
    """Return the task of a line. Relative folders are below `base`. Raises `BadTask`."""
    try:
        task = msgspec.json.decode(line, type=Task)
    except msgspec.ValidationError as error:
        raise BadTask(_fault(line, str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadTask(f"no JSON ({error})") from error
    if not task.prompt.strip():
        raise BadTask("no prompt: it is empty")
    for field in ("repository", "folder", "check"):
        if "\0" in (getattr(task, field) or ""):
            raise BadTask(f"a NUL character in `{field}`: no path and no command has one")
    if task.repository is not None and task.folder is not None:
        raise BadTask("both a `repository` and a `folder`; the workspace begins with one of them")
    if task.image is not None and task.sandbox not in (None, SandboxMode.CONTAINER):
        raise BadTask(f"an `image` with the sandbox {task.sandbox}; an image needs container")
    return msgspec.structs.replace(
        task,
        id=encodable(task.id) if isinstance(task.id, str) else task.id,
        repository=_below(base, task.repository),
        folder=_below(base, task.folder),
    )


def _below(base: str, path: str | None) -> str | None:
    return None if path is None else os.path.normpath(os.path.join(base, os.path.expanduser(path)))


def _fault(line: bytes, said: str) -> str:
    """Say what is wrong with JSON that is no task."""
    try:
        value = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return "no object"
    for field, what in (("id", "no id: a text or a number"), ("prompt", "no prompt: a text")):
        if bytes(value.get(field, _NULL)) == _NULL:
            return what
    unknown = [name for name in value if name not in Task.__struct_fields__]
    if unknown:
        return f"an unknown field {unknown[0]!r}; there are {', '.join(Task.__struct_fields__)}"
    if said.endswith("`$.sandbox`"):
        return f"an unknown sandbox mode {bytes(value['sandbox']).decode()}; it is one of {', '.join(SandboxMode)}"
    return said[:1].lower() + said[1:].replace("$.", "")


def open_tasks(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file of tasks. Raises `UsageError`."""
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise UsageError(f"the tasks {os.fspath(path)} cannot be read: {error.strerror}") from error


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line that is not blank with its number, from 1; None for one that is too long, which is not kept."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE)
            yield number, None
            continue
        line = line.removeprefix(_MARK) if number == 1 else line
        if line.strip():
            yield number, line


def has_image(policy: SandboxPolicy) -> bool:
    """Tell whether commands run in containers on an image."""
    return isinstance(policy, InContainer | InContainerReadOnly) and policy.image is not None

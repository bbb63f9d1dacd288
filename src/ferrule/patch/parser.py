"""The V4A parser: one state machine, fed whole or piece by piece."""

from enum import Enum, auto
from typing import Literal, NamedTuple

from ferrule.patch.errors import ParseError, clip
from ferrule.patch.syntax import (
    ADD,
    ANCHOR,
    BEGIN,
    DELETE,
    END,
    END_OF_FILE,
    ENVIRONMENT,
    MOVE,
    UPDATE,
    AddFile,
    Chunk,
    DeleteFile,
    Hunk,
    Patch,
    UpdateFile,
)

_HEREDOCS = frozenset({"<<EOF", "<<'EOF'", '<<"EOF"'})
_HEREDOC_END = "EOF"
_SHOWN = 200
"""Characters of an offending line quoted in an error."""

_FIRST = f"The first line of the patch must be '{BEGIN}'"
_LAST = f"The last line of the patch must be '{END}'"
_HEADERS = "Valid hunk headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"
_SIGNS = "Every line should start with ' ' (context line), '+' (added line), or '-' (removed line)"
_NO_DIFF = (
    "V4A has no line numbers, and no lines of a unified diff that name files ('---', '+++', 'diff --git', 'index'): "
    "'*** Update File: ' names the file, and '@@' stands alone or before a line above the change."
)
_DIFF_LINES = (
    "--- ", "+++ ", "@@ -", "diff --git ", "index ", "old mode ", "new mode ", "new file mode ", "deleted file mode ",
    "similarity index ", "rename from ", "rename to ", "Index: ", "=======",
)  # fmt: skip
_BARE_CR = "Its lines end with a carriage return alone (\\r): send line feeds (\\n)."
_EMPTY = "Update hunk does not contain any lines"


_Kind = Literal["add", "delete", "update"]


class FileProgress(NamedTuple):
    """The progress of one file of the patch, for live display: `added` and `deleted` count lines."""

    kind: _Kind
    path: str
    move_to: str | None
    added: int
    deleted: int


class _State(Enum):
    BEFORE = auto()
    HEAD = auto()
    ADD = auto()
    UPDATE = auto()
    ENDED = auto()
    BROKEN = auto()


_OPENERS: tuple[tuple[str, _Kind, _State], ...] = (
    (ADD, "add", _State.ADD),
    (DELETE, "delete", _State.HEAD),
    (UPDATE, "update", _State.UPDATE),
)
_BARE_HEADERS = frozenset(marker.rstrip() for marker, _, _ in _OPENERS)
_OPENING = "*** "


class _Section:
    """The `@@` section being read."""

    __slots__ = ("anchors", "at_end", "line", "lines")

    def __init__(self, line: int) -> None:
        self.line = line
        self.anchors: list[str] = []
        self.lines: list[str] = []
        self.at_end = False

    def done(self) -> Chunk:
        return Chunk(tuple(self.anchors), tuple(self.lines), self.at_end, self.line)


class _File:
    """The file being read."""

    __slots__ = ("added", "deleted", "kind", "line", "lines", "move_to", "path", "sections")

    def __init__(self, kind: _Kind, path: str, line: int) -> None:
        self.kind = kind
        self.path = path
        self.line = line
        self.move_to: str | None = None
        self.lines: list[str] = []
        self.sections: list[_Section] = []
        self.added = 0
        self.deleted = 0

    def done(self) -> Hunk:
        if self.kind == "add":
            return AddFile(self.path, tuple(self.lines), self.line)
        if self.kind == "delete":
            return DeleteFile(self.path, self.line)
        return UpdateFile(self.path, self.move_to, tuple(section.done() for section in self.sections), self.line)

    def progress(self) -> FileProgress:
        added = len(self.lines) if self.kind == "add" else self.added
        return FileProgress(self.kind, self.path, self.move_to, added, self.deleted)


class PatchParser:
    """An incremental patch parser. `feed` never raises; `finish` raises the error: a bad marker first, then the first
    bad line."""

    def __init__(self) -> None:
        self._partial: list[str] = []
        self._state = _State.BEFORE
        self._number = 0
        self._last = self._last_but_one = ""
        self._heredoc = False
        self._closed = False
        self._held: list[str] = []
        self._end_held = False
        self._files: list[_File] = []
        self._environment: str | None = None
        self._error: ParseError | None = None
        self._unreadable: ParseError | None = None

    def feed(self, text: str) -> tuple[FileProgress, ...]:
        """Parse the next piece, cut anywhere. Returns the progress of the files that this piece touched."""
        self._check_characters(text)
        *lines, rest = text.split("\n")
        if not lines:
            self._partial.append(rest)
            return ()
        seen = max(len(self._files) - 1, 0)
        before = self._files[seen].progress() if self._files else None
        lines[0] = "".join((*self._partial, lines[0]))
        self._partial = [rest]
        for line in lines:
            self._line(line.removesuffix("\r"))
        touched = tuple(file.progress() for file in self._files[seen:])
        return touched[1:] if touched and touched[0] == before else touched

    def finish(self) -> Patch:
        """Return the whole patch. Raises `ParseError`."""
        self._line("".join(self._partial).removesuffix("\r"))
        self._partial = []
        if self._end_held:
            self._end()
        if self._unreadable:
            raise self._unreadable
        if self._state is not _State.ENDED or self._heredoc != self._closed:
            raise self._failure()
        return Patch(tuple(file.done() for file in self._files), self._environment)

    def _check_characters(self, text: str) -> None:
        if text.isascii():
            return
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            bad = f"U+{ord(text[error.start]):04X}"
            self._unreadable = self._unreadable or ParseError(f"The patch holds half of a surrogate pair ({bad})")

    def _failure(self) -> ParseError:
        error = self._error
        if self._heredoc and not self._last.endswith(_HEREDOC_END):
            return ParseError(_FIRST, hint="It starts like a heredoc that never ends; send the patch without one.")
        if error and error.line is None:
            return error
        last = self._last_but_one if self._heredoc else self._last
        if error and _is(last, END):
            return error
        if error:
            hint = f"It ends with {_quoted(last)}. Also, on line {error.line}: {error.detail}"
        elif self._last:
            hint = (
                f"It ends with {_quoted(self._last)}. If it was cut short, send it again whole or in several patches."
            )
        else:
            hint = ""
        return ParseError(_LAST, hint=hint)

    def _break(self, detail: str, *, hint: str = "", line: int | None = None, whole: bool = False) -> None:
        """Record the first error; from then on only the last line is read."""
        if self._state is not _State.BROKEN:
            self._error = ParseError(detail, None if whole else line or self._number, hint)
            self._state = _State.BROKEN

    def _line(self, line: str) -> None:
        """Parse one line. Blank lines are held until another follows, and so is an indented end marker in an update:
        at the very end it counts, elsewhere it is a context line."""
        if not line or line.isspace():
            self._held.append(line)
            return
        held, self._held = self._held, []
        if self._end_held and self._heredoc and line.endswith(_HEREDOC_END):
            self._number += len(held)
            self._end()
        elif self._state is not _State.BEFORE:
            for text in held:
                self._number += 1
                self._body(text)
        self._last_but_one, self._last = self._last, line
        self._end_held = self._state is _State.UPDATE and line[0].isspace() and _is(line, END)
        if self._end_held:
            self._held.append(line)
            return
        self._number += 1
        self._body(line)

    def _body(self, line: str) -> None:
        match self._state:
            case _State.UPDATE:
                self._update(line)
            case _State.ADD if line.startswith("+"):
                self._files[-1].lines.append(line[1:])
            case _State.ADD | _State.HEAD:
                self._head(line.strip())
            case _State.BEFORE:
                self._begin(line)
            case _State.ENDED if line.strip():
                self._after_end(line)
            case _:
                pass

    def _begin(self, line: str) -> None:
        if _is(line, BEGIN):
            self._number = 1
            self._state = _State.HEAD
        elif line in _HEREDOCS and not self._heredoc:
            self._heredoc = True
        else:
            self._break(_FIRST, hint=_first_hint(line), whole=True)

    def _end(self) -> None:
        if self._state is not _State.UPDATE or self._update_is_whole(None):
            self._state = _State.ENDED

    def _after_end(self, line: str) -> None:
        if self._heredoc and not self._closed and line.endswith(_HEREDOC_END):
            self._closed = True
        elif not _is(line, END):
            self._break(_LAST, hint=f"Line {self._number} stands after it: {_quoted(line)}", whole=True)

    def _head(self, line: str) -> None:
        if _is(line, END):
            self._end()
        elif line.startswith(ENVIRONMENT) and not self._files:
            self._set_environment(line.removeprefix(ENVIRONMENT).strip())
        elif not self._open(line):
            self._break(f"{_quoted(line)} is not a valid hunk header. {_HEADERS}", hint=self._head_hint(line))

    def _head_hint(self, line: str) -> str:
        if self._state is _State.ADD:
            if _is_diff_line(line):
                return _NO_DIFF
            return (
                f"Every line of a new file starts with '+', an empty one is a bare '+' (file {self._files[-1].path})."
            )
        return "The path is missing." if line in _BARE_HEADERS else ""

    def _set_environment(self, name: str) -> None:
        if self._environment is not None:
            self._break("apply_patch environment_id cannot be specified more than once", whole=True)
        elif not name:
            self._break("apply_patch environment_id cannot be empty", whole=True)
        else:
            self._environment = name

    def _open(self, line: str) -> bool:
        """Start the file that this header names; return False if it is not a header."""
        for marker, kind, state in _OPENERS:
            path = line.removeprefix(marker).strip() if line.startswith(marker) else ""
            if path:
                self._state = state
                self._files.append(_File(kind, path, self._number))
                self._check_path(path)
                return True
        return False

    def _check_path(self, path: str) -> None:
        if "\0" in path:
            self._break(f"The path {_quoted(path)} holds a NUL character")

    def _update(self, line: str) -> None:
        file, text = self._files[-1], line.rstrip()
        section = file.sections[-1] if file.sections else None
        if _is(text, END) and not line[0].isspace():
            self._end()
        elif text.startswith(_OPENING) and _is_header(text):
            if self._update_is_whole(line):
                self._open(text)
        elif text.startswith(MOVE) and not section and file.move_to is None:
            file.move_to = text.removeprefix(MOVE).strip()
            self._check_path(file.move_to)
        elif text == ANCHOR or text.startswith(ANCHOR + " "):
            self._anchor(file, text[len(ANCHOR) + 1 :])
        elif text == END_OF_FILE:
            self._mark_end(section)
        elif section and section.at_end:
            if text:
                self._unexpected(line)
        else:
            self._section_line(line)

    def _update_is_whole(self, next_header: str | None) -> bool:
        """Return whether the update may end here, at a header or (None) at the end marker."""
        file = self._files[-1]
        if not file.sections and file.move_to is None:
            hint = _BARE_CR if "\r" in file.path else ""
            self._break(f"Update file hunk for path '{file.path}' is empty", line=file.line, hint=hint)
        elif file.sections and not file.sections[-1].lines:
            self._break(
                _EMPTY
                if next_header is None
                else f"Unexpected line found in update hunk: {_quoted(next_header)}. {_SIGNS}"
            )
        return self._state is not _State.BROKEN

    def _anchor(self, file: _File, anchor: str) -> None:
        if not file.sections or file.sections[-1].lines:
            file.sections.append(_Section(self._number))
        if anchor:
            file.sections[-1].anchors.append(anchor)

    def _mark_end(self, section: _Section | None) -> None:
        if section is None:
            return
        if not section.lines:
            self._break(_EMPTY)
        elif section.at_end:
            self._unexpected(END_OF_FILE)
        section.at_end = True

    def _section_line(self, line: str) -> None:
        file = self._files[-1]
        sign = line[:1] or " "
        if sign not in " +-" or (not file.sections and _names(line, file.path)):
            self._unexpected(line)
            return
        if not file.sections:
            file.sections.append(_Section(self._number))
        file.sections[-1].lines.append(line or " ")
        file.added += sign == "+"
        file.deleted += sign == "-"

    def _unexpected(self, line: str) -> None:
        sections = self._files[-1].sections
        if sections and sections[-1].lines:
            self._break(
                f"Expected update hunk to start with a @@ context marker, got: {_quoted(line)}", hint=_line_hint(line)
            )
        else:
            self._break(f"Unexpected line found in update hunk: {_quoted(line)}. {_SIGNS}", hint=_line_hint(line))


def parse(text: str) -> Patch:
    """Parse a whole patch. Raises `ParseError`. A patch without any hunk is returned; `plan` refuses it."""
    parser = PatchParser()
    parser.feed(text)
    return parser.finish()


def _is(line: str, marker: str) -> bool:
    """Return whether the line is the marker, ignoring blanks and decorating stars around it."""
    return marker in line and line.strip().rstrip("*").rstrip() == marker


def _is_header(line: str) -> bool:
    return any(line.startswith(marker) and len(line) > len(marker) for marker, _, _ in _OPENERS)


def _quoted(line: str) -> str:
    return f"'{clip(line, _SHOWN)}'"


def _names(line: str, path: str) -> bool:
    """Return whether it is the `+++` line of a unified diff for this file."""
    named = line.removeprefix("+++ ").split("\t")[0].strip()
    return line.startswith("+++ ") and named.removeprefix("b/") == path.removeprefix("./")


def _is_diff_line(line: str) -> bool:
    """Return whether only a unified diff has such a line outside its hunks."""
    return line.startswith(_DIFF_LINES)


def _first_hint(line: str) -> str:
    if "\r" in line:
        return _BARE_CR
    if line.lstrip("'\"").startswith(BEGIN) and "\\n" in line:
        return r"It holds `\n` as two characters where a line ends: send real line ends, without escapes and quotes."
    if line.lstrip().startswith("```"):
        return "Send the patch without a code fence around it."
    if line.startswith(("--- ", "diff --git")):
        return "This looks like a unified diff; the V4A format has no line numbers and starts with that marker."
    return f"It starts with {_quoted(line)}."


def _line_hint(line: str) -> str:
    if _is_diff_line(line):
        return _NO_DIFF
    if line.startswith("@@"):
        return "Write '@@', one space, then the anchor line."
    if line.startswith("\\"):
        return "V4A has no 'No newline at end of file' line; leave it out."
    return ""

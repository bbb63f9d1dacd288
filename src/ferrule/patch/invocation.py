"""Recognise a patch in a shell command, so that it goes through the engine instead of a process.

The whole script must be `apply_patch` with a here-document or one literal word, optionally after `cd LITERAL &&`. Then
what bash would do is known without running it. Every other script is an ordinary command. An unquoted here-document is
taken literally, as the model that wrote it meant it; bash would expand `$` and backslashes.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from ferrule.patch.errors import ParseError, PatchError
from ferrule.patch.parser import parse
from ferrule.patch.syntax import BEGIN

COMMAND_NAMES = frozenset({"apply_patch", "applypatch", "apply-patch"})
"""Names by which models call the command."""

_SHELLS = frozenset({"bash", "zsh", "sh"})
_RUN = frozenset({"-c", "-lc", "-ic", "-lic", "-fc"})
_SPECIAL = frozenset("|&;<>()$`#!*?[]{}~=")
"""Characters that make an unquoted word more than literal (the last ones only in some places)."""


class Invocation(NamedTuple):
    """A patch that a command would apply: its text, and the folder to enter first, as written (None: stay)."""

    text: str
    workdir: str | None = None


class BarePatchError(PatchError):
    """The command is itself a patch: no program is named."""

    def __init__(self) -> None:
        super().__init__('patch detected without explicit call to apply_patch. Rerun as ["apply_patch", "<patch>"]')


def find_patch(argv: Sequence[str]) -> Invocation | None:
    """Return the patch in a command, unparsed; None if it is an ordinary command. Raises `BarePatchError`."""
    if len(argv) == 1:
        _refuse_bare(argv[0])
        return None
    if len(argv) == 2 and argv[0] in COMMAND_NAMES:
        return Invocation(argv[1])
    if len(argv) >= 3 and _is_shell(argv[0]) and argv[-2] in _RUN and set(argv[1:-2]) <= {"-l", "-i"}:
        return find_patch_in_script(argv[-1])
    return None


def find_patch_in_script(script: str) -> Invocation | None:
    """Find the patch in a shell script, like `find_patch`."""
    _refuse_bare(script)
    if not any(name in script for name in COMMAND_NAMES):
        return None
    try:
        return _Scanner(script).invocation()
    except _OtherScript:
        return None


def _refuse_bare(text: str) -> None:
    if BEGIN not in text:
        return
    try:
        parse(text)
    except ParseError:
        return
    raise BarePatchError


def _is_shell(program: str) -> bool:
    return os.path.basename(program).lower().removesuffix(".exe") in _SHELLS


class _OtherScript(Exception):
    """The script does not have the recognised form."""


class _HereDocument(NamedTuple):
    delimiter: str
    strip_tabs: bool


class _Scanner:
    """A left-to-right reader of the recognised form; raises `_OtherScript` at anything else."""

    def __init__(self, script: str) -> None:
        self._text = script
        self._at = 0

    def invocation(self) -> Invocation:
        self._skip_empty_lines()
        workdir = self._change_folder()
        document = self._redirect()
        if self._word() not in COMMAND_NAMES:
            raise _OtherScript
        document = document or self._redirect()
        if document is None:
            text = self._word()
            self._finish_line()
        else:
            self._finish_line()
            text = self._body(document)
        self._skip_empty_lines()
        if self._at < len(self._text):
            raise _OtherScript
        return Invocation(text, workdir)

    def _change_folder(self) -> str | None:
        start = self._at
        if self._text.startswith("cd", start) and self._word() == "cd":
            folder = self._word()
            self._skip_blanks()
            if not folder or folder.startswith("-") or not self._take("&&"):
                raise _OtherScript
            self._skip_empty_lines()
            return folder
        self._at = start
        return None

    def _redirect(self) -> _HereDocument | None:
        self._skip_blanks()
        start = self._at
        self._take("0")
        if not self._take("<<") or self._peek() == "<":
            self._at = start
            return None
        strip_tabs = self._take("-")
        return _HereDocument(self._word(), strip_tabs)

    def _body(self, document: _HereDocument) -> str:
        """Read the lines up to the delimiter, or to the end of the script, where bash only warns."""
        lines: list[str] = []
        while self._at < len(self._text):
            line = self._line()
            if document.strip_tabs:
                line = line.lstrip("\t")
            if line.removesuffix("\r") == document.delimiter:
                break
            lines.append(line)
        return "\n".join(lines).rstrip("\n")

    def _line(self) -> str:
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        line, self._at = self._text[self._at : end], end + 1
        return line

    def _word(self) -> str:
        """Read one shell word whose meaning is exactly its own letters."""
        self._skip_blanks()
        parts: list[str] = []
        start = self._at
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "'":
                parts.append(self._until_quote())
            elif char == '"':
                parts.append(self._double_quoted())
            elif char == "\\":
                parts.append(self._text[self._at + 1 : self._at + 2].replace("\n", ""))
                self._at += 2
            elif char.isspace() or char in "<>&|;":
                break
            elif char in _SPECIAL:
                raise _OtherScript
            else:
                parts.append(char)
                self._at += 1
        if self._at == start:
            raise _OtherScript
        return "".join(parts)

    def _until_quote(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise _OtherScript
        part, self._at = self._text[self._at + 1 : end], end + 1
        return part

    def _double_quoted(self) -> str:
        parts: list[str] = []
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == '"':
                return "".join(parts)
            if char in "$`!":
                raise _OtherScript
            if char == "\\" and self._peek() in '$`"\\\n':
                char = self._peek().replace("\n", "")
                self._at += 1
            parts.append(char)
        raise _OtherScript

    def _finish_line(self) -> None:
        """Require that only a comment follows on the line."""
        self._skip_blanks()
        rest = self._line()
        if rest.strip("\r") and not rest.startswith("#"):
            raise _OtherScript

    def _skip_blanks(self) -> None:
        while self._take(" ") or self._take("\t") or self._take("\\\n"):
            pass

    def _skip_empty_lines(self) -> None:
        while True:
            self._skip_blanks()
            if self._peek() == "#":
                self._line()
            elif not (self._take("\n") or self._take("\r\n")):
                return

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, token: str) -> bool:
        found = self._text.startswith(token, self._at)
        self._at += len(token) * found
        return found

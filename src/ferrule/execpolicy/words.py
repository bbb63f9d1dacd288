"""Read a shell script's words: where each ends, its text without quoting, and the commands in it."""

import re
from abc import abstractmethod

from ferrule.execpolicy.expansions import Braces, Glob, Splitting, Vague, is_number
from ferrule.execpolicy.quoting import beyond_ascii, expand_braces, unescape

# What means the same to every shell, unquoted: no expansion, no brace, nothing that may be cut elsewhere.
_RUN = re.compile(r"[\w./:=@%+,^#!-]+")
_PLAIN = frozenset("~*?[]")
_IN_QUOTES = re.compile(r'[^"\\$`]+')
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
# `a[$(command)]`: an array's index, where it is evaluated as arithmetic. `$(` alone is, where it is a prompt.
_HIDDEN = re.compile(r"\w\[[^\]\n]*(\$\(|`)")
_HOME = frozenset(["$HOME", "${HOME}"])
_OTHER_HOME = re.compile(r"(?<![${])HOME\b|\bIFS\b|\b(read|printf\s+-v|declare|eval|source)\b")
_GLOBS = frozenset("*?[")
_ENDS = frozenset(" \t\n;&|<>()")
_ESCAPABLE = frozenset('$`"\\')
_BRACES = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}", re.DOTALL)
_ANSI_STRING = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
MAX_DEPTH = 30  # constructs within constructs; each takes some 13 frames of Python's own stack


class Unreadable(Exception):
    """The rest of the script cannot be read: a syntax error, or something that shells read in different ways."""


class _Pieces:
    """A word in the making."""

    __slots__ = ("brace_at", "escapes", "glob_at", "parts", "splits", "vague")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.vague = False
        self.splits = False
        self.glob_at = -1
        self.brace_at = -1
        self.escapes = False  # of what would be an expansion

    def word(self) -> str:
        text = "".join(self.parts)
        if self.splits:
            return Splitting(text)
        if self.vague:
            return Vague(text)
        return text if self.glob_at < 0 else Glob(text, self.glob_at)

    def expansion(self, source: str, *, splits: bool) -> None:
        self.parts.append(source)
        self.vague = True
        self.splits = self.splits or splits


class WordReader:
    """Reads words at `at`; a subclass adds the grammar of commands. `odd`: more than plain words was met.

    `bashism`: something that other shells read in another way. `risky`: an expansion evaluates a value as arithmetic or
    as a name, `prompts`: as a prompt. `hides`: a quoted text would run a command if it were evaluated as a prompt,
    `hides_index`: as arithmetic or a name.
    """

    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.end = len(text)
        self.at = 0
        self.depth = depth
        self.odd = False
        self.bashism = False
        self.risky = False
        self.prompts = False
        self.hides = False
        self.hides_index = False
        self.joined = False  # a line was continued inside of the last word
        self._not_arithmetic: set[int] = set()

    @abstractmethod
    def commands_until(self, closer: str) -> None:
        """Read commands up to the closing token."""

    @abstractmethod
    def commands_of(self, text: str) -> None:
        """Read another text whose commands run where this one's do."""

    @abstractmethod
    def restart(self, mark: tuple[int, int]) -> None:
        """Forget what was read since the mark."""

    @abstractmethod
    def mark(self) -> tuple[int, int]:
        """Return a place to come back to."""

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.text[at] if at < self.end else ""

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable

    def word(self, *, pattern: bool = False) -> str:
        """Read one word. With `pattern`, parentheses belong to it (a test, a case)."""
        pieces = _Pieces()
        start = self.at
        self.joined = False
        while self.at < self.end:
            if self._take(_RUN, pieces):
                continue
            char = self.text[self.at]
            if char in _ENDS:
                if char in "<>" and self.peek(1) == "(":
                    self._process(pieces)
                    continue
                if char != "(" or not self._opens_pattern(start, pattern=pattern):
                    break
                self._pattern_list(pieces)
                continue
            self._special(char, pieces)
        if self.at == start:
            raise Unreadable
        found = pieces.word()
        if pieces.escapes:
            self.quoted(found)
        if pieces.brace_at >= 0 and _BRACES.search(self.text, start, self.at):
            expanded = expand_braces(self.text[start : self.at])
            return Braces(found, expanded) if expanded else Splitting(found)
        return found

    def _take(self, run: re.Pattern[str], pieces: _Pieces) -> bool:
        """Take characters that mean themselves. Returns False if there are none."""
        found = run.match(self.text, self.at)
        if found is None:
            return False
        pieces.parts.append(found[0])
        self.at = found.end()
        return True

    def _special(self, char: str, pieces: _Pieces) -> None:
        """Read a character with a meaning of its own."""
        if char == "\\":
            self._escaped(pieces)
        elif char == "'":
            pieces.parts.append(self.single_quoted())
        elif char == '"':
            self.at += 1
            self.double_quoted(pieces)
        elif char in "$`":
            self.expansion(pieces, quoted=False)
        else:
            if char in _GLOBS and pieces.glob_at < 0:
                pieces.glob_at = sum(map(len, pieces.parts))
            if char == "{":
                pieces.brace_at = self.at
            self.odd = self.odd or char not in _PLAIN
            pieces.parts.append(char)
            self.at += 1

    def _escaped(self, pieces: _Pieces) -> None:
        char = self.peek(1)
        self.at += 2
        if char == "\n":
            self.joined = self.odd = True
        elif char:
            pieces.parts.append(char)
            pieces.escapes = pieces.escapes or char in "$`"
        else:
            raise Unreadable  # shells differ about a backslash at the end

    def single_quoted(self) -> str:
        close = self.text.find("'", self.at + 1)
        if close < 0:
            raise Unreadable
        found = self.text[self.at + 1 : close]
        self.at = close + 1
        self.quoted(found)
        return found

    def quoted(self, text: str) -> None:
        """Note a text that is not expanded here."""
        if "$(" in text or "`" in text:
            self.hides = True
            self.hides_index = self.hides_index or _HIDDEN.search(text) is not None

    def double_quoted(self, pieces: _Pieces, closer: str = '"') -> None:
        """Read up to the closing quote; with another `closer` (none for here-documents) the quote is a character."""
        while self.at < self.end:
            if self._take(_IN_QUOTES, pieces):
                continue
            char = self.text[self.at]
            if char == closer:
                self.at += 1
                return
            if char == "\\":
                self._escaped_in_quotes(pieces, closer)
            elif char == '"':
                pieces.parts.append(char)
                self.at += 1
            else:
                self.expansion(pieces, quoted=True)
        if closer:
            raise Unreadable

    def quoted_text(self) -> str:
        """Read all of the text like the inside of double quotes."""
        pieces = _Pieces()
        self.double_quoted(pieces, closer="")
        found = pieces.word()
        self.quoted(found)
        return found

    def _escaped_in_quotes(self, pieces: _Pieces, closer: str) -> None:
        char = self.peek(1)
        self.at += 2
        if char == "\n":
            return
        escaped = char in _ESCAPABLE and (char != '"' or closer == '"')
        pieces.escapes = pieces.escapes or char == "`" or (char == "$" and self.peek() == "(")
        pieces.parts.append(char if escaped else "\\" + char)

    def expansion(self, pieces: _Pieces, *, quoted: bool) -> None:
        """Read what begins with `$` or a backtick."""
        start = self.at
        char = self.text[start]
        self.at += 1
        if char == "`":
            self._backticks(quoted=quoted)
        else:
            self._dollar(pieces, quoted=quoted)
            if self.at == start + 1:  # a dollar sign that begins nothing
                if self.text.startswith("\\\n", self.at):
                    raise Unreadable
                pieces.parts.append("$")
                self.odd = True
                return
            if self.text[start + 1] in "'\"" and not quoted:
                return
        self.odd = True
        source = self.text[start : self.at]
        pieces.expansion(source, splits=(not quoted and not self._is_one_word(source)) or "@" in source)

    def _is_one_word(self, source: str) -> bool:
        """Return True for an unquoted expansion that is never split: a number, or an unchanged `$HOME`."""
        return is_number(source) or (source in _HOME and _OTHER_HOME.search(self.text) is None)

    def _dollar(self, pieces: _Pieces, *, quoted: bool) -> None:
        char = self.peek()
        if char == "(":
            self._substitution()
        elif char == "{":
            self._braced(quoted=quoted)
        elif char == "[":
            self.bashism = True
            self.at += 1
            self._arithmetic("]")
        elif char == "'" and not quoted:
            self._ansi(pieces)
        elif char == '"' and not quoted:
            self.odd = self.bashism = True
            self.at += 1
            self.double_quoted(pieces)
        elif (name := _PARAMETER.match(self.text, self.at)) is not None:
            self.at = name.end()

    def _substitution(self) -> None:
        """Read `$(commands)` or `$((arithmetic))`."""
        start = self.at
        if self.peek(1) == "(" and start not in self._not_arithmetic:
            mark = self.mark()
            self.at += 2
            if self._arithmetic("))"):
                return
            self._not_arithmetic.add(start)
            self.restart(mark)
        self.at = start + 1
        self.commands_until(")")

    def _process(self, pieces: _Pieces) -> None:
        start = self.at
        self.odd = self.bashism = True
        self.at += 2
        self.commands_until(")")
        pieces.expansion(self.text[start : self.at], splits=False)

    def _backticks(self, *, quoted: bool) -> None:
        found: list[str] = []
        while (char := self.peek()) != "`":
            if not char:
                raise Unreadable
            if char == "\\":
                following = self.peek(1)
                self.at += 1
                char = following if following in '$`\\"'[: 4 if quoted else 3] else "\\" + following
            found.append(char)
            self.at += 1
        self.at += 1
        self.commands_of("".join(found))

    def arithmetic(self, start: int) -> bool:
        """Read `expression))` after the two parentheses at `start`. Returns False, with nothing read, if it is none."""
        if start in self._not_arithmetic:
            return False
        mark = self.mark()
        self.at = start + 2
        if self._arithmetic("))"):
            return True
        self._not_arithmetic.add(start)
        self.restart(mark)
        return False

    def _arithmetic(self, closer: str) -> bool:
        """Read up to the closer outside of its own brackets. Returns False if it is no arithmetic after all."""
        opener, pieces, depth = "[" if closer == "]" else "(", _Pieces(), 0
        self.risky = True
        self.deeper()
        while self.at < self.end:
            char = self.text[self.at]
            if char == closer[0]:
                if depth == 0:
                    if not self.text.startswith(closer, self.at):
                        break
                    self.at += len(closer)
                    self.depth -= 1
                    return True
                depth -= 1
            depth += char == opener
            self._skip_in_arithmetic(char, pieces)
        if closer == "]" or self.at >= self.end:
            raise Unreadable
        self.depth -= 1
        return False

    def _skip_in_arithmetic(self, char: str, pieces: _Pieces) -> None:
        if char in "$`":
            self.expansion(pieces, quoted=True)
        elif char == '"':
            self.at += 1
            self.double_quoted(pieces)
        elif char == "'":
            # Bash takes these for quotes when it looks for the end, and not when it expands.
            self.commands_of_quoted(self.single_quoted())
        else:
            self.at += 2 if char == "\\" else 1

    def commands_of_quoted(self, text: str) -> None:
        """Refuse a text that may be expanded although it is quoted."""
        if "$" in text or "`" in text:
            raise Unreadable

    def _braced(self, *, quoted: bool) -> None:
        """Read `${...}` up to the first closing brace outside of quotes."""
        start = self.at
        self.at += 1
        if self.peek() in (" ", "\t", "\n", "|"):
            self.bashism = True
            self.at += 1
            self.commands_until("}")
            return
        self.deeper()
        pieces = _Pieces()
        while (char := self.peek()) != "}":
            if not char:
                raise Unreadable
            if char == "'":
                if quoted:
                    raise Unreadable  # whether this quotes hangs on the operator and on the shell
                self.commands_of_quoted(self.single_quoted())
            elif char in "<>" and self.peek(1) == "(" and not quoted:
                self._process(pieces)
            else:
                self._skip_in_arithmetic(char, pieces)
        self.at += 1
        self.depth -= 1
        inside = self.text[start + 1 : self.at - 1]
        by_name = inside.startswith("!") and not inside.endswith(("[@]", "[*]"))
        self.risky = self.risky or by_name
        self.prompts = self.prompts or inside.endswith("@P")

    def _ansi(self, pieces: _Pieces) -> None:
        """Read `$'...'`."""
        self.odd = self.bashism = True
        found = _ANSI_STRING.match(self.text, self.at + 1)
        if found is None:
            raise Unreadable
        self.at = found.end()
        text = unescape(found[0][:-1])
        if "\0" in text:
            raise Unreadable  # cuts the word, and shells differ where
        pieces.parts.append(text)
        self.quoted(text)
        # How an escaped character beyond ASCII is written hangs on the locale.
        pieces.vague = pieces.vague or beyond_ascii(text) > beyond_ascii(found[0])

    def _opens_pattern(self, start: int, *, pattern: bool) -> bool:
        """Return True for `@(a|b)`, and not for a function's name before its parentheses."""
        if pattern:
            return True
        return self.at > start and self.text[self.at - 1] in "?*+@!" and self.peek(1) != ")"

    def _pattern_list(self, pieces: _Pieces) -> None:
        """Read `(a|b)` in a pattern."""
        self.odd = self.bashism = True
        self.deeper()
        self.at += 1
        while (char := self.peek()) != ")":
            if not char:
                raise Unreadable
            if char == "(":
                self._pattern_list(pieces)
            elif char in "'\"$`\\":
                self._special(char, pieces)
            else:
                self.at += 1
        self.at += 1
        self.depth -= 1
        pieces.expansion("(...)", splits=True)

"""Regular expressions as ripgrep reads them, said in Python's. What Python cannot say is refused, never guessed.

Source: the syntax of the Rust crate regex 1.10, as ripgrep 14 uses it: line by line, Unicode classes.
"""

import re

from ferrule.protocol.errors import RespondToModel

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\x0b\x0c\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_SAME_ESCAPES = frozenset("dwsbBtrfva")
_NEGATED = frozenset("DWS")
_NO_TEXT = "\udc80-\udcff"
"""Bytes that are no UTF-8, as Python decodes them: no class of characters holds them."""
_QUANTIFIER = re.compile(r"\{(\d+)(,(\d*))?\}")
_FLAGS = re.compile(r"\?([imsx]*)(-[imsx]+)?(:|\))")
_CODE = re.compile(r"(?:x|u|U)\{([0-9A-Fa-f]{1,8})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")


class LinePattern:
    """Finds lines. `raw` text holds surrogate escapes for bytes that are no UTF-8; nothing but themselves matches them.

    Raises `RespondToModel` for a pattern that is wrong, or that only ripgrep can read.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        flags = re.IGNORECASE if ignore_case else 0
        try:
            self._line = re.compile(_Translator(pattern, r"(?:\A)", r"(?:\Z)").whole(), flags)
            self._text = re.compile(_Translator(pattern, r"(?:^)", r"(?:$)").whole(), flags | re.MULTILINE)
        except (re.error, OverflowError, RecursionError) as error:
            raise _wrong(pattern, str(error)) from error

    def matches(self, line: str) -> bool:
        """Tell whether a line without its newline matches."""
        return self._line.search(line) is not None

    def in_text(self, text: str) -> bool:
        """Tell whether a line of a text matches. One search of the whole is quick: if it finds nothing, no line
        matches; what it finds may cross lines, and is checked again."""
        found = self._text.search(text)
        if found is None:
            return False
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", start)
        if start < len(text) and self.matches(text[start : end if end >= 0 else len(text)]):
            return True
        return any(map(self.matches, text_lines(text)))


def text_lines(text: str) -> list[str]:
    """Split a text into lines without newlines; a final newline begins no further line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _wrong(pattern: str, problem: str) -> RespondToModel:
    return RespondToModel(f"rg failed: regex parse error in `{pattern}`: {problem}")


def _unsupported(pattern: str, what: str) -> RespondToModel:
    return RespondToModel(
        f"{what} in `{pattern}` cannot be searched for without ripgrep: write the pattern differently"
    )


class _Translator:
    """Reads the pattern once, from left to right. `_quantifiable`: something stands before that can be repeated."""

    def __init__(self, pattern: str, line_start: str, line_end: str) -> None:
        self._pattern = pattern
        self._line_start = line_start
        self._line_end = line_end
        self._at = 0
        self._parts: list[str] = []
        self._quantifiable = False
        self._closers: list[int] = []
        self._flag_groups = 0

    def whole(self) -> str:
        while self._at < len(self._pattern):
            self._next()
        if self._closers:
            raise _wrong(self._pattern, "unclosed group")
        return "".join(self._parts) + ")" * self._flag_groups

    def _next(self) -> None:
        character = self._pattern[self._at]
        self._at += 1
        match character:
            case "\\":
                self._escape()
            case "[":
                self._add(self._set())
            case "(":
                self._open()
            case ")":
                self._close()
            case "*" | "+" | "?" | "{":
                self._quantifier(character)
            case "|":
                self._parts.append("|")
                self._quantifiable = False
            case "\n":
                raise _wrong(self._pattern, 'the literal "\\n" is not allowed in a regex')
            case "$":
                self._add(self._line_end)
            case "^":
                self._add(self._line_start)
            case ".":
                self._add(f"[^\n{_NO_TEXT}]")
            case _:
                self._add(re.escape(character))

    def _add(self, part: str) -> None:
        self._parts.append(part)
        self._quantifiable = True

    def _escape(self) -> None:
        self._add(self._escaped(in_set=False))

    def _escaped(self, *, in_set: bool) -> str:
        if self._at >= len(self._pattern):
            raise _wrong(self._pattern, "incomplete escape sequence")
        code = _CODE.match(self._pattern, self._at)
        if code:
            self._at = code.end()
            value = int(next(filter(None, code.groups())), 16)
            if value > 0x10FFFF:
                raise _wrong(self._pattern, "invalid Unicode code point")
            return re.escape(chr(value))
        character = self._pattern[self._at]
        self._at += 1
        if character in "pP":
            raise _unsupported(self._pattern, "a Unicode class")
        if character == "n" and not in_set:
            raise _wrong(self._pattern, 'the literal "\\n" is not allowed in a regex')
        if character in "Az" and not in_set:
            raise _unsupported(self._pattern, f"\\{character}")
        if character in _NEGATED:
            if in_set:
                raise _unsupported(self._pattern, "a negated class in a class")
            return f"[^\\{character.lower()}{_NO_TEXT}]"
        if character in "<>" and not in_set:
            return r"\b(?=\w)" if character == "<" else r"\b(?<=\w)"
        if character.isalnum():
            if character not in _SAME_ESCAPES or (in_set and character in "bB"):
                raise _wrong(self._pattern, f"unrecognized escape sequence \\{character}")
            if character == "b" and self._pattern.startswith("{", self._at):
                raise _unsupported(self._pattern, r"\b{...}")
            return f"\\{character}"
        if not character.isascii():
            raise _wrong(self._pattern, f"unrecognized escape sequence \\{character}")
        return re.escape(character)

    def _set(self) -> str:
        """Read a bracket expression after its opening bracket."""
        pattern = self._pattern
        parts = ["["]
        if pattern.startswith("^", self._at):
            parts.append("^")
            self._at += 1
        first = True
        while True:
            if self._at >= len(pattern):
                raise _wrong(pattern, "unclosed character class")
            character = pattern[self._at]
            if character == "]" and not first:
                self._at += 1
                return "".join(parts) + (f"{_NO_TEXT}]" if parts[1] == "^" else "]")
            if pattern.startswith(("&&", "--", "~~"), self._at) and not first:
                raise _unsupported(pattern, "a set operation")
            self._at += 1
            first = False
            parts.append(self._set_item(character))

    def _set_item(self, character: str) -> str:
        if character == "\\":
            return self._escaped(in_set=True)
        if character == "[":
            named = re.compile(r":(\^?)([a-z]+):\]").match(self._pattern, self._at)
            if named is None or named[1] or named[2] not in _POSIX:
                raise _unsupported(self._pattern, "a class in a class")
            self._at = named.end()
            return _POSIX[named[2]]
        return character if character == "-" else re.escape(character)

    def _open(self) -> None:
        pattern, at = self._pattern, self._at
        self._quantifiable = False
        flags = _FLAGS.match(pattern, at)
        named = re.compile(r"\?P?<([A-Za-z_][\w.\[\]]*)>").match(pattern, at)
        if flags and (flags[1] or flags[2] or flags[3] == ":"):
            self._at = flags.end()
            if "x" in flags[1] or "s" in flags[1] or "m" in flags[1]:
                raise _unsupported(pattern, "the flag m, s or x")
            self._parts.append(f"(?{flags[1]}{flags[2] or ''}:")
            if flags[3] == ":":
                self._closers.append(self._flag_groups)
                self._flag_groups = 0
            else:  # it holds to the end of the group around it
                self._flag_groups += 1
            return
        if named:
            self._at = named.end()
        elif pattern.startswith("?", at):
            what = "look-around" if pattern.startswith(("?=", "?!", "?<=", "?<!"), at) else "this kind of group"
            raise _wrong(pattern, f"{what} is not supported")
        self._parts.append("(?:")
        self._closers.append(self._flag_groups)
        self._flag_groups = 0

    def _close(self) -> None:
        if not self._closers:
            raise _wrong(self._pattern, "unopened group")
        self._parts.append(")" * (self._flag_groups + 1))
        self._flag_groups = self._closers.pop()
        self._quantifiable = True

    def _quantifier(self, character: str) -> None:
        if not self._quantifiable:
            raise _wrong(self._pattern, "repetition operator missing expression")
        part = character
        if character == "{":
            counted = _QUANTIFIER.match(self._pattern, self._at - 1)
            if counted is None:
                raise _wrong(self._pattern, "a counted repetition is not closed, or holds no number")
            self._at = counted.end()
            part = counted[0]
        if self._pattern.startswith("?", self._at):
            self._at += 1
            part += "?"
        if self._pattern.startswith(("+", "*", "?", "{"), self._at):
            raise _unsupported(self._pattern, "a repetition of a repetition")
        self._parts.append(part)

"""A shell script taken apart into its commands (tree-sitter-bash), quoting resolved.

One walk serves both readers. `Script.form` is WORDS when every node is on the allow-list and every byte between the
tokens is blank: then `commands` is all that the script does. Otherwise `commands` are the commands that could be seen
in it, which is enough to refuse and never enough to allow.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from .options import words

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_SCRIPT_BYTES = 131_072  # Linux passes no longer string to a program (MAX_ARG_STRLEN), so bash would never see it

_PLAIN_NODES = words(
    """
    program list pipeline command command_name word string string_content raw_string number concatenation
    variable_name && || ; | " ' =
    """
)
_HEREDOC_NODES = words(
    "redirected_statement heredoc_redirect heredoc_start heredoc_body heredoc_content heredoc_end << <<-"
)
_WORD_NODES = words("word string raw_string number concatenation")
_BLANK = b" \t\n"
# The grammar's scanner looks letters up in a C table of 256 and crashes on others (tree-sitter-bash issue 337). To the
# shell all bytes above ASCII are letters of a word, so the parser is given an `x` for each; places stay the same.
_ASCII = bytes(range(0x80)) + b"x" * 0x80
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# An unquoted word that means the same to every shell: no expansion, no brace, nothing that may be cut elsewhere.
_PLAIN_WORD = re.compile(r"(?:[\w./:=@%+,~^#*?\[\]!-]|\\[^\n])+")
_PLAIN_STRING = re.compile(r'"(?:[^"\\$`]|\\.)*"', re.DOTALL)
_WORD_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_STRING_ESCAPE = re.compile(r'\\([$`"\\\n])')
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command: its words and the assignments before them.

    `literal` is False when a word needs the shell to be known (`$x`, `$(...)`); such a word stands as its source text.
    `globs` is True when a word has an unquoted glob, and so may become many; `may_gain_options` when one of these could
    be an option.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    literal: bool = True
    globs: bool = False
    may_gain_options: bool = False


class Form(Enum):
    """How well a script was understood."""

    WORDS = "words"
    HEREDOC = "heredoc"  # one plain command that reads a literal here-document
    OTHER = "other"
    BROKEN = "broken"  # a syntax error, a control character, too long


@dataclass(frozen=True, slots=True)
class Script:
    """The commands of a script in source order."""

    commands: tuple[SimpleCommand, ...]
    form: Form


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    literal: bool = True
    glob_at: int = -1  # where the first unquoted glob character stands in `text`

    @property
    def may_be_option(self) -> bool:
        """True unless what stands before the glob decides what its expansions are: `src/*`, `--include=*.py`."""
        fixed = self.text[: max(self.glob_at, 0)]
        return self.glob_at == 0 or (fixed.startswith("-") and "=" not in fixed)


BROKEN = Script((), Form.BROKEN)


def parse_script(text: str) -> Script:
    """Take a script apart. Never raises, whatever the text."""
    try:
        source = text.encode()
    except UnicodeEncodeError:
        return BROKEN
    if len(source) > MAX_SCRIPT_BYTES:
        return BROKEN
    script = _Walk(source).script()
    if "\\\n" in text:
        # bash joins continued lines before it cuts words, tree-sitter does not: look at both readings.
        joined = _Walk(source.replace(b"\\\n", b"")).script()
        form = Form.BROKEN if joined.form is Form.BROKEN else Form.OTHER
        return Script((*script.commands, *joined.commands), form)
    if _CONTROL.search(text):
        return Script(script.commands, Form.BROKEN)
    return script


@cache
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Walk:
    """One pass over the tree of one script; iterative, so that no nesting is too deep."""

    __slots__ = ("commands", "end", "odd", "prefixes", "source")

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.commands: list[SimpleCommand] = []
        self.odd: set[str] = set()  # node kinds and faults outside the allow-list
        self.prefixes: set[int] = set()  # node ids of the assignments that stand before a command
        self.end = 0  # where the last token ended

    def script(self) -> Script:
        root = _parser().parse(self.source.translate(_ASCII)).root_node
        stack = [root]
        while stack:
            node = stack.pop()
            kind = node.type
            if kind == "command":
                self.commands.append(self._command(node))
            if kind not in _PLAIN_NODES and node.id not in self.prefixes:
                self.odd.add(kind)
            children = node.children
            if children:
                stack.extend(reversed(children))
            else:
                self._leaf(node)
        if self.source[self.end :].strip(_BLANK):
            self.odd.add("gap")
        return Script(tuple(self.commands), self._form(root.has_error))

    def _form(self, has_error: bool) -> Form:
        if has_error:
            return Form.BROKEN
        if not self.odd and self.commands:
            return Form.WORDS
        if self.odd <= _HEREDOC_NODES and len(self.commands) == 1:
            return Form.HEREDOC
        return Form.OTHER

    def _leaf(self, node: "Node") -> None:
        """What stands between two tokens must be blank: a carriage return or a backslash there means another cut."""
        start = node.start_byte
        if self.source[self.end : start].strip(_BLANK):
            self.odd.add("gap")
        self.end = max(self.end, node.end_byte)

    def _text(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def _command(self, node: "Node") -> SimpleCommand:
        found: list[_Word] = []
        env: list[tuple[str, _Word]] = []
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment":
                self.prefixes.add(child.id)
                env.append(self._assignment(child))
            elif kind == "command_name":
                found.append(self._name(child))
            elif child.is_named and not kind.endswith("_redirect"):
                found.append(self._word(child))
        literal = all(word.literal for word in found)
        if not (literal and all(value.literal for _, value in env)):
            self.odd.add("word")
        return SimpleCommand(
            tuple([word.text for word in found]),
            tuple([(name, value.text) for name, value in env]),
            literal,
            any(word.glob_at >= 0 for word in found),
            any(word.may_be_option for word in found),
        )

    def _name(self, node: "Node") -> _Word:
        """A name that the shell would first have to look up (`./b*`) is not literal."""
        name = self._word(node.children[0]) if node.children else _Word(self._text(node), False)
        return name if name.glob_at < 0 else _Word(name.text, False)

    def _assignment(self, node: "Node") -> tuple[str, _Word]:
        name, *rest = node.children
        label = self._text(name)
        if name.type == "variable_name" and label.isascii() and rest and rest[0].type == "=" and len(rest) <= 2:
            return label, self._word(rest[1]) if len(rest) == 2 else _Word("")
        return label, _Word(self._text(node), False)

    def _word(self, node: "Node") -> _Word:
        kind, text = node.type, self._text(node)
        if kind in ("word", "number"):
            return self._bare(text)
        if kind == "raw_string":
            return _Word(text[1:-1], text.count("'") == 2)
        if kind == "string":
            if _PLAIN_STRING.fullmatch(text):
                return _Word(_STRING_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], text[1:-1]))
            return _Word(text, False)
        if kind == "concatenation":
            return self._joined(node, text)
        return _Word(text, False)

    @staticmethod
    def _bare(text: str) -> _Word:
        if not _PLAIN_WORD.fullmatch(text):
            return _Word(text.replace("\\", "") if "$" not in text else text, False)
        if "\\" not in text:
            glob = _GLOB.search(text)
            return _Word(text, True, glob.start() if glob else -1)
        glob = _GLOB.search(_WORD_ESCAPE.sub("_", text))
        return _Word(_WORD_ESCAPE.sub(r"\1", text), True, glob.start() if glob else -1)

    def _joined(self, node: "Node", text: str) -> _Word:
        parts: list[_Word] = []
        end = node.start_byte
        for child in node.children:
            if child.type not in _WORD_NODES or child.start_byte != end:
                return _Word(text, False)
            end = child.end_byte
            parts.append(self._word(child))
        joined, glob_at = "", -1
        for part in parts:
            if glob_at < 0 and part.glob_at >= 0:
                glob_at = len(joined) + part.glob_at
            joined += part.text
        return _Word(joined, all(part.literal for part in parts), glob_at)

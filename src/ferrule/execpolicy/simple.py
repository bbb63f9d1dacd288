"""Read simple commands: assignments, words, redirections, here-documents, aliases."""

import re
from abc import abstractmethod
from collections.abc import Mapping

import msgspec

from ferrule.execpolicy.expansions import Braces, Glob, Splitting, Vague
from ferrule.execpolicy.options import words
from ferrule.execpolicy.script import InputFile, SimpleCommand
from ferrule.execpolicy.words import Unreadable, WordReader

MAX_ALIASED_TEXT = 262_144  # characters of a script with its aliases in place
MAX_VALUES = 50  # assignments whose value is looked for; each costs a search of the script
MAX_ALIASED = 200  # aliases in one script; each is put in its place
_BLANKS = re.compile(r"(?:[ \t]+|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:(\+?=)|(\[))", re.ASCII)
_REDIRECT = re.compile(
    r"(?P<fd>\d+|\{[A-Za-z_]\w*\})?(?P<kind><<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\())|(?P<both>&>>|&>)", re.ASCII
)
_PLAIN_TOKEN = re.compile(r"[\w./:@%+,^-][\w./:=@%+,^-]*(?=[ \t\n;|]|$)")
RESERVED_WORDS = words("if then elif else fi while until for select do done case esac function time coproc")
_PLAIN_COMMAND = re.compile(
    r"[\w./:@%+,^-][\w./:=@%+,^-]*+(?:[ \t]++[\w./:@%+,^=-]++)*+(?=[ \t]*+(?:[\n;|)]|&[&\s]|$))"
)
# Variables that the shell itself neither sets nor reads, values that are words, and what may set a variable unseen.
_ORDINARY = re.compile(
    r"(?!BASH|IFS$|PATH$|_|[A-Z]*(RANDOM|SECONDS|PID|ID|LINENO|OPT|POSIX|EPOCH|DIRSTACK|GROUPS|HIST))\w+"
)
_VALUE = re.compile(r"[\w./@%+:,-]+(?: [\w./@%+:,-]+)*", re.ASCII)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_WRITERS = re.compile(
    r"\b(IFS|eval|source|read|mapfile|readarray|getopts|declare|typeset|local|let|printf\s+-v|unset|set|alias|trap)\b"
    r"|(^|[\s;&|(])\.\s|\$\{!|:?=\}"
)
_ALIAS = re.compile(r"[^\s'\"\\$`=;&|<>()/]+(?=[\s;&|<>()]|$)")
STATE = words("declare export local readonly typeset unset [")  # they change or test what other commands stand on
# Of these some words are evaluated: names with a subscript.
_DECLARING = words("declare export getopts let local mapfile printf read readarray readonly test typeset unset wait [")
_LOOKED_AT = STATE | _DECLARING
# Assignments to these decide what other words run.
_DECIDING = words("BASH_ALIASES BASH_CMDS BASH_ENV ENV PS0 PS4 PROMPT_COMMAND")
NOTHING = SimpleCommand(())


class SimpleReader(WordReader):
    """Reads simple commands into `commands`, in the order of the script; a subclass adds the rest of the grammar."""

    def __init__(self, text: str, parent: "SimpleReader | None", aliases: Mapping[str, str] | None) -> None:
        super().__init__(text, parent.depth if parent else 0)
        self.commands: list[SimpleCommand] = parent.commands if parent else []
        self.functions: set[str] = parent.functions if parent else set()
        self.aliases = aliases
        self.heredocs: list[tuple[int, str, bool, bool]] = []  # command, delimiter, literal, without tabs
        self.documents = 0
        self.values: dict[str, str] = {}  # of variables, where they are known
        self.looked_for = 0
        self.in_condition = False  # what is read now may not be executed
        self.writes: list[tuple[str, int]] = parent.writes if parent else []  # files, and which command writes them
        self.decides = False  # a variable is set by which shells start more
        self.active_aliases: dict[str, int] = {}  # where each one's text ends, in which it is a plain word
        self.alias_due = -1
        self.expanded = 0

    @abstractmethod
    def function_body(self) -> None:
        """Read the command that a function's name is given."""

    @abstractmethod
    def child(self, text: str) -> "SimpleReader":
        """Return a reader of another text whose commands run where this one's do."""

    def merge(self, child: "SimpleReader") -> None:
        """Take over what a child noted."""
        self.risky, self.prompts = self.risky or child.risky, self.prompts or child.prompts
        self.hides, self.hides_index = self.hides or child.hides, self.hides_index or child.hides_index
        self.bashism, self.decides = self.bashism or child.bashism, self.decides or child.decides

    def skip_spaces(self) -> None:
        found = _BLANKS.match(self.text, self.at)
        if found is not None:
            self.odd = self.odd or "\n" in found[0]
            self.at = found.end()

    def skip_blanks(self) -> None:
        """Skip spaces and a comment."""
        self.skip_spaces()
        if self.peek() == "#":
            self.odd = True
            comment = _COMMENT.match(self.text, self.at)
            self.at = comment.end() if comment else self.at

    def skip_lines(self) -> None:
        """Skip blanks, comments and line breaks; read the here-documents that follow a line break."""
        self.skip_blanks()
        while self.peek() == "\n":
            self.at += 1
            for document in self.heredocs:
                self._document(*document)
            self.heredocs.clear()
            self.skip_blanks()

    def simple(self) -> bool:
        """Read words, assignments and redirections. Returns True unless it defines a function or only assigns."""
        quick = None if self.aliases else _PLAIN_COMMAND.match(self.text, self.at)
        if quick is not None and self._takes(quick):
            return True
        slot = len(self.commands)
        self.commands.append(NOTHING)
        argv: list[str] = []
        env: list[tuple[str, str]] = []
        start = self.at
        while True:
            self.skip_blanks()
            token = _PLAIN_TOKEN.match(self.text, self.at)
            if token is not None and (argv or "=" not in token[0]) and not self._is_alias_place(argv):
                argv.append(token[0])
                self.at = token.end()
                continue
            char = self.peek()
            if char in ("", "\n", ";", "|", ")") or (char == "&" and self.peek(1) != ">"):
                break
            if char in "<>&0123456789{" and (found := _REDIRECT.match(self.text, self.at)) is not None:
                self._redirect(found, slot)
            elif char == "(":
                if len(argv) != 1 or env:
                    raise Unreadable
                self.commands[slot] = NOTHING
                self.functions.add(argv[0])
                self.empty_parentheses()
                self.function_body()
                return False
            elif not argv and (found := _ASSIGNMENT.match(self.text, self.at)) is not None and self._assigns(found):
                env.append(self._assignment(found))
            elif self._is_alias_place(argv) and self.expand_alias():
                continue
            else:
                self._append_word(argv)
        if not argv and self.at == start:
            raise Unreadable
        self.commands[slot] = self._made(slot, argv, env)
        if not argv and not self.depth and not self.in_condition:
            self._remember(env)
        return bool(argv)

    def _remember(self, env: list[tuple[str, str]]) -> None:
        """Remember values that hold from here on: always assigned, and nowhere else in the script."""
        self.skip_blanks()
        if self.peek() == "|" or (self.peek() == "&" and self.peek(1) != "&"):
            return  # another shell assigns them
        for name, value in env[: MAX_VALUES - self.looked_for]:
            self.looked_for += 1
            if not isinstance(value, Vague) and _ORDINARY.fullmatch(name) and _VALUE.fullmatch(value):
                uses = len(re.findall(rf"\$(?:{name}\b|\{{{name}\}})", self.text))
                if uses + 1 == len(re.findall(rf"\b{name}\b", self.text)) and not _WRITERS.search(self.text):
                    self.values[name] = value

    def _looked_up(self, word: str) -> list[str]:
        """Return the words that a variable with a known value stands for."""
        found = _VARIABLE.fullmatch(word)
        value = self.values.get(found[1] or found[2]) if found else None
        if value is None:
            return [word]
        self.odd = True
        return value.split() if isinstance(word, Splitting) else [value]

    def _takes(self, found: re.Match[str]) -> bool:
        """Take a command of plain words, as most are, without reading it word by word."""
        argv = tuple(found[0].split())
        if argv[0] in _LOOKED_AT or "=" in argv[0]:
            return False
        self.commands.append(SimpleCommand(argv))
        self.at = found.end()
        return True

    def empty_parentheses(self) -> None:
        self.at += 1
        self.skip_blanks()
        if self.peek() != ")":
            raise Unreadable
        self.at += 1

    def _append_word(self, argv: list[str]) -> None:
        before = self.at
        word = self.word()
        if not argv and self._shells_differ(word):
            raise Unreadable
        if self.peek() == "(" and _ASSIGNMENT.fullmatch(self.text, before, self.at):
            self._array()
            word = Vague(self.text[before : self.at])
        if isinstance(word, Braces):
            argv.extend(word.expanded)
        elif self.values and isinstance(word, Vague):
            argv.extend(self._looked_up(word))
        else:
            argv.append(word)

    def _shells_differ(self, name: str) -> bool:
        """Return True for reserved words and assignments on two lines, and for zsh's `=program`, `é=1`."""
        if self.joined and (name in RESERVED_WORDS or "=" in name):
            return True
        return name.startswith("=") or ("=" in name and not name.partition("=")[0].isascii())

    def _made(self, slot: int, argv: list[str], env: list[tuple[str, str]]) -> SimpleCommand:
        stdin = self.commands[slot].stdin
        if not argv:
            self.odd = True
            return SimpleCommand((), tuple(env), stdin=stdin)
        if argv[0] == "[":
            argv[0] = "["  # alone it is no glob
        elif isinstance(argv[0], Glob):
            argv[0] = Splitting(argv[0])
        if argv[0] in _DECLARING:
            self.risky = True
            for word in argv:
                self._decides(word.partition("=")[0])
        vague = any(isinstance(word, Vague) for word in argv)
        globs = [word for word in argv if isinstance(word, Glob)]
        if vague or argv[0] in STATE or any(isinstance(value, Vague) for _, value in env):
            self.odd = True
        return SimpleCommand(
            tuple(argv), tuple(env), not vague, bool(globs), any(word.may_be_option for word in globs), stdin
        )

    def _decides(self, name: str) -> None:
        if name in _DECIDING:
            self.odd = self.decides = True

    def _assigns(self, found: re.Match[str]) -> bool:
        """Return True for `x=`, `x+=` and `x[i]=`, having read the subscript."""
        if found[3] is None:
            return True
        self.odd = self.bashism = True
        mark = self.mark()
        self.at = found.end()
        try:
            self._subscript()
        except Unreadable:
            self.restart(mark)
            return False
        if self.text.startswith(("=", "+="), self.at):
            return True
        self.restart(mark)
        return False

    def _subscript(self) -> None:
        self._arithmetic("]")

    def _assignment(self, found: re.Match[str]) -> tuple[str, str]:
        name = found[1]
        if found[3] is not None:
            found_equals = self.text.index("=", self.at)
            self.at = found_equals + 1
        else:
            self.at = found.end()
        self.odd = self.odd or found[2] != "="
        self._decides(name)
        char = self.peek()
        if char == "(":
            start = self.at
            self._array()
            return name, Vague(self.text[start : self.at])
        if char in ("", " ", "\t", "\n", ";", "|", "&", ")") or (char in "<>" and self.peek(1) != "("):
            return name, ""
        value = self.word()
        return name, Vague(value) if found[2] != "=" else value

    def _array(self) -> None:
        self.odd = self.bashism = True
        self.at += 1
        while True:
            self.skip_lines()
            if self.peek() == ")":
                self.at += 1
                return
            if self.peek() == "[":
                self.risky = True
            self.word()

    def redirects(self) -> None:
        """Read the redirections after a compound command."""
        while True:
            self.skip_blanks()
            found = _REDIRECT.match(self.text, self.at)
            if found is None:
                return
            self._redirect(found, None)

    def _redirect(self, found: re.Match[str], slot: int | None) -> None:
        self.at = found.end()
        self.skip_blanks()
        kind, fd = found["kind"] or found["both"], found["fd"] or ""
        if kind in ("<<", "<<-"):
            self._begin_document(slot if fd in ("", "0") else None, without_tabs=kind == "<<-")
            return
        target = self.word()
        if found["both"] or kind == "<<<":
            self.bashism = True
        if not _is_harmless(kind, fd, target):
            self.odd = True
            if kind.startswith(("<>", ">", "&>")):
                self.writes.append((target, -1 if slot is None else slot))
        if slot is not None and fd in ("", "0") and kind.startswith("<"):
            self.feed(slot, _input(kind, target))

    def feed(self, slot: int, text: str | None) -> None:
        self.commands[slot] = msgspec.structs.replace(self.commands[slot], stdin=text)

    # Here-documents.

    def _begin_document(self, slot: int | None, *, without_tabs: bool) -> None:
        start = self.at
        delimiter = self.word()
        source = self.text[start : self.at]
        if isinstance(delimiter, Vague) or "\n" in source:
            raise Unreadable
        literal = any(char in source for char in "'\"\\")
        self.heredocs.append((-1 if slot is None else slot, str(delimiter), literal, without_tabs))
        self.documents += 1

    def _document(self, slot: int, delimiter: str, literal: bool, without_tabs: bool) -> None:
        lines: list[str] = []
        while True:
            if self.at >= self.end:
                if self.depth:
                    raise Unreadable
                self.odd = True
                break
            line = self._line(literal=literal)
            if without_tabs:
                line = line.lstrip("\t")
            if line == delimiter:
                break
            lines.append(line + "\n")
        self._read_document(slot, "".join(lines), literal=literal)

    def _line(self, *, literal: bool) -> str:
        """Return the next line; continued lines are one if the text is expanded."""
        found = ""
        while True:
            end = self.text.find("\n", self.at)
            end = self.end if end < 0 else end
            part = self.text[self.at : end]
            self.at = min(end + 1, self.end)
            slashes = len(part) - len(part.rstrip("\\"))
            if literal or slashes % 2 == 0 or self.at >= self.end:
                return found + part
            found += part[:-1]

    def _read_document(self, slot: int, text: str, *, literal: bool) -> None:
        if literal:
            self.quoted(text)
        elif "$" in text or "`" in text or "\\" in text:
            text = self._expanded(text)
        if isinstance(text, Vague):
            self.odd = True
        if slot >= 0:
            self.feed(slot, text)

    def _expanded(self, text: str) -> str:
        child = self.child(text)
        found = child.quoted_text()
        self.merge(child)
        return found

    def end_documents(self) -> None:
        if self.depth:
            raise Unreadable
        for document in self.heredocs:
            self._document(*document)
        self.heredocs.clear()

    # Aliases.

    def _is_alias_place(self, argv: list[str]) -> bool:
        """Return True if the next word may be an alias: the first, or one after an alias that ends with a blank."""
        if not self.aliases:
            return False
        return not argv or 0 <= self.alias_due <= self.at

    def expand_alias(self) -> bool:
        """Replace the word by its alias's text and go on reading there."""
        if self.alias_due <= self.at:
            self.alias_due = -1
        found = _ALIAS.match(self.text, self.at)
        value = self.aliases.get(found[0]) if found and self.aliases else None
        if found is None or value is None or self.at < self.active_aliases.get(found[0], 0):
            return False
        behind = self.at + len(value)
        grown = len(value) - len(found[0])
        self.active_aliases = {name: end + grown for name, end in self.active_aliases.items() if end > self.at}
        self.active_aliases[found[0]] = behind
        self.text = self.text[: self.at] + value + self.text[found.end() :]
        self.end = len(self.text)
        self.expanded += 1
        if self.expanded > MAX_ALIASED or self.end > MAX_ALIASED_TEXT:
            raise Unreadable
        if value.endswith((" ", "\t")):
            self.alias_due = behind
        return True


_DESCRIPTOR = re.compile(r"\d+")


def _is_harmless(kind: str, fd: str, target: str) -> bool:
    """Return True for a redirection that does not change the command: to /dev/null or to another descriptor."""
    if isinstance(target, Vague | Glob) or fd.startswith("{"):
        return False
    if kind in (">&", "<&") and _DESCRIPTOR.fullmatch(target):
        return True
    return target == "/dev/null" and kind in (">", ">>", ">|", "&>", "&>>", "<")


def _input(kind: str, target: str) -> str | None:
    if kind == "<<<":
        return Vague(target + "\n") if isinstance(target, Vague) else target + "\n"
    if kind == "<" and not isinstance(target, Vague | Glob):
        return InputFile(target)
    return None

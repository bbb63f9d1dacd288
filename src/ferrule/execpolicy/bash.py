"""Take a shell script apart into its commands, with quoting resolved: the grammar of bash, read as bash reads it.

`Script.form` is WORDS if the script is nothing but plain words joined by `&&`, `||`, `;`, `|` and line breaks: then
`commands` are all it does. Otherwise they are the commands found in it, which is enough to refuse and never enough to
allow; if the form is BROKEN, some may be missing.
"""

import posixpath
import re
from collections.abc import Mapping

import msgspec

from ferrule.execpolicy.expansions import Vague
from ferrule.execpolicy.options import words
from ferrule.execpolicy.script import BROKEN, Form, InputFile, Script, SimpleCommand, printed
from ferrule.execpolicy.simple import RESERVED_WORDS, STATE, SimpleReader
from ferrule.execpolicy.words import Unreadable

MAX_SCRIPT_BYTES = 131_072  # Linux passes no longer string to a program (MAX_ARG_STRLEN), so bash would never see it
MAX_RESUMPTIONS = 100  # behind a fault the reading goes on at the next command, to see what it can; this often at most
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ONE_COMMAND = re.compile(r"[A-Za-z0-9_./-]+(?: [A-Za-z0-9_./:@%+,-]+)*", re.ASCII)  # read the quick way
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|while|until|for|select|do|done|case|esac|function|time|coproc|\{|\}|\[\[|!)"
    r"(?=[\s;&|<>()]|$)"
)
_OPENERS = words("if while until for select case function { [[")
_RESUME = re.compile(r"[\n;|&({`]|\$\(")
_PARENTHESES = re.compile(r"\([ \t]*\)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def parse_script(text: str, aliases: Mapping[str, str] | None = None) -> Script:
    """Take a script apart, with these aliases in place if there are any. Never raises, whatever the text."""
    try:
        source = text.encode()
    except UnicodeEncodeError:
        return BROKEN
    if len(source) > MAX_SCRIPT_BYTES:
        return BROKEN
    if _ONE_COMMAND.fullmatch(text) and not aliases:
        argv = tuple(text.split())
        if argv[0] not in STATE and argv[0] not in RESERVED_WORDS:
            return Script((SimpleCommand(argv),), Form.WORDS)
    script = _Parser(text, aliases=aliases).script()
    return msgspec.structs.replace(script, form=Form.BROKEN) if _CONTROL.search(text) else script


class _Parser(SimpleReader):
    """A recursive descent over one script. Raises `Unreadable` where it cannot go on; what was read before stays."""

    def __init__(self, text: str, parent: "_Parser | None" = None, aliases: Mapping[str, str] | None = None) -> None:
        super().__init__(text, parent, aliases)
        self.pipes: list[tuple[int, int]] = parent.pipes if parent else []  # of simple commands, by their places

    def script(self) -> Script:
        broken = False
        for _ in range(MAX_RESUMPTIONS):
            try:
                self._list("")
            except Unreadable:
                broken = True
                self._resume()
            if self.at >= self.end:
                break
        self._connect()
        return Script(
            tuple([command for command in self.commands if command.argv]),
            self._form(broken),
            not self.bashism,
            self.decides or (self.risky and self.hides_index) or (self.prompts and self.hides),
            frozenset(self.functions),
            self._files(),
        )

    def _files(self) -> dict[str, str | None]:
        """Map each file to the text written into it, None if unknown; `*/name` stands for an unknown folder."""
        found: dict[str, str | None] = {}
        texts = [(path, printed(self.commands[slot]) if slot >= 0 else None) for path, slot in self.writes]
        for command in self.commands:
            if command.argv[:1] == ("tee",):
                text = None if isinstance(command.stdin, InputFile) else command.stdin
                texts += [(path, text) for path in command.argv[1:] if not path.startswith("-")]
        for name, text in texts:
            path = posixpath.normpath(f"*/{posixpath.basename(name)}" if isinstance(name, Vague) else name)
            before = found.get(path, "")
            found[path] = None if text is None or before is None or isinstance(text, Vague) else before + text
        return found

    def _connect(self) -> None:
        """Feed what one command of a pipeline is known to write to the next."""
        for producer, consumer in self.pipes:
            text = printed(self.commands[producer]) if self.commands[consumer].stdin is None else None
            if text is not None:
                self.feed(consumer, text)

    def _resume(self) -> None:
        found = _RESUME.search(self.text, min(self.at, self.end))
        self.at = found.end() if found else self.end
        self.depth = 0
        self.in_condition = True
        self.heredocs.clear()

    def _form(self, broken: bool) -> Form:
        if broken:
            return Form.BROKEN
        if self.odd or not self.commands:
            return Form.OTHER
        if not self.documents:
            return Form.WORDS
        return Form.HEREDOC if self.documents == len(self.commands) == 1 else Form.OTHER

    # What WordReader asks for.

    def mark(self) -> tuple[int, int]:
        return self.at, len(self.commands)

    def restart(self, mark: tuple[int, int]) -> None:
        self.at = mark[0]
        del self.commands[mark[1] :]
        self.pipes[:] = [pipe for pipe in self.pipes if max(pipe) < mark[1]]

    def commands_until(self, closer: str) -> None:
        self.deeper()
        outer, self.heredocs = self.heredocs, []
        start = self.at
        if self._list(closer) != closer or self.heredocs:
            raise Unreadable
        if outer and "\n" in self.text[start : self.at]:
            raise Unreadable  # which of the two reads the lines here, hangs on the shell
        self.heredocs = outer
        self.depth -= 1

    def commands_of(self, text: str) -> None:
        child = self.child(text)
        child._list("")
        self.merge(child)

    def child(self, text: str) -> "_Parser":
        child = _Parser(text, self, self.aliases)
        child.deeper()
        return child

    # Lists and pipelines.

    def _list(self, closers: str) -> str:
        """Read commands up to one of the closing tokens (separated by blanks). Returns the token, "" at the end."""
        while True:
            self.skip_lines()
            if self.at >= self.end:
                if self.heredocs:
                    self.end_documents()
                return ""
            if closers and (closer := self._closer(closers)):
                return closer
            self._and_or()
            self.skip_blanks()
            char = self.peek()
            if char == ";" and self.peek(1) not in (";", "&"):
                self.at += 1
            elif char == "&":
                self.odd = True
                self.at += 1
            elif (
                char not in ("\n", ")", ";", "")
                or (char == ")" and ")" not in closers)
                or (char == ";" and ";;" not in closers)
            ):
                raise Unreadable

    def _closer(self, closers: str) -> str:
        for closer in closers.split():
            if self.text.startswith(closer, self.at):
                end = self.at + len(closer)
                if not closer[0].isalpha() and closer != "}":
                    self.at = end
                    return closer
                if end >= self.end or self.text[end] in " \t\n;&|<>()":
                    self.at = end
                    return closer
        return ""

    def _and_or(self) -> None:
        outer = self.in_condition
        while True:
            self._pipeline()
            self.skip_blanks()
            if not self.text.startswith(("&&", "||"), self.at):
                self.in_condition = outer
                return
            self.in_condition = True
            self.at += 2
            self.skip_lines()

    def _pipeline(self) -> None:
        producer: int | None = None
        outer = self.in_condition
        while True:
            start = len(self.commands)
            simple = self._prefixed()
            if simple and producer is not None:
                self.pipes.append((producer, start))
            self.skip_blanks()
            if self.peek() != "|" or self.peek(1) == "|":
                self.in_condition = outer
                return
            self.in_condition = True
            self.at += 1
            if self.peek() == "&":
                self.odd = self.bashism = True
                self.at += 1
            self.skip_lines()
            producer = start if simple else None

    def _prefixed(self) -> bool:
        """Read a command after `!`, `time` or `coproc`. Returns True for a simple command."""
        while True:
            while self.aliases and self.expand_alias():
                pass
            found = _RESERVED.match(self.text, self.at)
            word = found[0] if found else ""
            if found is None:
                break
            if word == "!":
                self.odd = True
                self.at = found.end()
                self.skip_blanks()
                continue
            if word == "time" and self._times_a_compound(found.end()):
                continue
            if word == "coproc":
                self._coproc(found.end())
                continue
            break
        return self._command()

    def _times_a_compound(self, at: int) -> bool:
        """Skip the word in `time { ...; }`. Before a simple command it is left to the table of wrappers."""
        mark = self.at
        self.at = at
        self.skip_blanks()
        for option in ("-p", "--"):
            if self.text.startswith(option, self.at) and self.peek(2) in ("", " ", "\t", "\n"):
                self.at += 2
                self.skip_blanks()
        if self.peek() == "(" or _RESERVED.match(self.text, self.at):
            self.odd = self.bashism = True
            return True
        self.at = mark
        return False

    def _coproc(self, at: int) -> None:
        """Skip `coproc` and, before a compound command, its name."""
        self.odd = self.bashism = True
        self.at = at
        self.skip_blanks()
        name = _NAME.match(self.text, self.at)
        if name is None or _RESERVED.match(self.text, self.at):
            return
        mark = self.at
        self.at = name.end()
        self.skip_blanks()
        if self.at == name.end() or not (self.peek() == "(" or self._opens()):
            self.at = mark

    def _opens(self) -> bool:
        found = _RESERVED.match(self.text, self.at)
        return found is not None and found[0] in _OPENERS

    # Compound commands.

    def _command(self) -> bool:
        if self.peek() == "(":
            self._parenthesis()
            self.redirects()
            return False
        found = _RESERVED.match(self.text, self.at)
        if found is None or found[0] == "time":
            return self.simple()
        self.odd = True
        read = _COMPOUNDS.get(found[0])
        if read is None:
            raise Unreadable
        self.at = found.end()
        self.deeper()
        read(self)
        self.depth -= 1
        if found[0] != "function":
            self.redirects()
        return False

    def _parenthesis(self) -> None:
        self.odd = True
        if self.peek(1) == "(":
            self.bashism = True
            if self.arithmetic(self.at):
                self.risky = True
                return
        self.at += 1
        self.deeper()
        self._must(")")
        self.depth -= 1

    def _must(self, *closers: str) -> str:
        found = self._list(" ".join(closers))
        if found not in closers:
            raise Unreadable
        return found

    def _expect(self, *tokens: str) -> str:
        self.skip_lines()
        found = self._closer(" ".join(tokens))
        if not found:
            raise Unreadable
        return found

    def _brace(self) -> None:
        self._must("}")

    def _if(self) -> None:
        self._must("then")
        while (found := self._must("elif", "else", "fi")) != "fi":
            if found == "elif":
                self._must("then")

    def _while(self) -> None:
        self._must("do")
        self._must("done")

    def _body(self) -> None:
        self._must("done" if self._expect("do", "{") == "do" else "}")

    def _for(self) -> None:
        self.skip_blanks()
        if self.text.startswith("((", self.at):
            self.bashism = self.risky = True
            if not self.arithmetic(self.at):
                raise Unreadable
        else:
            self._name()
            self.skip_lines()
            if self._closer("in"):
                self._words()
        self.skip_blanks()
        if self.peek() == ";":
            self.at += 1
        self._body()

    def _name(self) -> None:
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise Unreadable
        self.at = name.end()

    def _words(self) -> None:
        while True:
            self.skip_blanks()
            if self.peek() in ("", "\n", ";"):
                return
            self.word()

    def _case(self) -> None:
        self.skip_blanks()
        self.word()
        self._expect("in")
        while True:
            self.skip_lines()
            if self._closer("esac"):
                return
            if self.peek() == "(":
                self.at += 1
            self._patterns()
            if self._must(";;&", ";;", ";&", "esac") == "esac":
                return

    def _patterns(self) -> None:
        while True:
            self.skip_blanks()
            self.word()
            self.skip_blanks()
            char = self.peek()
            self.at += 1
            if char == ")":
                return
            if char != "|":
                raise Unreadable

    def _test(self) -> None:
        """Read `[[ ... ]]`. Only its end, and the expansions in its words, matter."""
        self.bashism = self.risky = True
        while True:
            self.skip_spaces()
            char = self.peek()
            if self.text.startswith("]]", self.at) and self.peek(2) in (
                "",
                " ",
                "\t",
                "\n",
                ";",
                "&",
                "|",
                ")",
                "<",
                ">",
            ):
                self.at += 2
                return
            if not char or char == "#":
                raise Unreadable
            if (char in "\n&|<>!" and not (char in "<>" and self.peek(1) == "(")) or char in "();":
                self.at += 1
            else:
                self.word(pattern=True)

    def _function(self) -> None:
        self.skip_blanks()
        self.bashism = True
        self.functions.add(self.word())
        self.skip_blanks()
        if _PARENTHESES.match(self.text, self.at):
            self.empty_parentheses()
        self.function_body()

    def function_body(self) -> None:
        self.odd = True
        self.skip_lines()
        self.deeper()
        self._command()
        self.depth -= 1


_COMPOUNDS = {
    "{": _Parser._brace,
    "if": _Parser._if,
    "while": _Parser._while,
    "until": _Parser._while,
    "for": _Parser._for,
    "select": _Parser._for,
    "case": _Parser._case,
    "[[": _Parser._test,
    "function": _Parser._function,
}

"""Random scripts for bash that start marker programs through every construct and wrapper that can hold one."""

import random
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

PROGRAMS = tuple(f"mark{number}" for number in range(12))
MAX_DEPTH = 4


@dataclass
class Generator:
    """Makes one script. `dynamic`: also constructs whose programs are known only when they run."""

    random: random.Random
    available: frozenset[str] = frozenset()
    dynamic: bool = False
    depth: int = 0
    names: int = 0
    functions: list[str] = field(default_factory=list)

    def script(self) -> str:
        lines = [self.statement() for _ in range(self.random.randint(1, 3))]
        return "\n".join(lines) + self.pick("", "\n", "  # the end\n")

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    # Words.

    def quoted(self, text: str) -> str:
        """One word that says `text`."""
        kind = self.random.randrange(5)
        if kind == 0 and "\0" not in text:
            return "$'" + "".join(self._ansi(char) for char in text) + "'"
        if kind == 1:
            return '"' + "".join("\\" + char if char in '"\\$`' else char for char in text) + '"'
        if kind == 2 and "'" not in text:
            return f"'{text}'"
        return shlex.quote(text)

    def _ansi(self, char: str) -> str:
        if char in "'\\":
            return "\\" + char
        if char == "\n":
            return "\\n"
        if char.isascii() and self.random.random() < 0.2:
            return self.pick(f"\\x{ord(char):02x}", f"\\{ord(char):03o}", f"\\u{ord(char):04x}")
        return char

    def spelled(self, name: str) -> str:
        """A program's name, as somebody hides it."""
        place = self.random.randrange(1, len(name))
        return self.pick(
            name,
            name,
            name,
            f"'{name}'",
            f'"{name}"',
            f"{name[:place]}''{name[place:]}",
            f"{name[:place]}\\{name[place]}{name[place + 1 :]}",
            f'{name[:place]}"{name[place:]}"',
            self.quoted(name),
            f'$"{name}"',
            f"{name[:place]}\\\n{name[place:]}",
        )

    def program(self) -> str:
        if self.functions and self.random.random() < 0.1:
            return self.random.choice(self.functions)
        name = self.random.choice(PROGRAMS)
        if self.dynamic and self.random.random() < 0.3:
            return self.random.choice(DYNAMIC_NAMES)(self, name)
        return self.spelled(name)

    def argument(self) -> str:
        kind = self.random.random()
        if kind < 0.6 or self.depth >= MAX_DEPTH:
            return self.random.choice(WORDS)
        inner = self.nested
        return self.random.choice(
            (
                lambda: f"$({inner()})",
                lambda: f'"$({inner()})"',
                lambda: f"<({inner()})",
                lambda: f"${{unset:-$({inner()})}}",
                lambda: f'"a ${{unset:-$({inner()})}} b"',
                lambda: f"$(( 1 + $({_one(inner())} | wc -l) ))",
                self.backticks,
                lambda: f'"x{self.backticks()}"',
                lambda: f"a$({inner()})b",
            )
        )()

    def backticks(self) -> str:
        text = self.nested()
        return "`" + "".join("\\" + char if char in "`\\$" else char for char in text) + "`"

    # Commands.

    def nested(self) -> str:
        self.depth += 1
        try:
            return self.statement()
        finally:
            self.depth -= 1

    def simple(self) -> str:
        parts = [self.pick("", "", "", "A=1 ", "A='b c' B= ", "2>/dev/null ")]
        parts.append(self.program())
        parts += [" " + self.argument() for _ in range(self.random.randint(0, 2))]
        parts.append(self.pick("", "", "", " >/dev/null", " 2>&1", " > out", " < /dev/null", " &>/dev/null", " >&2"))
        return "".join(parts)

    def statement(self) -> str:
        if self.depth >= MAX_DEPTH or self.random.random() < 0.35:
            return self.simple()
        forms = FORMS + DYNAMIC_FORMS if self.dynamic else FORMS
        return self.random.choice(forms)(self)

    def text_for_a_shell(self) -> str:
        """A script that stands in a script."""
        functions, self.functions = self.functions, []
        text = self.nested()
        self.functions = functions
        return text

    def document(self, command: str, *, rest: str = "") -> str:
        text = self.text_for_a_shell()
        end = f"END{self.name()}"
        if "\\\n" in text or self.random.random() < 0.7 or any(char in text for char in "$`\\"):
            return f"{command} <<{self.pick(chr(39) + end + chr(39), chr(92) + end)}{rest}\n{text}\n{end}\n"
        return f"{command} <<{end}{rest}\n{text}\n{end}\n"


def _group(make: Generator) -> str:
    inner = make.nested()
    end = "" if inner.endswith("\n") else ";"
    return "{ " + inner + end + " }" + make.pick("", " 2>&1", " > out")


def _subshell(make: Generator) -> str:
    return f"({make.pick('', ' ')}{make.nested()}\n)"


def _pipe(make: Generator) -> str:
    left, right = make.nested(), make.nested()
    return f"{_one(left)} {make.pick('|', '|&')} {_one(right)}"


def _one(text: str) -> str:
    """A text as one command."""
    return "{ " + text + "\n}"


def _and_or(make: Generator) -> str:
    return f"{_one(make.nested())} {make.pick('&&', '||')} {make.pick('', chr(10))}{_one(make.nested())}"


def _list(make: Generator) -> str:
    return f"{_one(make.nested())}{make.pick('; ', ' & ', chr(10))}{_one(make.nested())}"


def _if(make: Generator) -> str:
    return f"if {make.nested()}\nthen {make.nested()}\nelif {make.nested()}\nthen :; else {make.nested()}\nfi"


def _for(make: Generator) -> str:
    return f"for {make.name()} in a {make.argument()}; do {make.nested()}\nbreak; done"


def _arithmetic_for(make: Generator) -> str:
    return f"for ((i=0; i<1; i++)); do {make.nested()}\ndone"


def _while(make: Generator) -> str:
    return f"while {make.nested()}\ndo {make.nested()}\nbreak; done"


def _until(make: Generator) -> str:
    return f"until ! {_one(make.nested())}; do break; done"


def _select(make: Generator) -> str:
    return f"select {make.name()} in a; do {make.nested()}\nbreak; done <<< 1"


def _case(make: Generator) -> str:
    return (
        f"case a{make.pick('', chr(34) + '$(:)' + chr(34))} in (b|'c d') {make.nested()}\n;; a*) {make.nested()}\n"
        f"{make.pick(';;', ';&', ';;&')} *) {make.nested()}\nesac"
    )


def _function(make: Generator) -> str:
    name = make.name()
    head = make.pick(f"{name}()", f"{name} ( )", f"function {name}", f"function {name} ()")
    body = make.pick("{ %s\n}", "( %s\n)", "if :; then %s\nfi") % make.nested()
    if make.depth == 0:
        make.functions.append(name)
    return f"{head} {body}\n{name} x"


def _time(make: Generator) -> str:
    return f"time {make.pick('', '-p ')}{make.pick(_one(make.nested()), make.simple())}"


def _not(make: Generator) -> str:
    return f"! {make.simple()}"


def _coproc(make: Generator) -> str:
    return (
        make.pick(f"coproc {make.simple()}", f"coproc {_one(make.nested())}", f"coproc W {_one(make.nested())}")
        + "\nwait"
    )


def _test(make: Generator) -> str:
    return make.pick(
        f"[[ -n $({make.nested()}) && a == a* || b =~ ^(x|y)$ ]] && {make.simple()}",
        f'[ -n "$({make.nested()})" ] || {make.simple()}',
        f"(( 1 + $({_one(make.nested())} | wc -l) )) && {make.simple()}",
    )


def _assignment(make: Generator) -> str:
    inner = make.nested()
    return make.pick(
        f"v=$({inner})",
        f'v="$({inner})"',
        f"a=(x $({inner}) y)",
        f"export v=$({inner})",
        f"a[$({_one(inner)} | wc -l)]=1",
        f"local_=`:`; v+=$({inner})",
    )


def _shell(make: Generator) -> str:
    text = make.text_for_a_shell()
    word = make.quoted(text)
    return make.pick(
        f"bash -c {word}",
        f"bash --norc -euc {word} name arg",
        f"bash -o pipefail -c {word}",
        f"bash -s <<< {word}",
        f"bash <<< {word}",
        f"bash /dev/stdin <<< {word}",
        f"eval {word}",
        f"eval -- {word}",
        f"builtin eval {word}",
        f"command eval {word}",
        f"trap {word} EXIT",
        f"( exec bash -c {word} )",
        f"printf '%s\\n' {word} | bash",
        f". /dev/stdin <<< {word}",
        f"source /dev/fd/0 <<< {word}",
        f'env -i PATH="$PATH" bash -c {word}',
    )


def _document(make: Generator) -> str:
    return make.random.choice(
        (
            lambda: make.document("bash"),
            lambda: make.document("bash -s a b"),
            lambda: make.document("cat", rest=" | bash"),
            lambda: make.document("timeout 9 bash"),
            lambda: make.document("source /dev/stdin"),
            lambda: make.document(f"{make.simple()}; cat"),
            lambda: _expanded(make, make.name()),
        )
    )()


def _expanded(make: Generator, end: str) -> str:
    return f"cat <<{end}\n$({make.nested()}\n)\n{end}\n"


def _sh(make: Generator) -> str:
    return f"sh -c {make.quoted(_portable(make))}"


def _portable(make: Generator) -> str:
    name = make.random.choice(PROGRAMS)
    return make.pick(f"{name} a | {name}", f"if {name}; then '{name}' x; fi", f"({name}; {name} $(:))")


def _alias(make: Generator) -> str:
    name, program = f"al{make.name()}", make.random.choice(PROGRAMS)
    return make.pick(
        f"shopt -s expand_aliases\nalias {name}='{program} x'\n{name} y",
        f"shopt -s expand_aliases\nalias {name}='env ' {name}b={program}\n{name} {name}b",
        f"shopt -s expand_aliases\nalias {name}='if :; then {program}; fi'\n{name}",
    )


def _wrapped(make: Generator) -> str:
    wrapper = make.random.choice([text for text in WRAPPERS if text.split()[0] in make.available or text[0] == "("])
    program = make.spelled(make.random.choice(PROGRAMS))
    text = wrapper.replace("...", f"{program} {make.random.choice(WORDS)}") if "..." in wrapper else wrapper
    if "SCRIPT" in text:
        text = text.replace("SCRIPT", make.quoted(make.text_for_a_shell()))
    return text.replace("PORTABLE", make.quoted(_portable(make))) if "PORTABLE" in text else text


def _dynamic(make: Generator) -> str:
    program = make.random.choice(PROGRAMS)
    word = make.quoted(f"{program} a")
    return make.pick(*DYNAMIC).format(program=program, word=word, start=program[:-1], end=program[-1])


def _dynamic_name(make: Generator, name: str) -> str:
    return make.pick(
        f"$(echo {name})", f"`echo {name}`", f"${{unset:-{name}}}", f"$'{name}'", f"$unset {name}", f"$e{name}"
    )


WORDS = (
    "a", "-x", "--opt=1", "'b c'", '"d $HOME e"', "$HOME", "*.c", "'#'", '"it\'s"', "'say \"x\"'", "\\;", "~", "!",
    "{f,g}", "a=b", "%", "$?", '"$@"', "é", "''", "]", "}", "then", "[x]", "$((1+2))", "${#HOME}", '"${HOME%/*}"',
    "'$(mark1)'", "'`mark2`'", "\\$\\(mark3\\)", "mark4", "'; mark5'", '"| mark6"', "'<<EOF'", "'a\nmark7'",
)  # fmt: skip
WRAPPERS = (
    "env ...", "env A=1 B='c d' ...", "env -u A -- ...", "nice ...", "nice -n 5 ...", "nice -5 ...", "timeout 9 ...",
    "timeout -k 1 -s KILL 9s ...", "timeout --signal=TERM 9 ...", "nohup ...", "stdbuf -oL ...",
    "stdbuf -i 0 --output=L ...", "setsid -w ...", "ionice -c 3 ...", "ionice -c2 -n7 ...", "taskset -c 0 ...",
    "taskset 1 ...", "chrt -o 0 ...", "chrt -b 0 ...", "chrt --other 0 ...", "prlimit --nofile=99 ...",
    "prlimit -n50:60 ...", "setarch x86_64 ...", "setarch x86_64 -R ...", "linux64 ...", "unshare ...",
    "unshare -r ...", "unshare --fork ...", "flock out ...", "flock -n out -c PORTABLE",
    "script -qc PORTABLE /dev/null", "script -q /dev/null -c PORTABLE", "xargs ... </dev/null",
    "xargs -n 1 -0 ... <<< x", "xargs -I{} ... {} <<< x", "find . -maxdepth 0 -exec ... \\;",
    "find . -maxdepth 0 -exec ... {} +", "command ...", "command -p env ...", "builtin command ...", "(exec ...)",
    "(exec -a other ...)", "(exec -c env ...)", "time ...", "env time -p ...", "sudo -n ...",
    "setpriv --no-new-privs ...", "runuser -u root -- ...", "runuser root -c PORTABLE", "su root -c PORTABLE",
    "sg root PORTABLE", "sg root -c PORTABLE", "chroot / env PATH=\"$PATH\" ...", "strace -f -o /dev/null ...",
    "nsenter -t $$ -m ...", "env -S 'nice -n 1' ...", "dash -c PORTABLE", "busybox sh -c PORTABLE",
    "unshare -rm bash -c SCRIPT", "fakeroot ...", "watch -n 1 -t -e false", "time -p ... | cat",
    "capsh -- -c SCRIPT",
    "nice nice timeout 9 env bash -c SCRIPT", "nice -n 1 script -qc PORTABLE /dev/null",
)  # fmt: skip
DYNAMIC = (
    "v={program}; $v x",
    'v={program}; "$v" x',
    "printf -v w %s {program}; $w",
    'set -- {program} x; "$@"',
    'a=({program} x); "${{a[@]}}"',
    'v={word}; eval "$v"',
    "v={word}; eval $v",
    'v={word}; bash -c "$v"',
    "v={word}; bash <<E\n$v\nE\n",
    "echo {program} | xargs env",
    "echo {program} | xargs -I{{}} {{}} a",
    "echo {program} | xargs -I{{}} sh -c '{{}}'",
    "echo {program} > f; sh < f",
    "cat <<< {program} | bash",
    "IFS=x; v={program}xa; $v",
    "v='$({program})'; echo \"${{v@P}}\"",
    "v='a[$({program})]'; echo $(( v ))",
    "v='a[$({program})]'; [[ $v -eq 0 ]]",
    "PS4='$({program})'; set -x; :",
    'hash -p "$(command -v {program})" zzz; zzz',
    "BASH_CMDS[zzz]=$(command -v {program}); zzz",
    "{{{program},a}}",
    '{start}[{end}] || "$(dirname "$(command -v {program})")"/{start}[{end}] x',
    "mapfile -C '{program}' -c 1 arr <<< x",
    'f() {{ "$@"; }}; f {program}',
    "f() {{ $1; }}; f {program}",
    "echo() {{ builtin echo {program}; }}; echo ls | bash",
    "sh -c '$0' {program}",
    "sh -c '\"$@\"' _ {program}",
    "env -S '{program} a'",
    "env 'BASH_FUNC_zz%%=() {{ {program}; }}' bash -c zz",
    "BASH_ENV=/dev/stdin bash -c : <<< {program}",
    "printf '%b' '\\155ark1' | bash",
    "time -p eval {word}",
    "compgen -C {program} x",
    "set -o history -o histexpand; {program}\n!!\n",
    "unset 'a[$({program})]'",
    "declare 'a[$({program})]=1'",
    "test -v 'a[$({program})]'",
    "x='a[$({program})]'; : ${{!x}}",
    "v={program}; ${{v}} & wait",
    "$unset {program} x",
    "e=env; $e {program}",
    "case x in x) v={program};; esac; $v",
    "read -r v <<< {program}; $v",
    "cd /; ${{v:-{program}}}",
    "${{unset:={program}}} x",
    'bash -c "$(printf %s {program})"',
    "echo {program} > f; bash f",
    "echo '{program} a' > ./f; chmod +x f; ./f",
    "X={program}; $X a",
    "X='env {program}' && $X a | cat",
    "false && X=ls; X=${{X:-{program}}}; $X",
    "bash <(echo {program})",
    ". <(echo {program})",
    'trap "$(echo {program})" EXIT',
    "alias $(echo qq={program}); shopt -s expand_aliases\nqq",
    "command_not_found_handle() {{ {program}; }}; nosuchprogram",
    "find . -maxdepth 0 -exec {program} {{}} +",
    "find . -maxdepth 0 -exec sh -c '{program} \"$1\"' _ {{}} \\;",
)
"""Scripts that start `program`: `word` is a quoted script that does, `start` and `end` are its name."""
Form = Callable[[Generator], str]
FORMS: tuple[Form, ...] = (
    _group, _subshell, _pipe, _and_or, _list, _if, _for, _arithmetic_for, _while, _until, _select, _case, _function,
    _time, _not, _coproc, _test, _assignment, _shell, _shell, _shell, _document, _document, _sh, _alias, _wrapped,
    _wrapped, _wrapped,
)  # fmt: skip
DYNAMIC_FORMS: tuple[Form, ...] = (_dynamic,) * 12
DYNAMIC_NAMES: tuple[Callable[[Generator, str], str], ...] = (_dynamic_name,)

"""Load `.rules` files. A broken file of the user's stops the start, as half a policy is none. A project's is
skipped, so that it cannot stop every start."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ferrule.execpolicy.evaluate import Evaluated, RulesError, encode_input, evaluate
from ferrule.execpolicy.rules import RuleFile, Rules
from ferrule.protocol.settings import ProjectText
from ferrule.reading import Unreadable, read_file

if TYPE_CHECKING:
    import starlark

MAX_FILE_BYTES = 256 << 10  # five thousand rules; the interpreter takes seconds for more
CHILD_SECONDS = 10.0  # twice the child's CPU limit, for a machine that is busy
_LITERAL_CALLS = frozenset(["prefix_rule", "host_executable", "network_rule"])
_CONSTANTS = frozenset(["None", "True", "False"])
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from ferrule.execpolicy.evaluate import main; main()"


def load_rules(files: Iterable[Path]) -> Rules:
    """Load the rules of these files. Raises `RulesError` for a file that cannot be read or evaluated."""
    return Rules([load_file(path) for path in files])


def rule_files(folders: Iterable[Path]) -> list[Path]:
    """List `<folder>/rules/*.rules` of every configuration layer, lowest precedence first, sorted within each.

    A folder without rules is fine; one that cannot be listed raises `RulesError`.
    """
    return [path for folder in folders for path in _rules_in(folder / "rules")]


def _rules_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".rules")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RulesError(f"cannot list the rules in {folder}: {error.strerror}") from error


def load_file(path: Path) -> RuleFile:
    """Load the rules of one file. Raises `RulesError`."""
    try:
        return read_rules(str(path), read_file(path, MAX_FILE_BYTES))
    except FileNotFoundError as error:
        raise RulesError(f"cannot read the rules file {path}: {error.strerror}") from error
    except Unreadable as problem:
        raise RulesError(f"the rules file {path} {problem}") from problem


def read_rules(name: str, data: bytes) -> RuleFile:
    """Read rules from a file's bytes; `name` stands for the file in errors. Raises `RulesError`."""
    try:
        source = data.decode()
    except UnicodeDecodeError as error:
        raise RulesError(f"the rules file {name} is not UTF-8 text") from error
    return evaluate(source, name) if _only_lists(source) else _evaluate_apart(source, name)


def with_project_rules(rules: Rules, texts: Iterable[ProjectText]) -> tuple[Rules, tuple[str, ...]]:
    """Add the rules of a project's files. Also returns a sentence for each file that cannot be used."""
    files, warnings = list[RuleFile](), list[str]()
    for text in texts:
        try:
            files.append(read_rules(text.path, text.data))
        except RulesError as problem:
            warnings.append(f"{problem}; the file is passed over")
    return Rules((*rules.files, *files)), tuple(warnings)


def _only_lists(source: str) -> bool:
    """Return True if the file only calls our functions with literals: nothing in it can grow or loop."""
    import starlark

    previous = ""
    for kind, value in _tokens(starlark.Lexer(source)):
        if previous and not ((kind == "(" and previous in _LITERAL_CALLS) or kind == "=" or previous in _CONSTANTS):
            return False
        if kind not in ("identifier", "string literal", "(", ")", "[", "]", ",", "=", "newline", "EOF"):
            return False
        previous = value if kind == "identifier" else ""
    return True


def _tokens(lexer: "starlark.Lexer") -> Iterator[tuple[str, str]]:
    for token in lexer.tokens():  # type: ignore[no-untyped-call]  # the only one without types
        yield token.kind.value, token.value if isinstance(token.value, str) else ""


def _evaluate_apart(source: str, filename: str) -> RuleFile:
    """Evaluate in a separate process, which can have limits and be ended."""
    import json

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD, json.dumps(sys.path)],
            input=encode_input(source, filename),
            capture_output=True,
            timeout=CHILD_SECONDS,
            check=False,
        )
        answer = msgspec.json.decode(done.stdout, type=Evaluated)
    except (subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise RulesError(f"{filename}: needs too much time or memory; make it a plain list of rules") from error
    if answer.rules is None:
        raise RulesError(answer.error or f"the rules file {filename} could not be evaluated")
    return answer.rules

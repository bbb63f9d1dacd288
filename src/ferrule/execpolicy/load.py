"""`.rules` files from disk. A file that is there but cannot be used stops the start: half a policy is none."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .evaluate import Evaluated, RulesError, encode_input, evaluate
from .rules import RuleFile, Rules

if TYPE_CHECKING:
    import starlark

MAX_FILE_BYTES = 256 << 10  # five thousand rules; the interpreter takes seconds for more
CHILD_SECONDS = 10.0  # twice the child's CPU limit, for a machine that is busy
_LITERAL_CALLS = frozenset(["prefix_rule", "host_executable", "network_rule"])
_CONSTANTS = frozenset(["None", "True", "False"])
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from ferrule.execpolicy.evaluate import main; main()"


def load_rules(files: Iterable[Path]) -> Rules:
    """The rules of these files together. Raises `RulesError` for a file that cannot be read or evaluated."""
    return Rules([load_file(path) for path in files])


def rule_files(folders: Iterable[Path]) -> list[Path]:
    """`<folder>/rules/*.rules` of every configuration layer, lowest precedence first, sorted within each.

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
    """The rules of one file. Raises `RulesError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        source = data.decode()
    except OSError as error:
        raise RulesError(f"cannot read the rules file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RulesError(f"the rules file {path} is not UTF-8 text") from error
    if len(data) > MAX_FILE_BYTES:
        raise RulesError(f"the rules file {path} is larger than {MAX_FILE_BYTES >> 10} KiB; split it")
    return evaluate(source, str(path)) if _only_lists(source) else _evaluate_apart(source, str(path))


def _only_lists(source: str) -> bool:
    """True if the file is calls of our functions with literal arguments: then nothing in it can grow or loop."""
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
    """In a process of its own, which can be given limits and ended."""
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

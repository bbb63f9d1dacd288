"""The text of a call: options, and what is no JavaScript."""

from pathlib import Path

import pytest

from ferrule.builtin import BUILTINS
from ferrule.builtin.js_repl import FORMAT
from ferrule.builtin.js_repl.source import DEFAULT_TIMEOUT_MS, Cell, read_cell
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.specs import FreeformTool, ResponsesApiTool
from ferrule.tools.grammar import InputGrammar
from tests.builtin.states import conversation

GOOD = [
    "1 + 1",
    "// codex-js-repl: timeout_ms=15000\nawait 1",
    "// codex-js-repl:\nawait 1",
    "\n\n  const a = `t`\n// end",
    "`template`.length",
    "'quoted'.length",
    "[1, 2]",
    "/re/.test('x')",
    "({a: 1})",
    "// a comment\nx",
]
WRAPPED = ['{"code": "1 + 1"}', '"1 + 1"', "```js\n1 + 1\n```", "  ```\n1\n```", ' {"code":"1"} ']


@pytest.mark.parametrize("text", GOOD)
def test_raw_javascript_is_taken(text: str) -> None:
    read_cell(text)


@pytest.mark.parametrize("text", WRAPPED)
def test_wrapped_javascript_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(RespondToModel, match="send raw JavaScript source only"):
        read_cell(text)
    with pytest.raises(RespondToModel, match="send raw JavaScript source only"):
        read_cell(f"// codex-js-repl: timeout_ms=5\n{text}")


@pytest.mark.parametrize("text", ["", "  \n", "// codex-js-repl: timeout_ms=5", "// codex-js-repl: timeout_ms=5\n \n"])
def test_nothing_to_run_is_refused(text: str) -> None:
    with pytest.raises(RespondToModel, match="raw JavaScript"):
        read_cell(text)


def test_the_line_of_options() -> None:
    assert read_cell("x") == Cell("x", DEFAULT_TIMEOUT_MS)
    assert read_cell("// codex-js-repl: timeout_ms=15000\nx") == Cell("\nx", 15000)
    assert read_cell("  // codex-js-repl: , timeout_ms=7\r\nx").timeout_ms == 7
    assert read_cell("// codex-js-repl: timeout_ms=15000\nx", 9).timeout_ms == 9
    assert read_cell("x\n// codex-js-repl: timeout_ms=15000").timeout_ms == DEFAULT_TIMEOUT_MS


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("timeout_ms=1 timeout_ms=2", "given twice"),
        ("speed=9", "not known"),
        ("timeout_ms", "not known"),
        ("timeout_ms=0", "at least 1"),
        ("timeout_ms=-5", "at least 1"),
        ("timeout_ms=1.5", "at least 1"),
        ("timeout_ms=²", "at least 1"),
    ],
)
def test_wrong_options_are_named(options: str, problem: str) -> None:
    with pytest.raises(RespondToModel, match=problem):
        read_cell(f"// codex-js-repl: {options}\nx")


def test_the_grammar_says_the_same() -> None:
    pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")
    grammar = InputGrammar(FORMAT)
    for text in GOOD:
        grammar.check(text)
    for text in WRAPPED:
        with pytest.raises(RespondToModel, match="does not follow"):
            grammar.check(text)


def test_the_form_follows_the_model(tmp_path: Path) -> None:
    freeform = conversation(tmp_path, profile=ModelProfile(name="test", apply_patch="freeform"))
    assert isinstance(BUILTINS["js_repl"].spec(freeform), FreeformTool)
    shown = BUILTINS["js_repl"].spec(conversation(tmp_path))
    assert isinstance(shown, ResponsesApiTool)
    assert set(shown.parameters.mapping["properties"]) == {"code", "timeout_ms"}

"""Freeform input against its grammar."""

import importlib.util
import sys

import pytest

from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.protocol.specs import FreeformToolFormat
from ferrule.tools.grammar import InputGrammar, grammar_of

needs_llguidance = pytest.mark.skipif(importlib.util.find_spec("llguidance") is None, reason="the extra grammar")

LARK = """
start: "begin" LF line+ ("end" | "stop") LF?
line: "+ " /[^\\n]*/ LF
%import common.LF
"""


def grammar(definition: str, syntax: str = "lark") -> InputGrammar:
    found = grammar_of(FreeformToolFormat("grammar", syntax, definition))
    assert found is not None
    return found


def refusal(checked: InputGrammar, text: str) -> str:
    with pytest.raises(RespondToModel) as caught:
        checked.check(text)
    return str(caught.value).removeprefix("the input does not follow the tool's grammar: ")


@pytest.mark.parametrize("tool_format", [("text", "lark", LARK), ("grammar", "gbnf", "root ::= x")])
def test_formats_that_are_not_checked(tool_format: tuple[str, str, str]) -> None:
    assert grammar_of(FreeformToolFormat(*tool_format)) is None


@needs_llguidance
def test_lark() -> None:
    checked = grammar(LARK)
    checked.check("begin\n+ héllo\n+ \nend")
    checked.check("begin\n+ x\nstop\n")
    assert refusal(checked, "begin\nx\nend") == "line 2 column 1, near 'x\\nend'; expected '+ '"
    assert refusal(checked, "begin\n+ é\nfin") == "line 3 column 1, near 'fin'; expected '+' or 'e' or 's'"
    assert refusal(checked, "begin\n+ x\nen") == "it ends too early, at line 3 column 3; expected 'd'"
    assert refusal(checked, "") == "it ends too early, at line 1 column 1; expected 'begin\\n+ '"
    assert refusal(checked, "begin\n+ x\nend\nmore").startswith("line 4 column 1, near 'more'")


@needs_llguidance
def test_regex() -> None:
    checked = grammar(r"[a-z]+-[0-9]{2}", "regex")
    checked.check("abc-12")
    assert refusal(checked, "abc_12") == "line 1 column 4, near '_12'"
    assert refusal(checked, "abc-123") == "line 1 column 7, near '3'"


@needs_llguidance
def test_half_characters_are_a_refusal_and_no_crash() -> None:
    assert refusal(grammar("[a-z]+", "regex"), "a\ud800")


@needs_llguidance
@pytest.mark.parametrize(("definition", "syntax"), [("start: foo", "lark"), ("[a-", "regex")])
def test_a_wrong_grammar_is_told_to_its_author(definition: str, syntax: str) -> None:
    with pytest.raises(UsageError, match=f"The {syntax} grammar cannot be loaded: at 1"):
        grammar(definition, syntax).load()


def test_without_llguidance_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UsageError, match=r"pip install 'ferrule\[grammar\]'"):
        grammar(LARK).load()

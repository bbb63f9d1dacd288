"""Check freeform input against its Lark or regex grammar with llguidance, the library that servers constrain with.

For tools without a parser of their own. llguidance comes with the extra `grammar` and is imported at the first check.
"""

import importlib
import importlib.util
import logging
from functools import cached_property
from typing import Any

from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.protocol.specs import FreeformToolFormat

log = logging.getLogger("ferrule.tools")

_SYNTAXES = ("lark", "regex")

_EXCERPT = 40
"""Characters of the wrong input quoted in an error."""

_ALTERNATIVES = 8
"""Possible next characters listed in an error; more would not help."""


def grammar_of(tool_format: FreeformToolFormat) -> "InputGrammar | None":
    """Return the grammar of input in this format, or None if any text is valid."""
    if tool_format.type == "grammar" and tool_format.syntax in _SYNTAXES:
        return InputGrammar(tool_format)
    return None


def checkable_grammar(tool_format: FreeformToolFormat) -> "InputGrammar | None":
    """Return the grammar, or None if any text is valid or llguidance is not installed (a line in the log says so)."""
    grammar = grammar_of(tool_format)
    if grammar is not None and importlib.util.find_spec("llguidance") is None:
        log.info("freeform input is not checked against its grammar: pip install 'ferrule[grammar]'")
        return None
    return grammar


class InputGrammar:
    """One grammar, compiled at its first use (some milliseconds, once)."""

    def __init__(self, tool_format: FreeformToolFormat) -> None:
        self._format = tool_format

    @cached_property
    def _compiled(self) -> tuple[Any, Any]:
        """The tokenizer, one token per byte, and a matcher at the start of the input."""
        try:
            llguidance = importlib.import_module("llguidance")
        except ModuleNotFoundError as error:
            raise UsageError(
                "Freeform grammars are checked with llguidance, which is not installed: pip install 'ferrule[grammar]'"
            ) from error
        matcher = llguidance.LLMatcher
        from_text = matcher.grammar_from_lark if self._format.syntax == "lark" else matcher.grammar_from_regex
        grammar, tokenizer = from_text(self._format.definition), llguidance.LLTokenizer("byte")
        if complaint := matcher.validate_grammar(grammar, tokenizer):
            raise UsageError(f"The {self._format.syntax} grammar cannot be loaded: {complaint.strip()}")
        return tokenizer, matcher(tokenizer, grammar)

    def load(self) -> None:
        """Compile now. Raises `UsageError` if llguidance is missing or the grammar is wrong."""
        _ = self._compiled

    def check(self, text: str) -> None:
        """Check input against the grammar; `RespondToModel` says where it stops matching and how.

        Raises `UsageError` as `load` does.
        """
        tokenizer, start = self._compiled
        matcher, data = start.deep_copy(), text.encode("utf-8", "replace")
        taken = matcher.try_consume_tokens(tokenizer.tokenize_bytes(data))
        if matcher.is_error():
            raise RespondToModel(f"the input is too hard to check against its grammar: {matcher.get_error()}")
        if taken < len(data) or not matcher.is_accepting():
            raise RespondToModel(f"the input does not follow the tool's grammar: {_where(data, taken)}{_next(matcher)}")


def _where(data: bytes, taken: int) -> str:
    """Describe where the grammar stopped, lines and columns from 1, and what is there."""
    before = data[:taken].decode("utf-8", "ignore")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    rest = data[len(before.encode()) :].decode("utf-8", "ignore")
    if not rest:
        return f"it ends too early, at line {line} column {column}"
    return f"line {line} column {column}, near {rest[:_EXCERPT]!r}"


def _next(matcher: Any) -> str:
    """Describe the possible continuations, if there are few."""
    if forced := matcher.compute_ff_bytes():
        return f"; expected {forced.decode('utf-8', 'ignore')!r}"
    allowed = [chr(byte) for byte, weight in enumerate(matcher.compute_logit_bias()[:128]) if weight]
    if 0 < len(allowed) <= _ALTERNATIVES:
        return f"; expected {' or '.join(map(repr, allowed))}"
    return ""

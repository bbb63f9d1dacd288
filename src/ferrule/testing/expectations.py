"""Expectations about tool outputs, and a readable account of mismatches."""

import difflib
import re
from collections.abc import Mapping, Sequence

from ferrule.testing.request import Output
from ferrule.testing.steps import Expectation, Matcher

_SHOWN_LINES = 40


def unmet(expectation: Expectation, outputs: Sequence[Output]) -> str | None:
    """Explain why the outputs do not meet the expectation; None if they do."""
    if isinstance(expectation, Mapping):
        reasons = (_unmet_by_call(call_id, matcher, outputs) for call_id, matcher in expectation.items())
        return next(filter(None, reasons), None)
    if isinstance(expectation, Sequence) and not isinstance(expectation, str):
        return next(filter(None, (_unmet(matcher, outputs) for matcher in expectation)), None)
    return _unmet(expectation, outputs)


def _unmet_by_call(call_id: str, matcher: Matcher, outputs: Sequence[Output]) -> str | None:
    chosen = [output for output in outputs if output.call_id == call_id]
    if not chosen:
        return f"expected an output for call {call_id!r}{_shown(outputs)}"
    return _unmet(matcher, chosen)


def _unmet(matcher: Matcher, outputs: Sequence[Output]) -> str | None:
    if isinstance(matcher, str):
        if any(matcher in output.text for output in outputs):
            return None
        return f"expected an output with this text:\n{_indented(matcher)}{_shown(outputs)}{_nearest(matcher, outputs)}"
    if isinstance(matcher, re.Pattern):
        if any(matcher.search(output.text) for output in outputs):
            return None
        return f"expected an output that matches {matcher.pattern!r}{_shown(outputs)}"
    name = getattr(matcher, "__name__", repr(matcher))
    try:
        verdict = matcher({output.call_id: output.text for output in outputs})
    except AssertionError as error:
        return f"{name}: {str(error) or 'assertion failed'}{_shown(outputs)}"
    return f"{name} said no{_shown(outputs)}" if verdict is False else None


def _shown(outputs: Sequence[Output]) -> str:
    if not outputs:
        return "\nbut no tool output arrived"
    return "\nthese arrived:" + "".join(f"\n  {output.call_id}:\n{_indented(output.text)}" for output in outputs)


def _indented(text: str) -> str:
    lines = text.splitlines() or [""]
    cut = [f"... {len(lines) - _SHOWN_LINES} more lines"] if len(lines) > _SHOWN_LINES else []
    return "\n".join(f"    {line}" for line in [*lines[:_SHOWN_LINES], *cut])


def _nearest(text: str, outputs: Sequence[Output]) -> str:
    """Return the lines that differ between the wanted text and the most similar part of one output."""
    wanted = text.splitlines()
    candidates = [window for output in outputs for window in _windows(output.text.splitlines(), len(wanted))]
    close = difflib.get_close_matches(text, candidates, n=1)
    if not close:
        return ""
    return "\nnearest:\n" + _indented("\n".join(difflib.ndiff(wanted, close[0].splitlines())))


def _windows(lines: Sequence[str], height: int) -> list[str]:
    return ["\n".join(lines[at : at + height]) for at in range(max(1, min(len(lines) - height + 1, 1000)))]

"""Notice a call that keeps failing in the same way: tell the model, then end the turn."""

import re

from ferrule.protocol.errors import FerruleError
from ferrule.protocol.payload import ToolOutput
from ferrule.tools.context import ToolInvocation

_VARYING = re.compile(r"\b[0-9a-f]*[0-9][0-9a-f.]*")
"""Times and numbers in an error that differ though it is the same one."""


class SameFailure(FerruleError):
    """The model made the same call, with the same error, as often as `same_failure_limit` allows."""


class Failures:
    """The failed calls since the last one that succeeded."""

    def __init__(self, hint: int, limit: int) -> None:
        self._hint = hint
        self._limit = limit
        self._times: dict[tuple[str, str, str], int] = {}
        self.reason: str | None = None

    def note(self, call: ToolInvocation, output: ToolOutput) -> str | None:
        """Count the answer of a call; the hint for the model, where it is time for one."""
        if output.success is not False:
            self._times.clear()
            return None
        name, text = str(call.tool_name), output.text
        key = (name, repr(call.payload), _VARYING.sub("#", text))
        self._times[key] = times = self._times.get(key, 0) + 1
        if times >= self._limit:
            said = " ".join(text.split())[:200]
            self.reason = (
                f"stopped after {times} times the same call of {name} with the same error (same_failure_limit): {said}"
            )
        if times < self._hint:
            return None
        return (
            f"This is the same call with the same error, {times} times now; it will not succeed as it is. Change "
            "its arguments, use another tool, or tell the user what stands in the way."
        )

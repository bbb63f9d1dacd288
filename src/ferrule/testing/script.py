"""A script: steps in order."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ferrule.testing.steps import Raw, Step, StepLike, as_step


class Script(msgspec.Struct, frozen=True):
    """The steps of a script, one for each request. `repeat` starts over after the last."""

    steps: tuple[StepLike, ...] = ()
    repeat: bool = False

    @classmethod
    def of(cls, steps: "Script | Iterable[StepLike] | StepLike") -> "Script":
        """Make a script from steps, or from a single function that answers every request. Raises ScriptError."""
        if isinstance(steps, Script):
            return steps
        if callable(steps):
            return cls((steps,), repeat=True)
        if isinstance(steps, str | Mapping | Step | Raw):
            return cls((checked(steps),))
        return cls(tuple(checked(entry) for entry in steps))

    @classmethod
    def from_json(cls, path: str | Path) -> "Script":
        """Read a script file (the format: docs/testing.md). Raises ScriptError, which names the file and the step."""
        from ferrule.testing.script_file import read

        return cls(*read(path))


def checked(entry: StepLike) -> StepLike:
    """Validate an entry now, so that a wrong one is refused where it was written. Raises ScriptError."""
    return entry if callable(entry) else as_step(entry)

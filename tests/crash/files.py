"""The files that a session works on, in numbered versions; what a kill may leave of them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

LINES = 2000
BODY = "".join(f"line {number} stays as it is\n" for number in range(LINES))
"""Long enough that half a file is seen."""
LOG = "calls.log"
BESIDE = ".ferrule-"


def content(version: int) -> str:
    """A file in one of its versions, which its first and last lines tell."""
    return f"first {version}\n{BODY}last {version}\n"


@dataclass
class Versions:
    """The versions that a file may have: `at_least` is told to the model, up to `at_most` is on its way."""

    at_least: int = 0
    at_most: int = 0


@dataclass
class Files:
    """A workspace: two files that patches change, and files that they add."""

    folder: Path
    changed: dict[str, Versions] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    killed: bool = False
    """The session was killed, and no other one has begun since."""

    def lay_out(self, *names: str) -> None:
        """Write files in their first version."""
        for name in names:
            (self.folder / name).write_text(content(0))
            self.changed[name] = Versions()

    def update(self, *names: str) -> str:
        """Return the patch from the versions that stand there now to the next ones; it fails if it is applied twice."""
        hunks = []
        for name in names:
            version = self.version(name)
            self.changed[name].at_most = version + 1
            hunks.append(
                f"*** Update File: {name}\n@@\n-first {version}\n+first {version + 1}\n line 0 stays as it is\n"
                f"@@\n line {LINES - 1} stays as it is\n-last {version}\n+last {version + 1}\n"
            )
        return "*** Begin Patch\n" + "".join(hunks) + "*** End Patch\n"

    def add(self, name: str) -> str:
        """Return the patch that adds a file; it fails if it is applied twice."""
        text = content(len(self.added))
        self.added[name] = text
        lines = "".join(f"+{line}\n" for line in text.splitlines())
        return f"*** Begin Patch\n*** Add File: {name}\n{lines}*** End Patch\n"

    def version(self, name: str) -> int:
        """The version of a file as it stands there."""
        found = re.match(r"first (\d+)\n", (self.folder / name).read_text())
        return int(found[1]) if found else 0

    def newest(self, name: str) -> int:
        """The version that the last patch of a file makes."""
        return self.changed[name].at_most if name in self.changed else 0

    def applied(self, name: str, version: int) -> None:
        """Take that the model was told that a patch was applied."""
        if name in self.changed:
            self.changed[name].at_least = version

    def problems(self) -> list[str]:
        """What is half written, lost, or not ours to leave."""
        problems = []
        for name, versions in self.changed.items():
            text = (self.folder / name).read_text() if (self.folder / name).is_file() else ""
            if text not in (content(version) for version in range(versions.at_least, versions.at_most + 1)):
                problems.append(f"{name} ({len(text)} characters) is no version from {versions}: {text[:20]!r}...")
        for name, wanted in self.added.items():
            file = self.folder / name
            if file.exists() and file.read_text() != wanted:
                problems.append(f"{name} is half written: {len(file.read_text())} of {len(wanted)} characters")
        return problems + [f"left in the workspace: {name}" for name in self.left()]

    def left(self) -> list[str]:
        """What stands in the workspace that neither the user nor the model has put there. Files beside others stay
        until the next session begins."""
        known = {*self.changed, *self.added, LOG}
        there = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return [name for name in there if name not in known and not (self.killed and name.startswith(BESIDE))]

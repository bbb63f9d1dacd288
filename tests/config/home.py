"""A home of Ferrule and a project beside it."""

from pathlib import Path
from typing import Any

from ferrule.config import Configuration, Sources, load
from ferrule.config.trust import TrustRecords


class Home:
    """A home of Ferrule and a project beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self.project = folder / "project"
        self.path.mkdir()
        (self.project / ".git").mkdir(parents=True)
        (self.project / "sub").mkdir()

    def user(self, text: str) -> "Home":
        (self.path / "config.toml").write_text(text)
        return self

    def in_project(self, text: str) -> "Home":
        (self.project / ".ferrule").mkdir(exist_ok=True)
        (self.project / ".ferrule" / "config.toml").write_text(text)
        return self

    @property
    def trust(self) -> str:
        return f'[projects."{self.project}"]\ntrust_level = "trusted"\n'

    def confirm(self) -> "Home":
        """As the user does after a change."""
        TrustRecords(str(self.path)).confirm(str(self.project), self.load().unconfirmed, "trusted")
        return self

    def load(self, *assignments: str, **more: Any) -> Configuration:
        sources = Sources(cwd=str(self.project / "sub"), assignments=assignments, **more)
        return load(sources, {"FERRULE_HOME": str(self.path)})

"""The question about new and changed files of a project, where somebody can answer."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ferrule.config import Configuration, Sources
from ferrule.dispatch.front_end import Callbacks
from ferrule.dispatch.pending import PendingTable
from ferrule.protocol.events import ElicitationRequest, UserInputRequest
from ferrule.session.project_trust import NO, QUESTION, YES, load_asking
from ferrule.tools.questions import Answer, NoAnswer, UserAnswers


@dataclasses.dataclass
class Project:
    """A project whose `.mcp.json` names a server, and a user who is asked."""

    top: Path
    home: Path
    answer: Answer = dataclasses.field(default_factory=lambda: answered(YES))
    asked: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def env(self) -> Mapping[str, str]:
        return {"FERRULE_HOME": str(self.home), "HOME": str(self.home.parent)}

    def write(self, command: str) -> None:
        text = json.dumps({"mcpServers": {"s": {"command": command}}})
        (self.top / ".mcp.json").write_text(text)

    def on_question(self, question: UserInputRequest | ElicitationRequest) -> Answer:
        assert isinstance(question, UserInputRequest)
        self.asked += question.questions
        return self.answer

    async def load(self, *, alone: bool = False) -> Configuration:
        front_end = Callbacks(lambda event: None, None, None if alone else self.on_question)
        return await load_asking(Sources(cwd=str(self.top)), front_end, PendingTable(), self.env)


def answered(*labels: str) -> UserAnswers:
    return UserAnswers({QUESTION: labels})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    top = tmp_path.resolve() / "project"
    (top / ".git").mkdir(parents=True)
    made = Project(top, tmp_path / "home")
    made.write("first")
    return made


def commands(loaded: Configuration) -> list[str | None]:
    return [server.command for server in loaded.settings.mcp_servers.values()]


async def test_s04_a_yes_reads_what_was_shown_and_a_change_is_asked_about_again(project: Project) -> None:
    loaded = await project.load()
    assert commands(loaded) == ["first"] and not loaded.warnings
    (question,) = project.asked
    assert "new: .mcp.json" in question["question"] and 'starts ["first"], outside of the' in question["question"]
    await project.load()
    assert len(project.asked) == 1, "what is confirmed is not asked about"
    project.write("second")
    assert commands(await project.load()) == ["second"]
    assert "changed: .mcp.json" in project.asked[1]["question"]


@pytest.mark.parametrize(
    "answer", [answered(NO), answered("yes"), answered(), answered(YES, NO), UserAnswers({}), NoAnswer("gone")]
)
async def test_s04_anything_but_a_yes_reads_nothing_and_warns(project: Project, answer: Answer) -> None:
    project.answer = answer
    loaded = await project.load()
    assert commands(loaded) == [] and "`ferrule trust" in loaded.warnings[0]
    await project.load()
    assert len(project.asked) == 2, "nothing was recorded"


async def test_s04_where_nobody_can_answer_it_is_a_warning(project: Project) -> None:
    loaded = await project.load(alone=True)
    assert commands(loaded) == [] and "`ferrule trust" in loaded.warnings[0] and not project.asked


async def test_s04_what_changes_while_the_user_reads_is_not_confirmed(project: Project) -> None:
    def change(question: UserInputRequest | ElicitationRequest) -> Answer:
        project.write("planted")
        return answered(YES)

    project.on_question = change  # type: ignore[method-assign]
    loaded = await project.load()
    assert commands(loaded) == [] and ".mcp.json (changed)" in loaded.warnings[0]


async def test_s04_the_question_shows_no_control_characters(project: Project) -> None:
    rules = project.top / ".ferrule/rules/a\x1b[2J\u202e.rules"
    rules.parent.mkdir(parents=True)
    rules.write_text('prefix_rule(pattern=["touch"])\n')
    await project.load()
    text = project.asked[0]["question"]
    assert "\x1b" not in text and "\u202e" not in text


async def test_s04_a_record_that_cannot_be_written_is_a_warning(project: Project) -> None:
    project.home.mkdir()
    (project.home / "trust").write_text("no folder")
    loaded = await project.load()
    assert commands(loaded) == [] and any("cannot be recorded" in warning for warning in loaded.warnings)

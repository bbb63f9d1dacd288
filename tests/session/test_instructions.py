"""What a model is told before the user speaks: how to work, where it is, what the repository's owner wants."""

from collections.abc import Sequence
from pathlib import Path

from ferrule import Agent, tool
from ferrule.protocol.settings import PROJECT_DOC_BYTES, Settings
from ferrule.session.guidance import Reader
from ferrule.session.guidance import agents_text as read_agents
from ferrule.session.instructions import BASE_INSTRUCTIONS, base_instructions
from ferrule.session.opening import open_session
from ferrule.testing import ScriptedModel
from tests.session.models import InProcessModel, says


def agents_text(cwd: Path, *, fallbacks: Sequence[str] = (), limit: int = PROJECT_DOC_BYTES, home: str = "") -> str:
    return read_agents(str(cwd), Reader(limit, warn=lambda text: None), fallbacks=fallbacks, home=home)


def folder(path: Path, text: str | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if text is not None:
        (path / "AGENTS.md").write_text(text)
    return path


def test_agents_files_go_from_the_top_of_the_repository_down_and_the_nearer_one_comes_last(tmp_path: Path) -> None:
    folder(tmp_path, "outside of the repository")
    top = folder(tmp_path / "repo", "for all")
    (top / ".git").mkdir()
    here = folder(folder(top / "a") / "b", "for b")
    folder(top / "c", "for c")
    assert agents_text(here) == "for all\n\nfor b"
    assert agents_text(top) == "for all"


def test_without_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    folder(tmp_path, "above")
    assert agents_text(folder(tmp_path / "here", "here")) == "here"
    assert agents_text(folder(tmp_path / "none")) == ""


def test_agents_files_are_bounded_together(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    folder(tmp_path, "a" * (PROJECT_DOC_BYTES - 1))
    text = agents_text(folder(tmp_path / "b", "bc"))
    assert text == "a" * (PROJECT_DOC_BYTES - 1) + "\n\nb"


async def test_the_first_request_says_how_to_work_and_where(tmp_path: Path) -> None:
    folder(tmp_path, "Use tabs.")
    with ScriptedModel(["Done."]) as model:
        await Agent("gpt-5.5", cwd=tmp_path, base_url=model.base_url, wire="responses").run("go")
        [request] = model.requests
    assert request.body["instructions"] == base_instructions(None)
    guidance, place, said = (item["content"][0]["text"] for item in request.items)  # type: ignore[index]
    assert "Use tabs." in guidance
    assert f"<cwd>{tmp_path}</cwd>" in place
    assert "<approval_policy>never</approval_policy>" in place
    assert "<sandbox_mode>workspace-write</sandbox_mode>" in place
    assert said == "go"


def test_the_base_instructions_ask_for_the_three_habits() -> None:
    for habit in ("Persist.", "Look instead of guessing.", "Plan and reflect."):
        assert habit in BASE_INSTRUCTIONS


async def test_own_instructions_take_their_place(tmp_path: Path) -> None:
    with ScriptedModel(["Done."]) as model:
        agent = Agent("gpt-5.5", cwd=tmp_path, base_url=model.base_url, wire="chat", instructions="Be brief.")
        await agent.run("go")
        first = model.requests[-1].items[0]
    assert (first["role"], first["content"]) == ("system", "Be brief.")


async def test_examples_of_tools_stand_behind_the_instructions_and_not_in_the_description(tmp_path: Path) -> None:
    @tool(read_only=True, examples=["count('a.txt') counts one file.", "count('*.md') counts all that match."])
    def count(path: str) -> int:
        """Count words."""
        return 0

    with ScriptedModel(["Done."]) as model:
        await Agent("gpt-5.5", cwd=tmp_path, base_url=model.base_url, wire="responses", tools=[count]).run("go")
        body = model.requests[0].body
    shown = "## count\n\ncount('a.txt') counts one file.\n\ncount('*.md') counts all that match."
    assert body["instructions"] == f"{base_instructions(None)}\n\n# Examples\n\n{shown}"
    assert body["tools"][0]["description"] == "Count words."  # type: ignore[index]


async def test_how_far_to_explore_follows_the_reasoning_effort(tmp_path: Path) -> None:
    told: list[str] = []
    with ScriptedModel(["Done."] * 3) as model:
        for effort in ("low", None, "high"):
            made = Agent("gpt-5.5", cwd=tmp_path, base_url=model.base_url, wire="responses", reasoning_effort=effort)
            await made.run("go")
        told = [str(request.body["instructions"]).removeprefix(BASE_INSTRUCTIONS).strip() for request in model.requests]
    assert [text.split(".")[0] for text in told] == ["Explore little", "Explore enough", "Explore thoroughly"]
    assert all("Stop exploring" in text for text in told)
    assert [base_instructions(effort) == base_instructions("low") for effort in ("none", "minimal")] == [True, True]
    assert [base_instructions(effort) == base_instructions("high") for effort in ("xhigh", "max")] == [True, True]
    assert base_instructions("medium") == base_instructions(None)


async def test_own_instructions_replace_what_is_said_of_exploring(tmp_path: Path) -> None:
    with ScriptedModel(["Done."]) as model:
        made = Agent("gpt-5.5", cwd=tmp_path, base_url=model.base_url, wire="responses", instructions="Be brief.")
        await made.run("go")
        assert model.requests[0].body["instructions"] == "Be brief."


def test_an_override_comes_first_and_fallbacks_last(tmp_path: Path) -> None:
    top = folder(tmp_path, "plain")
    (top / "CLAUDE.md").write_text("for claude")
    assert agents_text(top, fallbacks=["CLAUDE.md"]) == "plain"
    (top / "AGENTS.override.md").write_text("instead")
    assert agents_text(top, fallbacks=["CLAUDE.md"]) == "instead"
    (top / "AGENTS.override.md").write_text("  \n")
    assert agents_text(top) == "plain"
    (top / "AGENTS.md").unlink()
    assert agents_text(top) == "" and agents_text(top, fallbacks=["NONE.md", "CLAUDE.md"]) == "for claude"


def test_the_users_own_file_comes_first(tmp_path: Path) -> None:
    top, home = folder(tmp_path / "work", "of the project"), folder(tmp_path / "home", "my own")
    assert agents_text(top, home=str(home)) == "my own\n\nof the project"
    (home / "CLAUDE.md").write_text("not mine")
    (home / "AGENTS.md").unlink()
    assert agents_text(top, home=str(home), fallbacks=["CLAUDE.md"]) == "of the project"
    assert agents_text(top, home=str(tmp_path / "nowhere")) == "of the project"


def test_the_limit_holds_for_all_files_together(tmp_path: Path) -> None:
    top, home = folder(tmp_path / "work", "of the project"), folder(tmp_path / "home", "my own")
    assert agents_text(top, home=str(home), limit=8) == "my own\n\nof"
    assert agents_text(top, home=str(home), limit=0) == ""


async def test_the_settings_say_which_files_and_how_much(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("CLAUDES WORDS")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "AGENTS.md").write_text("MY WORDS")
    settings = Settings(cwd=str(tmp_path), home=str(tmp_path / "home"), project_doc_fallback_filenames=("CLAUDE.md",))
    model = InProcessModel([says("ok")])
    async with await open_session(settings, model=model, tools=[]) as session:
        await session.run("go")
    opening = model.requests[0].items[0].raw.decode()
    assert "MY WORDS" in opening and "CLAUDES WORDS" in opening

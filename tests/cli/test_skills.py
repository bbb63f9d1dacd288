"""`ferrule skills`, and which skills of a project a run tells the model of."""

import json
from pathlib import Path

import pytest

from ferrule.testing import ScriptedModel
from tests.cli.command import Done, Place

NO_HEAD = "has no head; it begins with lines `---`, `name: ...`, `description: ...` and `---`"


def write(folder: Path, name: str = "", description: str = "cuts boards") -> Path:
    folder.mkdir(parents=True)
    file = folder / "SKILL.md"
    file.write_text(f"---\nname: {name or folder.name}\ndescription: {description}\n---\nMeasure twice.\n")
    return file


@pytest.fixture
def shop(place: Place) -> Place:
    (place.cwd / ".git").mkdir()
    place.home.mkdir(parents=True)
    return place


def trust(shop: Place) -> None:
    (shop.home / "config.toml").write_text(f'[projects."{shop.cwd}"]\ntrust_level = "trusted"\n')


def exec_(shop: Place, prompt: str = "go", *flags: str) -> tuple[Done, str]:
    """Run a prompt. Returns what the first request says."""
    with ScriptedModel(["Done."]) as model:
        done = shop.run("exec", "--base-url", model.base_url, "-m", "m", "-s", "danger-full-access", *flags, prompt)
        return done, json.dumps(model.requests[0].items)


def test_without_skills_the_list_says_what_to_do(shop: Place) -> None:
    done = shop.run("skills", "list")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("there are no skills; write one to ") and "skills/NAME/SKILL.md" in done.out
    assert shop.run("skills", "list", "--json").out == ""
    assert shop.run("skills", "remove").code == 2


def test_the_list_names_yours_and_the_projects_and_those_that_are_not_used(shop: Place) -> None:
    trust(shop)
    mine = write(shop.home / "skills/saw", description="cuts \x1b[31mboards")
    theirs = write(shop.home.parent / ".agents/skills/plane")
    glue, nail = write(shop.cwd / ".agents/skills/glue"), write(shop.cwd / ".ferrule/skills/nail")
    write(shop.cwd / ".agents/skills/other", "saw")
    (shop.home / "skills/odd").mkdir()
    (shop.home / "skills/odd/SKILL.md").write_text("no head")
    done = shop.run("skills", "list", "-c", "skills.config=[{name='plane', enabled=false}]")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"saw: cuts [31mboards  (user, {mine})",
        f"nail: cuts boards  (project, {nail})",
        f"glue: cuts boards  (project, {glue})",
        f"plane: cuts boards  (user, {theirs})  (switched off)",
        f"not used: {shop.home}/skills/odd/SKILL.md {NO_HEAD}",
        f"not used: {shop.cwd}/.agents/skills/other/SKILL.md has the name of {mine}, which is used",
    ]
    done = shop.run("skills", "list", "--json")
    assert [line["name"] for line in done.lines] == ["saw", "plane", "nail", "glue"]
    assert done.lines[2] == {
        "name": "nail", "description": "cuts boards", "scope": "project", "path": str(nail), "enabled": True,
    }  # fmt: skip
    assert done.err.count("it is passed over") == 2
    assert all(not line["enabled"] for line in shop.run("skills", "list", "--json", "-c", "skills.enabled=false").lines)


def test_a_projects_skills_are_told_only_as_confirmed(shop: Place) -> None:
    file = write(shop.cwd / ".agents/skills/glue")
    done, said = exec_(shop, "use $glue")
    assert done.code == 0 and "skills_instructions" not in said and "Measure" not in said
    assert ".agents/skills/glue/SKILL.md" in done.err and "ferrule trust" in done.err
    shown = shop.run("trust", "--yes")
    assert "skill glue: the model reads it when it is of use: cuts boards" in shown.out
    done, said = exec_(shop, "use $glue")
    assert f"- glue: cuts boards (file: {file})" in said and "Measure twice." in said and "trust" not in done.err
    file.write_text(file.read_text().replace("cuts", "burns"))
    done, said = exec_(shop, "use $glue")
    assert "burns" not in said and "SKILL.md (changed)" in done.err


def test_a_trusted_project_and_a_user_who_switches_all_off(shop: Place) -> None:
    trust(shop)
    write(shop.cwd / ".agents/skills/glue")
    write(shop.home / "skills/saw")
    assert all(name in exec_(shop)[1] for name in ("- glue: ", "- saw: "))
    assert "skills_instructions" not in exec_(shop, "go", "-c", "skills.enabled=false")[1]


def test_bad_skills_of_a_project_do_not_stop_a_run(shop: Place) -> None:
    trust(shop)
    write(shop.cwd / ".agents/skills/glue")
    (shop.cwd / ".agents/skills/way_out").symlink_to(shop.home)
    (shop.home / "SKILL.md").write_text("---\nname: secret\ndescription: s\n---\n")
    done, said = exec_(shop)
    assert done.code == 0 and "- glue: " in said and "secret" not in said
    assert "leads out of" in done.err and done.err.count("way_out") == 1

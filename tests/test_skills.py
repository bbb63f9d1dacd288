"""Skills on disk, and the heads of Markdown files, as people write them."""

import os
import time
from pathlib import Path

import pytest

from ferrule.front_matter import front_matter
from ferrule.skills import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DESCRIPTION,
    MAX_ENTRIES,
    MAX_NAME,
    MAX_TOTAL,
    BadSkill,
    Skill,
    SkillFile,
    read_skill,
    skill_files,
    user_skills,
    without_doubles,
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("plain text", "plain text"),
        ("with: a colon and a # that stays#here", "with: a colon and a"),
        ("'it''s quoted' # not this", "it's quoted"),
        (r'"say \"hi\" \u00e9 \\ \n."', 'say "hi" é \\ \n.'),
        ('"over two\n  lines"', "over two lines"),
        ("first\n  and second", "first and second"),
        ("\n  all\n  below", "all below"),
        (">-\n  one\n  two\n\n  three", "one two\nthree"),
        ("|\n  one\n    two\n\n  three", "one\n  two\n\nthree"),
        ("|2+ # as it is\n  one", "one"),
        ("[a, b]", "[a, b]"),
        ("~", ""),
        ("null", ""),
        ("", ""),
        ('"never closed', '"never closed'),
    ],
)
def test_a_field_is_read_as_it_is_written(written: str, read: str) -> None:
    head = (
        f"---\n# a remark\nname: x\n- y: z\ntext: {written}\nmetadata:\n  text: no\n  list:\n  - 1\nend: 1\n---\nbody\n"
    )
    for text in (head, "\ufeff" + head, head.replace("\n", "\r\n")):
        fields, body = front_matter(text)
        assert (fields["name"], fields["text"], fields["end"], body) == ("x", read, "1", "body\n")
        assert set(fields) == {"name", "text", "metadata", "end"}


@pytest.mark.parametrize(
    "text", ["", "body", "---", "---\nname: x\nbody", " ---\nname: x\n---\n", "x\n---\nname: x\n---"]
)
def test_a_text_without_a_whole_head_has_no_fields(text: str) -> None:
    assert front_matter(text) == ({}, text)


def test_a_head_of_any_kind_is_read_in_no_time() -> None:
    started = time.monotonic()
    for line in (
        "a" + " " * 200_000,
        "'" * 200_000,
        '"' + "\\" * 200_000,
        "a: '" + "''" * 100_000,
        "a: #" + " #" * 100_000,
    ):
        front_matter(f"---\n{line}\n---\n")
        front_matter("---\n" + f"{line[:20]}\n" * 10_000 + "---\n")
    assert time.monotonic() - started < 20


def write(folder: Path, text: str = "---\nname: {}\ndescription: does {}\n---\nbody\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "SKILL.md"
    file.write_text(text.replace("{}", folder.name))
    return file


def paths(top: Path) -> dict[str, str]:
    """What is found below `top`: each path, and why it is not used."""
    return {one.path: one.text if isinstance(one, BadSkill) else "" for one in skill_files(str(top), "skills")}


def test_skills_are_found_at_any_depth_and_nothing_inside_one_is(tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    for name in ("one", "group/two", "one/inner", ".hidden", "/".join("deep" for _ in range(MAX_DEPTH + 2))):
        write(skills / name)
    (skills / "README.md").write_text("about these")
    (skills / "empty").mkdir()
    assert paths(tmp_path) == {"skills/one/SKILL.md": "", "skills/group/two/SKILL.md": ""}
    assert paths(tmp_path / "nowhere") == {}


def test_what_is_no_regular_file_inside_is_told_and_not_read(tmp_path: Path) -> None:
    top = tmp_path / "top"
    outside = write(tmp_path / "outside")
    skills = top / "skills"
    write(skills / "good")
    (skills / "pipe").mkdir()
    os.mkfifo(skills / "pipe" / "SKILL.md")
    (skills / "way_out").symlink_to(outside.parent)
    (skills / "file_out").mkdir()
    (skills / "file_out" / "SKILL.md").symlink_to(outside)
    (skills / "loop").symlink_to("loop")
    (skills / "folder" / "SKILL.md").mkdir(parents=True)
    write(skills / "huge", "x" * (MAX_BYTES + 1))
    (skills / "beside").symlink_to("good")
    found = paths(top)
    assert {path.split("/")[1]: why.split(" out ")[0] for path, why in found.items()} == {
        "good": "", "beside": "", "pipe": "is a named pipe, not a file", "way_out": "leads", "file_out": "leads",
        "loop": "is a link that leads to itself", "folder": "is a folder, not a file", "huge": "is larger than 256 KiB",
    }  # fmt: skip


def test_a_folder_with_too_much_in_it_is_told(tmp_path: Path) -> None:
    for n in range(3):
        for m in range(MAX_ENTRIES // 2 - 1):
            (tmp_path / "skills" / str(n) / str(m)).mkdir(parents=True)
    [why] = paths(tmp_path).values()
    assert why.startswith(f"holds more than {MAX_ENTRIES}")


def test_what_nobody_has_confirmed_takes_little_memory(tmp_path: Path) -> None:
    for n in range(MAX_TOTAL // MAX_BYTES + 2):
        write(tmp_path / "skills" / f"{n:03}", "")
        os.truncate(tmp_path / "skills" / f"{n:03}" / "SKILL.md", MAX_BYTES)
    found = paths(tmp_path)
    assert len(found) == MAX_TOTAL // MAX_BYTES + 1
    assert found["skills"] == "holds more than 16 MiB; the rest is not read"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("no head", "has no head"),
        ("---\nname: x\n", "has no head"),
        ("---\ndescription: d\n---\n", "says no name"),
        ("---\nname: x\n---\n", "says no description"),
        ("---\nname: x\ndescription: ''\n---\n", "says no description"),
        (f"---\nname: {'x' * (MAX_NAME + 1)}\ndescription: d\n---\n", "has a name of 65"),
        (f"---\nname: x\ndescription: {'d' * (MAX_DESCRIPTION + 1)}\n---\n", "has a description of 1025"),
    ],
)
def test_a_skill_without_what_it_needs_is_not_used(head: str, why: str) -> None:
    bad = read_skill(SkillFile("p", head.encode()), "user")
    assert isinstance(bad, BadSkill) and bad.text.startswith(why)


def test_names_and_descriptions_are_one_line_without_control_characters() -> None:
    head = b"---\nname: x\x1b[31m\ndescription: |\n  one\n  \xff two\x07\n---\n"
    skill = read_skill(SkillFile("p", head), "user")
    assert isinstance(skill, Skill) and (skill.name, skill.description) == ("x [31m", "one \ufffd two")


def test_the_first_of_a_name_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "home/skills/one")
    write(tmp_path / ".agents/skills/one")
    write(tmp_path / ".agents/skills/two")
    found = list(without_doubles(user_skills(str(tmp_path / "home"))))
    assert [type(one).__name__ for one in found] == ["Skill", "BadSkill", "Skill"]
    again = list(without_doubles([*user_skills(str(tmp_path / "home")), *user_skills(str(tmp_path / "home"))]))
    assert again == found
    (tmp_path / "home/skills/one/SKILL.md").unlink()
    (tmp_path / "home/skills/one").rmdir()
    (tmp_path / "home/skills").rmdir()
    (tmp_path / "home/skills").symlink_to(tmp_path / ".agents/skills")
    found = list(without_doubles(user_skills(str(tmp_path / "home"))))
    assert [one.path for one in found] == [str(tmp_path / f".agents/skills/{name}/SKILL.md") for name in ("one", "two")]

"""Trust is given to content: the record of what was confirmed, and what is read by it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.config import Sources, load
from ferrule.config.project import MAX_BYTES, MAX_FILES, find_files
from ferrule.config.trust import ProjectReading, Record, RecordProblem, TrustRecords, changes, read_project
from tests.cli.command import SOURCE
from tests.config.home import Home

FILES = {
    ".mcp.json": '{"mcpServers": {"docs": {"command": "docs"}}}',
    ".ferrule/config.toml": 'model = "theirs"\n[[hooks.Stop]]\ncommand = ".ferrule/hooks/stop"\n',
    ".ferrule/rules/a.rules": 'prefix_rule(pattern=["git", "fetch"])\n',
    ".ferrule/hooks/stop": "#!/bin/sh\n",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path.resolve())
    for path, text in FILES.items():
        (made.project / path).parent.mkdir(parents=True, exist_ok=True)
        (made.project / path).write_text(text)
    return made


def records(home: Home) -> TrustRecords:
    return TrustRecords(str(home.path))


def read(home: Home, wish: str | None = "trusted") -> ProjectReading:
    return read_project(str(home.project), str(home.path), wish)  # type: ignore[arg-type]


def paths(reading: ProjectReading) -> set[str]:
    return {file.path for file in reading.files}


def test_s04_at_first_sight_what_stands_is_recorded_and_from_then_on_the_record_counts(home: Home) -> None:
    assert paths(read(home)) == set(FILES)
    for path, text in FILES.items():
        (home.project / path).write_text(text + "\n")
        reading = read(home)
        assert paths(reading) == set(FILES) - {path}
        (warning,) = reading.warnings
        assert f"{path} (changed)" in warning and f"`ferrule trust -C {home.project}`" in warning
        (home.project / path).write_text(text)
        assert paths(read(home)) == set(FILES)


def test_s04_a_project_seen_empty_reads_nothing_that_comes_later(tmp_path: Path) -> None:
    home = Home(tmp_path.resolve())
    assert read(home) == ProjectReading(top=str(home.project), trusted=True)
    for path, text in FILES.items():
        (home.project / path).parent.mkdir(parents=True, exist_ok=True)
        (home.project / path).write_text(text)
    reading = read(home)
    assert reading.files == () and len(reading.warnings) == 1
    assert {(change.path, change.how) for change in reading.unconfirmed} == {(path, "new") for path in FILES}
    records(home).confirm(str(home.project), reading.unconfirmed, "trusted")
    assert paths(read(home)) == set(FILES)


def test_only_what_was_shown_is_confirmed(home: Home) -> None:
    shown = read(home, None).unconfirmed
    (home.project / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "evil"}}}')
    records(home).confirm(str(home.project), shown, None)
    assert paths(read(home, None)) == set(FILES) - {".mcp.json"}


def test_the_wish_in_the_configuration_ends_with_it(home: Home) -> None:
    read(home, "trusted")
    assert read(home, None).files == () and read(home, "untrusted") == ProjectReading(top=str(home.project))
    assert paths(read(home, "trusted")) == set(FILES)
    records(home).confirm(str(home.project), read(home, None).unconfirmed, None)
    assert paths(read(home, None)) == set(FILES), "given by the command: it needs no wish"
    assert not read(home, "untrusted").trusted


def test_what_was_taken_back_is_not_given_again_by_the_wish(home: Home) -> None:
    read(home)
    records(home).revoke(str(home.project))
    reading = read(home)
    assert not reading.trusted and reading.files == () and len(reading.warnings) == 1
    records(home).confirm(str(home.project), reading.unconfirmed, "trusted")
    assert paths(read(home)) == set(FILES)


def test_a_file_that_is_gone_is_told_where_it_could_forbid_something(home: Home) -> None:
    read(home)
    (home.project / ".mcp.json").unlink()
    (home.project / ".ferrule/hooks/stop").unlink()
    assert read(home).warnings == ()
    (home.project / ".ferrule/rules/a.rules").unlink()
    (warning,) = read(home).warnings
    assert warning.startswith(".ferrule/rules/a.rules in ") and "gone since you confirmed it" in warning
    records(home).confirm(str(home.project), read(home).unconfirmed, "trusted")
    assert read(home).warnings == () and read(home).unconfirmed == ()


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"project": "/other", "trust": "given", "files": {}}', b'{"project": 1}', b"\xff",
     b'{"a":' * 100_000, b'{"project": "x", "trust": "yes", "files": {}}'],
)  # fmt: skip
def test_a_damaged_record_is_one_warning_and_trusts_nothing(home: Home, damage: bytes) -> None:
    read(home)
    (path,) = records(home).folder.glob("*.json")
    path.write_bytes(damage)
    reading = read(home)
    assert reading.files == () and not reading.trusted
    (warning,) = reading.warnings
    assert str(path) in warning and "damaged" in warning and "ferrule trust" in warning
    records(home).confirm(str(home.project), reading.unconfirmed, "trusted")
    assert paths(read(home)) == set(FILES)


def test_a_record_that_is_no_file_is_damaged(home: Home) -> None:
    read(home)
    (path,) = records(home).folder.glob("*.json")
    path.unlink()
    os.mkfifo(path)
    reading = read(home)
    assert reading.files == () and "is a named pipe" in reading.warnings[0]


def test_without_a_place_for_records_nothing_is_read(home: Home) -> None:
    records(home).folder.write_text("in the way")
    reading = read(home)
    assert reading.files == () and "cannot be recorded in" in reading.warnings[0]


def test_a_lock_that_is_held_is_waited_for_only_so_long(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.config.trust.LOCK_SECONDS", 0.1)
    store = records(home)
    with store._locked(), pytest.raises(RecordProblem, match="another program has held its lock"):
        store.revoke(str(home.project))
    store.revoke(str(home.project))


CONFIRM = """
import sys
from pathlib import Path
from ferrule.config.trust import TrustRecords, changes
from ferrule.config.project import Found, ProjectFile
home, top, number = sys.argv[1:]
for turn in range(20):
    file = ProjectFile("rules", f".ferrule/rules/{number}-{turn}.rules", b"x")
    TrustRecords(home).confirm(top, changes(Found((file,)), None), None)
"""


def test_processes_that_confirm_at_once_lose_nothing(home: Home) -> None:
    top = str(home.project)
    command = [sys.executable, "-c", CONFIRM, str(home.path), top]
    running = [subprocess.Popen([*command, str(n)], env=os.environ | {"PYTHONPATH": SOURCE}) for n in range(6)]
    assert [process.wait(30) for process in running] == [0] * 6
    record = records(home).read(top)
    assert record is not None and len(record.files) == 6 * 20
    assert sorted(path.name for path in records(home).folder.iterdir()) == sorted(
        [records(home)._path(top).name, "lock"]
    )


def test_two_first_sights_at_once_agree(home: Home) -> None:
    """Both have read the files; the one that comes second takes the record of the first, not its own reading."""
    top = str(home.project)
    late = find_files(top)
    (home.project / ".mcp.json").unlink()
    records(home).first_sight(top, find_files(top))
    record = records(home).first_sight(top, late)
    assert [change.path for change in changes(late, record)] == [".mcp.json"]


def test_names_that_are_no_text_are_recorded(home: Home) -> None:
    strange = os.fsencode(home.project / ".ferrule/rules") + b"/\xff\n.rules"
    with open(strange, "wb") as file:  # noqa: PTH123 - no Path can hold it on every system
        file.write(b"# none\n")
    read(home)
    assert read(home).unconfirmed == () and len(read(home).files) == len(FILES) + 1
    for rules in home.user(home.trust).load().settings.project_rules:
        assert rules.path.encode().endswith(b".rules")


def test_s04_other_trusted_projects_are_seen_before_a_command_can_write_there(home: Home) -> None:
    below, later = home.project / "below", home.project / "later"
    (below / ".git").mkdir(parents=True)
    wishes = "".join(f'[projects."{path}"]\ntrust_level = "trusted"\n' for path in (below, later))
    home.user(home.trust + wishes).load()
    for top in (below, later):
        (top / ".ferrule").mkdir(parents=True)
        (top / ".ferrule" / "config.toml").write_text('model = "planted"')
        loaded = load(Sources(cwd=str(top)), {"FERRULE_HOME": str(home.path)})
        if top is below:
            assert loaded.settings.model.model is None and "config.toml (new)" in loaded.warnings[0]
    (later / ".git").mkdir()
    loaded = load(Sources(cwd=str(later)), {"FERRULE_HOME": str(home.path)})
    assert loaded.settings.model.model is None and "config.toml (new)" in loaded.warnings[0]


BROKEN = {
    "pipe": "is a named pipe, not a file",
    "folder": "is a folder, not a file",
    "out": "leads out of",
    "endless": "leads out of",
    "big": "is larger than",
}


@pytest.mark.parametrize("path", [path for path in FILES if not path.endswith(("a.rules", "stop"))])
@pytest.mark.parametrize("kind", BROKEN)
def test_s04_a_file_that_cannot_be_read_is_one_warning(home: Home, path: str, kind: str) -> None:
    file = home.project / path
    read(home)
    file.unlink()
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "out":
            file.symlink_to(home.path / "config.toml")
        case "endless":
            file.symlink_to("/dev/zero")
        case "big":
            file.write_bytes(b" " * ((256 << 10) + 1))
    home.user(home.trust)
    loaded = home.load()
    mine = [warning for warning in loaded.warnings if BROKEN[kind] in warning]
    assert len(mine) == 1 and mine[0].startswith(f"{file} "), loaded.warnings
    assert loaded.settings.trusted


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".mcp.json", "{"),
        (".mcp.json", "[]"),
        (".mcp.json", "[" * 100_000),
        (".mcp.json", '{"mcpServers": []}'),
        (".mcp.json", '{"mcpServers": {"docs": {}}}'),
        (".mcp.json", '{"mcpServers": {"docs": {"command": 1}}}'),
        (".mcp.json", '{"mcpServers": {"docs": {"type": "sse", "url": "http://x"}}}'),
        (".ferrule/config.toml", "model ="),
        (".ferrule/config.toml", "x = " + "[" * 50_000),
        (".ferrule/config.toml", "x = " + "9" * 5000),
        (".ferrule/config.toml", "no_such_key = 1"),
        (".ferrule/config.toml", "model = 1"),
        (".ferrule/config.toml", "model = '\xff'"),
        (".ferrule/config.toml", '[[hooks.Stop]]\ncommand = "x"\nmatcher = "("'),
        (".ferrule/config.toml", '[mcp_servers.docs]\napproval = "prompt"\nurl = "x"'),
    ],
)
def test_s04_what_is_wrong_in_a_file_of_the_project_is_one_warning(home: Home, path: str, text: str) -> None:
    (home.project / path).write_bytes(text.encode("latin-1"))
    loaded = home.user(home.trust).load()
    (warning,) = loaded.warnings
    assert "passed over" in warning and (path in warning or "docs" in warning)
    assert loaded.settings.trusted


def test_hooks_wait_until_their_programs_are_confirmed(home: Home) -> None:
    assert [hook.of_project for hook in home.user(home.trust).load().settings.hooks] == [True]
    program = home.project / ".ferrule/hooks/stop"
    for change in ("changed", "new", "gone", "linked"):
        match change:
            case "changed":
                program.write_text("#!/bin/sh\nevil")
            case "new":
                program.write_text(FILES[".ferrule/hooks/stop"])
                (program.parent / "more").touch()
            case "gone":
                (program.parent / "more").unlink()
                program.unlink()
            case _:
                program.symlink_to("/bin/true")
        loaded = home.load()
        assert loaded.settings.hooks == () and loaded.settings.model.model == "theirs", change
        assert any("do not run" in warning for warning in loaded.warnings)


def test_too_many_files_are_one_warning(home: Home) -> None:
    for number in range(MAX_FILES + 1):
        (home.project / ".ferrule/rules" / f"{number}.rules").touch()
    (warning,) = (warning for warning in home.user(home.trust).load().warnings if "more than" in warning)
    assert f"holds more than {MAX_FILES} files" in warning


def test_the_users_own_broken_file_ends_the_start(home: Home) -> None:
    os.mkfifo(home.path / "config.toml")
    with pytest.raises(Exception, match=r"config\.toml is a named pipe, not a file"):
        load(Sources(cwd=str(home.project)), {"FERRULE_HOME": str(home.path)})


def test_what_is_read_is_bounded() -> None:
    assert set(MAX_BYTES) == {"settings", "servers", "rules", "program"}


def test_a_record_tells_who_trusts(home: Home) -> None:
    read(home)
    assert list(records(home).all()) == [
        Record(str(home.project), "wished", {file.path: file.digest for file in find_files(str(home.project)).files})
    ]

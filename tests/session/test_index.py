"""The index of stored sessions: always what the files say."""

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule.protocol.errors import UsageError
from ferrule.session.index import INDEX_FILE, SessionIndex, locate
from ferrule.session.lines import SessionMeta
from ferrule.session.rollout import Rollout, new_session_id, read_rollout
from tests.session.models import says


def line(kind: str, payload: Any) -> bytes:
    return msgspec.json.encode({"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}) + b"\n"


def user(text: str) -> bytes:
    return line("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})


class Home:
    """Makes sessions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = SessionIndex(str(folder))

    def session(self, cwd: str, *prompts: str, parent: str | None = None) -> str:
        session_id = new_session_id()
        rollout = Rollout.create(str(self.folder), session_id)
        rollout.meta(SessionMeta(session_id, "2026-01-01T00:00:00.000Z", cwd, parent_thread_id=parent))
        rollout.close()
        with rollout.path.open("ab") as file:
            file.write(user("# AGENTS.md instructions for here"))
            for prompt in prompts:
                file.write(line("turn_context", {"cwd": cwd, "approval_policy": "never", "model": "m",
                                                 "sandbox_policy": {"type": "read-only"}}))  # fmt: skip
                file.write(user(prompt))
                file.write(line("response_item", msgspec.json.decode(msgspec.json.encode(says(f"done {prompt}")))))
        return session_id

    def ids(self, **wanted: Any) -> list[str]:
        return [entry.id for entry in self.index.entries(**wanted)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_sessions_are_listed_by_directory_the_newest_first(home: Home) -> None:
    first, second, third = home.session("/a", "one"), home.session("/b", "two"), home.session("/a", "three", "four")
    home.session("/a", "child", parent=third)
    assert home.ids() == [third, second, first] and home.ids(cwd="/a") == [third, first]
    entry = home.index.find(third)
    assert (entry.prompt, entry.turns, entry.cwd, entry.archived) == ("three", 2, "/a", False)
    os.utime(home.index.find(first).path)
    assert home.ids()[0] == first


def test_a_session_is_found_by_id_beginning_and_name(home: Home) -> None:
    first, second = home.session("/a", "one"), home.session("/a", "two")
    assert home.index.rename(first, "my work").name == "my work"
    assert home.index.find("my work").id == home.index.find(first[:-1]).id == first
    assert locate(str(home.folder), "my work") == Path(home.index.find(first).path)
    with pytest.raises(UsageError, match="2 sessions are meant"):
        home.index.find(first[:5])
    with pytest.raises(UsageError, match="no session has the id or the name"):
        home.index.find("nobody")
    with pytest.raises(UsageError, match="another session has the name"):
        home.index.rename(second, "my work")
    with pytest.raises(UsageError, match="a line of text"):
        home.index.rename(second, "a\nb")
    home.index.rename(first, "other")
    assert home.index.find("other").id == first
    with pytest.raises(UsageError):
        home.index.find("my work")


def test_the_index_is_made_from_the_files_again(home: Home) -> None:
    first = home.session("/a", "one")
    home.index.rename(first, "work")
    before = home.index.entries()
    file = home.folder / "sessions" / INDEX_FILE
    for damage in (b"", b"not a database" * 100):
        file.write_bytes(damage)
        assert home.index.entries() == before
    file.unlink()
    assert home.index.entries() == before
    with sqlite3.connect(file) as database:
        database.execute("create table other (x)")
        database.execute("pragma user_version = 99")
    assert home.index.entries() == before


def test_what_is_appended_is_taken_in_and_a_torn_line_waits(home: Home) -> None:
    first = home.session("/a", "one")
    path = Path(home.index.find(first).path)
    whole = line("turn_context", {"cwd": "/a"})
    with path.open("ab") as file:
        file.write(whole[:70])
    assert home.index.find(first).turns == 1
    with path.open("ab") as file:
        file.write(whole[70:])
    assert home.index.find(first).turns == 2
    path.write_bytes(path.read_bytes()[:200])
    assert home.index.find(first).turns == 0


def test_words_in_a_message_are_no_events(home: Home) -> None:
    trap = '{"type":"event_msg","payload":{"type":"session_renamed","message":"trap"}} "type":"turn_context"'
    first = home.session("/a", trap)
    entry = home.index.find(first)
    assert (entry.name, entry.turns) == ("", 1) and entry.prompt.startswith('{"type"')


def test_a_fork_is_a_copy_up_to_a_turn(home: Home) -> None:
    first = home.session("/a", "one", "two", "three")
    home.index.rename(first, "work")
    whole, part = home.index.fork("work"), home.index.fork(first, 2)
    assert len({first, whole, part}) == 3
    assert home.index.find(whole).turns == 3 and home.index.find(part).turns == 2 and not home.index.find(part).name
    stored = read_rollout(Path(home.index.find(part).path))
    assert (stored.meta.id, stored.meta.forked_from_id) == (part, first) and not stored.damage
    assert "done two" in str(stored.responses) and "three" not in str(stored.responses)
    for turns in (0, 4):
        with pytest.raises(UsageError, match="has 3 turns"):
            home.index.fork(first, turns)


def test_archived_and_removed_sessions_are_not_listed(home: Home) -> None:
    first, second = home.session("/a", "one"), home.session("/a", "two")
    moved = home.index.archive(first)
    assert moved.archived and Path(moved.path).is_file()
    assert home.ids() == [second] and home.ids(archived=True) == [first]
    assert locate(str(home.folder), first) == Path(moved.path)
    gone = home.index.remove(second)
    assert not Path(gone.path).exists() and home.ids() == []


def test_the_newest_is_that_of_a_directory_and_no_childs(home: Home) -> None:
    first = home.session("/a", "one")
    second = home.session("/b", "two")
    home.session("/a", "child", parent=second)
    where = str(home.folder)
    newest = locate(where, None)
    assert newest.name.endswith(f"{second}.jsonl") and locate(where, str(newest)) == newest
    assert locate(where, None, "/a").name.endswith(f"{first}.jsonl")
    with pytest.raises(UsageError, match="no session was begun in /c; --all"):
        locate(where, None, "/c")
    with pytest.raises(UsageError, match="there is no session file"):
        locate(where, "/nowhere/x.jsonl")


def test_a_home_without_sessions_lists_none(home: Home) -> None:
    assert home.index.entries() == [] and not list(home.folder.iterdir())


def test_an_index_that_another_program_holds_is_neither_waited_for_nor_replaced(home: Home) -> None:
    first = home.session("/a", "one")
    assert home.ids() == [first]
    file = home.folder / "sessions" / INDEX_FILE
    before = file.stat().st_ino
    holder = sqlite3.connect(file, isolation_level=None)
    try:
        holder.execute("begin exclusive")
        second = home.session("/a", "two")
        assert home.ids() == [second, first]
        assert file.stat().st_ino == before
    finally:
        holder.close()
    assert home.ids() == [second, first] and file.stat().st_ino == before


def test_strange_files_among_the_sessions_harm_no_other(home: Home) -> None:
    good, strange = home.session("/a", "one"), home.session("/b", "two")
    path = locate(str(home.folder), strange)
    path.write_bytes(path.read_bytes().replace(b'"/b"', b'"/b\\u0000"'))
    pipe = new_session_id()
    os.mkfifo(path.with_name(path.name.replace(strange, pipe)))
    assert home.ids(cwd="/a") == [good]
    with pytest.raises(UsageError, match="no session has"):
        locate(str(home.folder), pipe)


def test_a_name_may_look_like_a_path(home: Home) -> None:
    path = locate(str(home.folder), home.session("/a", "one"))
    for name in ("feat/login", "notes.jsonl"):
        home.index.rename(path.stem[-36:], name)
        assert locate(str(home.folder), name) == path
    with pytest.raises(UsageError, match="there is no session file a/b"):
        locate(str(home.folder), "a/b")


def test_an_archived_session_is_never_replaced(home: Home) -> None:
    session = home.session("/a", "one")
    path = locate(str(home.folder), session)
    target = home.folder / "archived_sessions" / path.name
    target.parent.mkdir()
    other = target.with_name("elsewhere")
    other.write_text("another one")
    target.symlink_to(other)
    other.unlink()  # the index does not see it
    with pytest.raises(UsageError, match="another session is archived in"):
        home.index.archive(session)
    assert path.exists() and target.is_symlink()
    target.unlink()
    archived = home.index.archive(session)
    assert home.index.archive(session) == archived


def test_a_copy_that_fails_leaves_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = locate(str(home.folder), home.session("/a", "one"))
    before = sorted(path.parent.iterdir())

    def full(*args: Any) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ferrule.session.index._forked", full)
    with pytest.raises(UsageError, match="No space left"):
        home.index.fork(path.stem[-36:])
    assert sorted(path.parent.iterdir()) == before

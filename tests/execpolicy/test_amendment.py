"""Rules that the user adds by an answer."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.execpolicy import AmendmentError, PolicyStore, Rules, load_rules
from ferrule.execpolicy.amendment import append_rule, rule_line
from ferrule.execpolicy.evaluate import evaluate
from ferrule.protocol.approvals import ExecPolicyAmendment


def test_an_amendment_is_stored_and_live_at_once(tmp_path: Path) -> None:
    path = tmp_path / "home/rules/default.rules"
    store = PolicyStore(Rules(), path)
    before = store.rules
    store.amend(ExecPolicyAmendment(("gh", "api")))
    assert store.rules.match(["gh", "api", "x"]).found
    assert not before.match(["gh", "api", "x"]).found
    assert load_rules([path]).match(["gh", "api", "x"]).found
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_rule_for_an_exact_command_stays_exact_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"
    store = PolicyStore(Rules(), path)
    store.amend(ExecPolicyAmendment(("touch", "x"), exact=True))
    for rules in (store.rules, load_rules([path])):
        assert rules.match(["touch", "x"]).found
        assert not rules.match(["touch", "x", "y"]).found
        assert not rules.match(["touch"]).found


def test_appending_keeps_what_is_there_and_adds_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"
    path.write_text('# mine\nprefix_rule(pattern=["a"])')
    for _ in range(2):
        append_rule(path, ExecPolicyAmendment(("b", "c")))
    assert path.read_text() == '# mine\nprefix_rule(pattern=["a"])\nprefix_rule(pattern=["b", "c"], decision="allow")\n'


def test_many_sessions_may_append_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"
    code = (
        "import sys; from pathlib import Path\n"
        "from ferrule.execpolicy.amendment import append_rule\n"
        "from ferrule.protocol.approvals import ExecPolicyAmendment\n"
        "for i in range(40): append_rule(Path(sys.argv[1]), ExecPolicyAmendment((sys.argv[2], str(i))))\n"
        "append_rule(Path(sys.argv[1]), ExecPolicyAmendment(('shared',)))\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abcd"]
    assert [child.wait(timeout=30) for child in children] == [0, 0, 0, 0]
    lines = path.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 161


def opened(path: Path) -> int:
    """How many descriptors of this process are this file."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(os.path.realpath(link) == str(path) for link in links)


def test_a_lock_that_somebody_keeps_stops_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        append_rule(path, ExecPolicyAmendment(("a",)))
    assert path.read_text() == rule_line(ExecPolicyAmendment(("a",)))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs to see who has opened a file")
def test_what_another_session_wrote_meanwhile_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "default.rules"
    amendment = ExecPolicyAmendment(("a",))
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = threading.Thread(target=append_rule, args=(path, amendment))
        waiting.start()
        deadline = time.monotonic() + 10
        while opened(path) < 2:
            assert waiting.is_alive() and time.monotonic() < deadline
            time.sleep(0.005)
        file.write(rule_line(amendment))
    waiting.join(10)
    assert path.read_text() == rule_line(amendment)


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = PolicyStore(Rules(), tmp_path / "file/default.rules")
    with pytest.raises(AmendmentError, match=r"default\.rules"):
        store.amend(ExecPolicyAmendment(("a",)))
    assert not store.rules


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_words_come_back_from_the_file_as_they_were(words: list[str]) -> None:
    (rule,) = evaluate(rule_line(ExecPolicyAmendment(tuple(words))), "f").prefix
    assert [choices[0] for choices in rule.pattern] == words

"""What users have met with commands and terminals, through the tools and with the text that a model reads."""

import time

import pytest

from ferrule.protocol.truncation import OutputBudget
from tests.builtin.conftest import Benches
from tests.builtin.test_exec_cases import SHELLS, code, run
from tests.builtin.workbench import Bench, body, field, session_id
from tests.programs import need

LITERAL = [
    ("printf '%s' ' != '", " != "),
    ('echo "a != b"', "a != b\n"),
    ('python3 -c "print(1 != 2)"', "True\n"),
    ("! false; echo $?", "0\n"),
    ("[[ a != b ]] && echo 'yes!'", "yes!\n"),
    ("echo '\\!' \"\\!\"", "\\! \\!\n"),
]


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize(("script", "output"), LITERAL)
async def test_n023_an_exclamation_mark_stays_as_it_is(bench: Bench, name: str, script: str, output: str) -> None:
    assert body(await run(bench, name, script)) == output


async def test_n023_nor_does_a_terminal_change_it(bench: Bench) -> None:
    for script, output in LITERAL:
        text = await bench.call("exec_command", cmd=script, tty=True)
        assert body(text).replace("\r\n", "\n") == output
    number = session_id(await bench.call("exec_command", cmd="bash --norc", tty=True, yield_time_ms=250))
    text = await bench.call("write_stdin", session_id=number, chars="PS1=; printf '%s' 'a != b'; exit\n")
    assert "a != b" in body(text) and "a \\!= b" not in body(text)


@pytest.mark.parametrize("name", SHELLS)
async def test_n026_the_syntax_of_bash_works(bench: Bench, name: str) -> None:
    script = "diff <(echo a) <(echo b); [[ ab == a* ]] && echo like; a=(x y); echo ${a[1]} ${#a[@]}; cat <<< z"
    assert body(await run(bench, name, script)) == "1c1\n< a\n---\n> b\nlike\ny 2\nz\n"


@pytest.mark.parametrize("name", SHELLS)
async def test_n028_the_end_of_a_long_output_is_seen(benches: Benches, name: str) -> None:
    bench = benches(budget=OutputBudget(200))
    text = await run(bench, name, "seq 1 200000; echo FATAL >&2; exit 1")
    assert code(text) == 1
    assert body(text).endswith("\nFATAL\n")
    assert len(text) < 2000


@pytest.mark.parametrize("name", SHELLS)
async def test_n029_an_error_behind_huge_lines_is_seen(benches: Benches, name: str) -> None:
    bench = benches(budget=OutputBudget(300))
    script = "for i in 1 2 3 4; do head -c 40000 /dev/zero | tr '\\0' x; echo; done; echo 'error[E0001]: no'; exit 101"
    text = await run(bench, name, script)
    assert (code(text), body(text).endswith("\nerror[E0001]: no\n")) == (101, True)


async def test_n031_the_spelling_of_an_interrupt_is_none(bench: Bench) -> None:
    script = "trap 'echo interrupted; exit 3' INT; echo ready; while read -r line; do echo \"<$line>\"; done"
    number = session_id(await bench.call("exec_command", cmd=script, tty=True, yield_time_ms=250))
    await bench.host.until(lambda: "ready" in bench.host.live())
    text = await bench.call("write_stdin", session_id=number, chars="\\x03\n", yield_time_ms=1000)
    assert "<\\x03>" in body(text) and "running" in text
    text = await bench.call("write_stdin", session_id=number, chars="\x03", yield_time_ms=10_000)
    assert (field(text, "Process exited with code"), "interrupted" in body(text)) == ("3", True)


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize(
    "script",
    ["python3 -c 'input()'", "read line; test $? = 1 && false", "cat; false", "select x in a b; do :; done; false"],
)
async def test_n032_without_a_terminal_nothing_waits_for_input(bench: Bench, name: str, script: str) -> None:
    started = time.monotonic()
    assert code(await run(bench, name, script)) == 1
    assert time.monotonic() - started < 30


async def test_n032_with_a_terminal_they_can_be_used(bench: Bench) -> None:
    need("less")
    for script, keys, shown in [
        ("read -s -p 'secret: ' x; echo; echo got ${#x}", "four\n", "got 4"),
        ("select x in one two; do echo chose $x; break; done", "2\n", "chose two"),
        ("seq 100 > f; less f; echo left", "q", "left"),
    ]:
        before = len(bench.host.live())
        number = session_id(await bench.call("exec_command", cmd=script, tty=True, yield_time_ms=250))
        await bench.host.until(lambda before=before: len(bench.host.live()) > before)  # type: ignore[misc]
        text = await bench.call("write_stdin", session_id=number, chars=keys, yield_time_ms=10_000)
        assert field(text, "Process exited with code") == "0" and shown in body(text)


@pytest.mark.parametrize("name", SHELLS)
async def test_n034_substitutions_in_quotes_stay_text(bench: Bench, name: str) -> None:
    script = "echo '$(echo no) `echo no`'; cat <<'EOF'\n$(echo no) `echo no` $HOME\nEOF\necho \"$(echo yes)\""
    assert body(await run(bench, name, script)) == "$(echo no) `echo no`\n$(echo no) `echo no` $HOME\nyes\n"


@pytest.mark.parametrize("tty", [False, True])
async def test_n035_no_pager_and_no_editor_opens(bench: Bench, tty: bool) -> None:
    script = (
        "git init -q . && git config user.email a@b && git config user.name n;"
        " git commit -q --allow-empty -m 'one é'; git log --format=%s; git commit --allow-empty 2> /dev/null; echo $?"
    )
    text = await bench.call("exec_command", cmd=script, tty=tty, yield_time_ms=10_000)
    assert body(text).replace("\r\n", "\n") == "one é\n1\n"


@pytest.mark.parametrize("name", SHELLS)
async def test_n035_text_is_utf_8(benches: Benches, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING", "PYTHONUTF8"):
        monkeypatch.delenv(variable, raising=False)
    script = 'python3 -c "print(chr(233))"; perl -e \'print "é\\n"\'; locale charmap'
    assert body(await run(benches(), name, script)) == "é\né\nUTF-8\n"

"""The Python kernel, run as its users run it, in this interpreter."""

import asyncio
import base64
import importlib.util
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.process import python_kernel
from ferrule.process.kernel import CellResult, CellTimedOut, Kernel, KernelDied
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.process.python_kernel import LOST_DESCRIPTOR, start_python
from tests.processes import DEADLINE, alive, until

LIMIT = 1000 * int(DEADLINE)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
PICTURE = f"""
class Picture:
    def __init__(self, png={PNG!r}):
        self.png = png
    def _repr_png_(self):
        return self.png
    def __repr__(self):
        return "<picture>"
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time to interrupt a cell."""
    monkeypatch.setattr(python_kernel, "INTERRUPT_GRACE", DEADLINE)


async def started(cwd: Path, **variables: str) -> Kernel:
    return await start_python(PlainLauncher(), sys.executable, {**os.environ, **variables}, str(cwd))


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    kernel = await started(tmp_path)
    yield kernel
    await kernel.kill()


async def run(kernel: Kernel, *cells: str, limit: int = LIMIT) -> str:
    """What the last cell wrote, then its error."""
    text = ""
    for cell in cells:
        result = await kernel.run(textwrap.dedent(cell), limit)
        text = told(result)
    return text


def told(result: CellResult) -> str:
    return (result.inherited.text() + (result.error or "")).removesuffix("\n")


SHOWN = {
    "1 + 1": "2",
    "_ + 1": "3",
    "None": "",
    "_": "3",
    "x = 5": "",
    "x; x + 1": "6",
    "print('a'); x": "a\n5",
    "for i in range(2): i": "",
    "'text'": "'text'",
    "# nothing": "",
    "": "",
    "if True:\n    x": "",
    "def f(): return x\nf()": "5",
    "__name__": "'__main__'",
    "import sys; sys.argv, sys.modules['__main__'].x": "([''], 5)",
    "print('\\ud800', 'é'); '\\ud800'": "\\ud800 é\n'\\ud800'",
    "from __future__ import annotations\ndef g(a: nowhere): pass": "",
    "def h(a: nowhere): pass\nh.__annotations__": "{'a': 'nowhere'}",
    "import asyncio\nawait asyncio.sleep(0, 7)": "7",
    "async with asyncio.timeout(9): y = await asyncio.sleep(0, 8)\ny": "8",
    "[z async for z in (v async for v in (lambda: (yield))())] if False else 1": "1",
    "later = asyncio.create_task(asyncio.sleep(0, 'done'))\nawait asyncio.sleep(0)": "",
    "await later": "'done'",
    "asyncio.run(asyncio.sleep(0, 9))": "9",
    "import os, tempfile; os.chdir('/')": "",
    "os.getcwd()": "'/'",
    "import pickle\nclass C: pass\ntype(pickle.loads(pickle.dumps(C()))) is C": "True",
    "import inspect; print(inspect.getsource(f), end='')": "def f(): return x",
    "import sys; sys.displayhook = lambda value: print('mine', value)\n4": "mine 4",
}


async def test_what_comes_back(kernel: Kernel) -> None:
    assert {cell: await run(kernel, cell) for cell in SHOWN} == SHOWN


async def test_prints_children_and_raw_writes_come_in_order(kernel: Kernel) -> None:
    cell = """
        import os, subprocess, sys
        print("one"); print("two", file=sys.stderr); os.write(1, b"three\\n"); os.system("echo four; echo five >&2")
        subprocess.run([sys.executable, "-c", "print('six')"])
        sys.__stdout__.write("seven"); print()
        open("/dev/stdout", "w").write("eight\\n")
        "nine"
    """
    assert await run(kernel, cell) == "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n'nine'"
    assert await run(kernel, "sys.stdin.read(), subprocess.run(['cat'], capture_output=True).stdout") == "('', b'')"


async def test_a_cell_has_no_part_in_the_output_of_the_next(kernel: Kernel) -> None:
    for number in range(50):
        assert await run(kernel, f"print('x' * 10000 + '{number}')") == "x" * 10000 + str(number)


async def test_tracebacks_show_cells_and_what_they_call(kernel: Kernel) -> None:
    said = await run(kernel, "def f():\n    return 1 / 0", "\nf()")
    assert "\n".join(line for line in said.split("\n") if "^" not in line) == (
        "Traceback (most recent call last):\n"
        '  File "<cell 2>", line 2, in <module>\n    f()\n'
        '  File "<cell 1>", line 2, in f\n    return 1 / 0\n'
        "ZeroDivisionError: division by zero"
    )
    lines = await run(kernel, "x = '\x0c\u2028'\r\n\r\n1 / 0")
    assert "line 3, in <module>\n    1 / 0\n" in lines
    chained = await run(kernel, "try: f()\nexcept ZeroDivisionError as e: raise ValueError('two') from e")
    assert "The above exception was the direct cause" in chained and chained.endswith("ValueError: two")
    grouped = await run(kernel, "raise ExceptionGroup('several', [KeyError('k'), ValueError('v')])")
    assert "ExceptionGroup: several (2 sub-exceptions)" in grouped
    awaited = await run(kernel, "async def g(): f()\nawait g()")
    deep = await run(kernel, "def r(): r()\nr()")
    assert "RecursionError" in deep and "Previous line repeated" in deep
    library = await run(kernel, "import json; json.loads('{')")
    assert "json/decoder.py" in library
    for text in (chained, grouped, awaited, deep, library):
        assert "<kernel>" not in text and "run_until_complete" not in text
    assert await run(kernel, "class E(Exception):\n    def __str__(self): raise E\nraise E") != ""
    shown = await run(kernel, "class R:\n    def __repr__(self): 1 / 0\nR()")
    assert ", in __repr__" in shown and shown.endswith("ZeroDivisionError: division by zero")
    assert "<kernel>" not in shown


async def test_what_is_no_python_is_told_and_nothing_of_it_runs(kernel: Kernel) -> None:
    assert await run(kernel, "print('not run')\nfoo bar") == (
        '  File "<cell 1>", line 2\n    foo bar\n        ^^^\nSyntaxError: invalid syntax'
    )
    wrong = {
        "print('not run')\nreturn 1": "SyntaxError: 'return' outside function",
        "print('not run')\nyield": "SyntaxError: 'yield' outside function",
        "  x = 1\n y": "IndentationError",
        "'\0'": "null bytes",
        "x = '\ud800'": "",
        "(" * 5000: "SyntaxError",
        "print('not run')\n!ls": "use the subprocess module",
        "%matplotlib inline": "without IPython's ! and %",
    }
    for cell, expected in wrong.items():
        said = await run(kernel, cell)
        assert expected in said and "not run" not in said and "<kernel>" not in said, cell


async def test_input_is_refused(kernel: Kernel) -> None:
    said = await run(kernel, "name = input('name? ')")
    assert said.endswith("EOFError: input() cannot be answered here: put the value into the code")
    assert "<kernel>" not in said


async def test_pictures(kernel: Kernel) -> None:
    await run(kernel, PICTURE)
    result = await kernel.run("Picture()", LIMIT)
    assert (told(result), result.images) == ("<picture>", (URL,))
    result = await kernel.run(f"display(Picture(({PNG!r}, {{}})), 1, None); display(Picture({PNG!r}))", LIMIT)
    assert (told(result), result.images) == ("<picture>\n1\nNone\n<picture>", (URL, URL))
    await run(kernel, "x = Picture()")
    result = await kernel.run("display(Picture(None)); display(Picture(b'GIF8')); display(Picture)", LIMIT)
    assert "Picture._repr_png_ returned something other than a PNG" in told(result) and result.images == ()
    result = await kernel.run("class Bad:\n    def _repr_png_(self): 1 / 0\nBad(); Bad()", LIMIT)
    assert result.ok and "Bad._repr_png_ failed: ZeroDivisionError" in told(result)
    await run(kernel, "class Meta(type):\n    def __getattr__(self, name): raise RuntimeError")
    result = await kernel.run("class Odd(metaclass=Meta): __repr__ = lambda self: 'odd'\nOdd()", LIMIT)
    assert result.ok and told(result) == "odd"
    result = await kernel.run("for _ in range(20): display(x)", LIMIT)
    assert len(result.images) == 8 and "images left out: 12; a cell shows up to 8" in told(result)
    result = await kernel.run(f"display(Picture({PNG!r} + bytes(9_000_000)), x)", LIMIT)
    assert len(result.images) == 1 and "images left out: 1" in told(result)
    result = await kernel.run("display(x); 1 / 0", LIMIT)
    assert len(result.images) == 1 and not result.ok
    assert (await kernel.run("1", LIMIT)).images == ()


FAKE_PYPLOT = f"""
# Stands in for matplotlib, which few machines have: what the kernel uses of it.
class Figure:
    def __init__(self, number): self.number = number
    def savefig(self, file, format, **kwargs):
        if self.number == 13: raise ValueError("cannot be drawn")
        file.write({PNG!r} + bytes([self.number]))
open_ = {{}}
def figure(number=None):
    return open_.setdefault(number or max(open_, default=0) + 1, Figure(number))
def get_fignums(): return sorted(open_)
def close(which): open_.clear()
def show(): raise RuntimeError("there is no screen")
"""


def numbers(result: CellResult) -> list[int]:
    return [base64.b64decode(url.partition(",")[2])[-1] for url in result.images]


async def test_figures_are_shown_and_closed(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").touch()
    (tmp_path / "matplotlib" / "pyplot.py").write_text(FAKE_PYPLOT)
    result = await kernel.run("import matplotlib.pyplot as plt\nfor n in (4, 2): plt.figure(n)", LIMIT)
    assert numbers(result) == [2, 4] and told(result) == ""
    assert await run(kernel, "plt.get_fignums()") == "[]"
    result = await kernel.run("for n in (3, 1):\n    plt.figure(n); plt.show(); print(plt.get_fignums())", LIMIT)
    assert numbers(result) == [3, 1] and told(result) == "[]\n[]"
    result = await kernel.run("plt.figure(5); 1 / 0", LIMIT)
    assert numbers(result) == [5] and "ZeroDivisionError" in told(result)
    result = await kernel.run("plt.figure(13); x = 1", LIMIT)
    assert not result.ok and told(result).endswith("ValueError: cannot be drawn") and "<kernel>" not in told(result)
    assert await run(kernel, "plt.get_fignums(), x") == "([], 1)"
    assert await run(kernel, "import os; os.system('echo $MPLBACKEND')") == "agg\n0"


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed here")
async def test_figures_of_matplotlib_itself(kernel: Kernel) -> None:
    result = await kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show(); x = plt.figure()", LIMIT)
    assert len(result.images) == 2 and told(result) == ""
    result = await kernel.run("fig, ax = plt.subplots(); ax.plot([1]); fig", LIMIT)
    assert len(result.images) == 1 and "Figure" in told(result)


STUCK = [
    "while True: pass",
    "time.sleep(600)",
    "await asyncio.sleep(600)",
    "asyncio.run(asyncio.sleep(600))",
    "subprocess.run(['sleep', '600'])",
    "threading.Event().wait()",
    "class R:\n    def __repr__(self):\n        while True: pass\nR()",
    "try:\n    time.sleep(600)\nfinally:\n    closed = True",
]


async def stuck(kernel: Kernel, cell: str) -> CellResult:
    """The result of a cell that does not end, with a limit in which it surely begins."""
    for limit in (200, 2_000, 10_000):
        result = await kernel.run(f"print('begun')\n{cell}", limit)
        if told(result).startswith("begun"):
            break
    return result


async def test_the_time_limit_interrupts_a_cell_and_keeps_what_was_defined(kernel: Kernel) -> None:
    await run(kernel, "kept = 7")
    await run(kernel, "import asyncio, subprocess, threading, time; await asyncio.sleep(0)")
    for cell in STUCK:
        result = await stuck(kernel, cell)
        assert result.interrupted and not result.ok, cell
        assert told(result).startswith("begun\nTraceback") and told(result).endswith("KeyboardInterrupt"), cell
        assert "<kernel>" not in told(result), cell
    assert await run(kernel, "kept, closed") == "(7, True)"
    result = await stuck(kernel, "try:\n    time.sleep(600)\nexcept KeyboardInterrupt: 'caught'")
    assert result.interrupted and result.ok


async def test_the_shortest_limit_does_not_miss_its_cell(kernel: Kernel) -> None:
    await run(kernel, "kept = 7")
    for _ in range(20):
        result = await kernel.run("while True: pass", 1)
        assert result.interrupted
    assert await run(kernel, "kept") == "7"


async def test_an_interrupt_that_comes_late_hits_no_later_cell(kernel: Kernel) -> None:
    for _ in range(3):
        await kernel.interrupt()
        assert await run(kernel, "import time; time.sleep(0.01); 'whole'") == "'whole'"


async def test_a_cell_that_ignores_the_interrupt_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_kernel, "INTERRUPT_GRACE", 0.1)
    kernel = await started(tmp_path)
    pid = int(await run(kernel, "import os, signal; signal.signal(2, signal.SIG_IGN); os.getpid()"))
    with pytest.raises(CellTimedOut, match="the cell ran longer than 2000 ms") as lost:
        await kernel.run(
            "import time; signal.signal(2, signal.SIG_IGN); print('said')\nwhile True: time.sleep(0.1)", 2000
        )
    assert lost.value.written.text() == "said\n"
    assert kernel.lost and not alive(pid)
    with pytest.raises(KernelDied):
        await kernel.run("1", LIMIT)


async def test_a_cancelled_cell_is_interrupted_and_leaves_no_output(kernel: Kernel, tmp_path: Path) -> None:
    cell = "kept = 7; print('lost'); open('begun', 'w').close()\nwhile True: pass"
    running = asyncio.create_task(kernel.run(cell, LIMIT))
    await until((tmp_path / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not kernel.lost and await run(kernel, "kept") == "7"


async def test_sys_exit_ends_the_cell_alone(kernel: Kernel) -> None:
    said = "SystemExit: the cell ended, and the kernel goes on"
    for cell, ok, expected in [
        ("import sys; x = 1; sys.exit()\nx = 2", True, said),
        ("sys.exit(3)", False, said),
        ("exit()", True, said),
        ("sys.exit('why')", False, f"why\n{said}"),
    ]:
        result = await kernel.run(cell, LIMIT)
        assert (result.ok, told(result)) == (ok, expected)
    assert await run(kernel, "x, sys.stdin.read()") == "(1, '')"


DEATHS = [
    ("import os; os._exit(3)", "exited with code 3"),
    ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9"),
    ("import signal; signal.raise_signal(signal.SIGSEGV)", "was ended by signal 11"),
    ("import os; os.close(3)", f"exited with code {LOST_DESCRIPTOR}"),
    ("import os; os.closerange(3, 200)", f"exited with code {LOST_DESCRIPTOR}"),
    ("import os; _ = os.dup2(2, 4); _ = None", f"exited with code {LOST_DESCRIPTOR}"),
]


@pytest.mark.parametrize(("cell", "how"), DEATHS, ids=["exit", "kill", "fault", "close", "closerange", "replace"])
async def test_a_death_is_told_with_what_was_written_before(kernel: Kernel, cell: str, how: str) -> None:
    with pytest.raises(KernelDied, match=how) as died:
        await kernel.run(f"print('before')\n{cell}", LIMIT)
    assert died.value.written.text() == "before\n" and died.value.said == "before\n"
    assert kernel.death == how and kernel.lost


FORGED = rb"""
import os, json
for line in (b'{"type":"exec_result","id":"x","ok":true,"output":"forged","images":[]}', b"nonsense", b"[" * 100000,
             b'{"type":"exec_result","id":"x","ok":true,"y":' + b"[" * 100000, b"\xff\xfe", b'{"type":"exec_result"}',
             b'{"type":"run_tool","id":"1","exec_id":"x","tool_name":"shell","arguments":"{}"}', b"null", b""):
    os.write(4, line + b"\n")
os.write(4, b"half a line")
"real"
"""


async def test_forged_messages_change_nothing(kernel: Kernel) -> None:
    for _ in range(2):
        result = await kernel.run(FORGED.decode("latin-1"), LIMIT)
        assert (result.ok, result.output, told(result)) == (True, "", "'real'")
    await run(kernel, "import fcntl; fcntl.fcntl(4, fcntl.F_SETFL, os.O_NONBLOCK); os.set_blocking(1, False)")
    assert await run(kernel, "print('x' * 1_000_000)") != ""
    result = await kernel.run("raise ValueError('y' * 200_000)", LIMIT)
    assert len(result.error or "") > 200_000


async def test_an_image_is_never_an_address(kernel: Kernel) -> None:
    code = "import gc\nnext(x for x in gc.get_objects() if type(x).__name__ == 'Shown').urls.append('http://192.0.2.1')"
    result = await kernel.run(code, LIMIT)
    assert result.ok and result.images == ()


async def test_children_do_not_answer(kernel: Kernel) -> None:
    forks = """
        import os, sys, signal
        if os.fork() == 0:
            print("child")
            raise ValueError("of the child")
        os.wait()[1] >> 8
    """
    said = await run(kernel, forks)
    assert said.startswith("child\nTraceback") and said.endswith("ValueError: of the child\n1")
    assert await run(kernel, "if os.fork() == 0: sys.exit(7)\nos.wait()[1] >> 8") == "7"
    assert await run(kernel, "if (child := os.fork()): os.wait()[1] >> 8\nelse: x = 5") == ""
    assert await run(kernel, "child > 0, 'x' in globals()") == "(True, False)"
    assert (await run(kernel, "os.system('echo forged >&4') != 0")).splitlines()[-1] == "True"
    assert await run(kernel, "os.system('ls /proc/self/fd | wc -l')") == "4\n0"
    mine = "if os.fork() == 0: os._exit(5 if os.path.exists('/proc/self/fd/4') else 6)\nos.wait()[1] >> 8"
    assert await run(kernel, mine) == "6"


async def test_processes_of_multiprocessing(kernel: Kernel) -> None:
    assert await run(kernel, "import math, multiprocessing as mp\ndef twice(x): return 2 * x") == ""
    pool = "if __name__ == '__main__':\n    with mp.get_context('{}').Pool(1) as p: print(p.map({}, [4, 9]))"
    assert await run(kernel, pool.format("spawn", "math.sqrt")) == "[2.0, 3.0]"
    assert await run(kernel, pool.format("fork", "twice")) == "[8, 18]"
    assert await run(kernel, "p = mp.get_context('fork').Process(target=print, args=['x']); p.start(); p.join()") == "x"


async def test_floods_keep_their_beginning_and_end(kernel: Kernel) -> None:
    result = await kernel.run("for i in range(3000): print(i, 'x' * 1000)", LIMIT)
    assert result.inherited.omitted > 0
    assert result.inherited.head.startswith(b"0 x") and result.inherited.tail.rstrip(b"x\n").endswith(b"\n2999 ")
    text = await run(kernel, "'z' * 5_000_000")
    assert text.startswith("'zz") and text.endswith("zz'") and "characters omitted" in text
    result = await kernel.run("raise ValueError('z' * 5_000_000)", LIMIT)
    assert "characters omitted" in (result.error or "") and len(result.error or "") < 300_000


async def test_handlers_that_a_cell_has_set_disturb_nothing(kernel: Kernel) -> None:
    alarm = """
        import signal
        def fires(number, frame): 1 / 0
        signal.signal(signal.SIGALRM, fires)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    """
    await run(kernel, alarm)
    for _ in range(100):
        result = await kernel.run("1", LIMIT)
        assert result.error is None or "ZeroDivisionError" in result.error
    for _ in range(1000):  # the handler may end this cell, too
        if (await kernel.run("signal.setitimer(signal.ITIMER_REAL, 0)", LIMIT)).ok:
            break
    await run(kernel, "signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (await kernel.run("while True: pass", 300)).interrupted
    assert await run(kernel, "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 20)); 1") == "1"
    assert (await kernel.run("while True: pass", 300)).interrupted
    assert await run(kernel, "1") == "1"


async def test_threads_print_after_their_cell(kernel: Kernel, tmp_path: Path) -> None:
    thread = """
        import os, threading, time
        def late():
            while not os.path.exists("go"): time.sleep(0.01)
            print("late")
            open("printed", "w").close()
        threading.Thread(target=late).start()
    """
    await run(kernel, thread)
    (tmp_path / "go").touch()
    await until((tmp_path / "printed").exists)
    assert await run(kernel, "'next'") == "late\n'next'"


async def test_closed_standard_files_are_open_again_in_the_next_cell(kernel: Kernel) -> None:
    for cell in (
        "import os, sys; os.close(0); os.close(1); os.close(2)",
        "sys.stdin.close(); sys.stdout.close(); sys.stderr.close()",
        "sys.stdout = sys.stderr = sys.stdin = None",
    ):
        await run(kernel, cell)
        assert await run(kernel, "print('é'); print('error', file=sys.stderr); sys.stdin.read()") == "é\nerror\n''"
    assert await run(kernel, "import io; kept = sys.stdout; sys.stdout = io.StringIO(); 1") == ""
    assert await run(kernel, "kept, sys.stdout = sys.stdout, kept; kept.getvalue()") == "'1\\n'"


async def test_what_a_cell_breaks_of_its_own_the_kernel_does_not_use(kernel: Kernel) -> None:
    for cell in (
        "import builtins, json, os, sys, linecache, select, traceback",
        "builtins.open = builtins.repr = builtins.print = builtins.eval = builtins.exec = builtins.compile = None",
        "linecache.cache.clear(); linecache.clearcache(); sys.path.clear(); sys.argv = None",
        "globals().clear()",
    ):
        assert (await kernel.run(cell, LIMIT)).ok
    assert await run(kernel, "3") == "3"


async def test_memory_that_is_not_there_is_an_error_of_the_cell(kernel: Kernel) -> None:
    assert (await run(kernel, "kept = 7; bytearray(1 << 60)")).endswith("MemoryError")
    assert await run(kernel, "kept") == "7"


async def test_modules_of_the_working_directory_are_the_cells_alone(tmp_path: Path) -> None:
    for name in ("json", "ast", "os", "traceback", "site", "sitecustomize", "select"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')")
    (tmp_path / "mine.py").write_text("x = 5")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "other.py").write_text("y = 6")
    kernel = await started(tmp_path, PYTHONPATH=str(tmp_path / "path"))
    assert await run(kernel, "import mine, other; mine.x, other.y") == "(5, 6)"
    await kernel.kill()


async def test_a_program_that_is_no_python_is_told(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'Python 3.8 or newer is needed, not 2.7' >&2; exit 1\n")
    old.chmod(0o755)
    for program, expected in (
        ("/bin/false", "/bin/false does not start as a kernel: exited with code 1"),
        (str(old), "exited with code 1: Python 3.8 or newer is needed, not 2.7"),
        ("/nowhere/python", "exited with code 127: .*not found"),
    ):
        with pytest.raises(LaunchError, match=expected):
            await start_python(PlainLauncher(), program, os.environ, str(tmp_path))


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600\n")
    slow.chmod(0o755)
    starting = asyncio.create_task(start_python(PlainLauncher(), str(slow), os.environ, str(tmp_path)))
    await until((tmp_path / "pid").exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_the_kernel_ends_with_its_host(tmp_path: Path) -> None:
    script = f"""
        import asyncio, os, sys
        from ferrule.process.plain import PlainLauncher
        from ferrule.process.python_kernel import start_python
        async def main():
            kernel = await start_python(PlainLauncher(), sys.executable, os.environ, {str(tmp_path)!r})
            print((await kernel.run("import os; os.getpid()", 60000)).inherited.text(), flush=True)
            os.kill(os.getpid(), {int(signal.SIGKILL)})
        asyncio.run(main())
    """
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await host.communicate()
    await until(lambda: not alive(int(output)))

"""The Python kernel, run as its users run it, in this interpreter."""

from pathlib import Path

import pytest

from ferrule.process.kernel import Kernel
from tests.process.cells import LIMIT, run, started, told
from tests.processes import until

pytestmark = pytest.mark.usefixtures("patience")


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

"""What cells of the Python kernel show: values, pictures, figures, and floods."""

import base64
import importlib.util
from pathlib import Path

import pytest

from ferrule.process.kernel import CellResult, Kernel
from tests.process.cells import LIMIT, PICTURE, PNG, URL, run, told

pytestmark = pytest.mark.usefixtures("patience")

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


async def test_an_image_is_never_an_address(kernel: Kernel) -> None:
    code = "import gc\nnext(x for x in gc.get_objects() if type(x).__name__ == 'Shown').urls.append('http://192.0.2.1')"
    result = await kernel.run(code, LIMIT)
    assert result.ok and result.images == ()


async def test_floods_keep_their_beginning_and_end(kernel: Kernel) -> None:
    result = await kernel.run("for i in range(3000): print(i, 'x' * 1000)", LIMIT)
    assert result.inherited.omitted > 0
    assert result.inherited.head.startswith(b"0 x") and result.inherited.tail.rstrip(b"x\n").endswith(b"\n2999 ")
    text = await run(kernel, "'z' * 5_000_000")
    assert text.startswith("'zz") and text.endswith("zz'") and "characters omitted" in text
    result = await kernel.run("raise ValueError('z' * 5_000_000)", LIMIT)
    assert "characters omitted" in (result.error or "") and len(result.error or "") < 300_000

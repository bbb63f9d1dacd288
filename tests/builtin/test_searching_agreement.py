"""The search in Python and ripgrep's give the same answers, on generated trees and patterns."""

import os
import random
import sysconfig
from pathlib import Path

import pytest

from ferrule.builtin.searching.python import search_in_python
from ferrule.builtin.searching.request import Found, Search
from ferrule.builtin.searching.ripgrep import find_ripgrep, search_with_ripgrep
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import RespondToModel

PROGRAM = find_ripgrep({"PATH": sysconfig.get_path("scripts")}).path
"""The ripgrep that the lock names, whatever the machine has: their versions differ in what they refuse."""
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="ripgrep is not installed")

SEEDS = int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "400")) // 50
"""Trees that are grown; many more by `scripts/fuzz`."""
NAMES = ("a", "b.py", "c.txt", "foo", "foo.py", "bar", "build", ".hid", ".env", "x y", "ünï.py", "a,b", "-v", "[q]")
IGNORE_LINES = (
    "*.py", "!foo.py", "build/", "/foo", "foo/", "bar/*", "!bar/a", "**/a", "a/**", "foo/**/c.txt", "# comment", "",
    "*.{txt,py}", "\\!x", "b.p?", "[a-c]*", "[!a-c]*", "/build/foo", "!.hid", "x\\ y", "c.txt   ", "foo/bar", "!/bar/",
    "*", "!*/", "**", "/*", "ünï*", "\\[q\\]", "{a", "[z",
)  # fmt: skip
GLOBS = (
    None, "*.py", "*.{py,txt}", "foo", "!foo.py", "!build", "**/bar/**", "/foo/*", "foo/**", "*", "[a-c]*", "build/",
    "**/*.txt", "bar/b.py", ".*", "!.*", "x*", "{a,b}*", "a?b", "ünï.py",
)  # fmt: skip
WORDS = ("foo", "Foo", "bar_baz", "needle", "x1", "été", "a.b", "a+b", "(z)", "--", "tab\there", "", "  lead", "end\r")
PATTERNS = (
    "foo", "^foo", "foo$", "^$", r"\bbar", r"\w+_\w+", r"f.o", r"a\.b", r"a\+b", r"\(z\)", "--", "(foo|x1)", "[A-Z]",
    r"[^a-z]oo", r"x\d", r"\s", r"\S\s+\S", "(?i)FOO", "f(?i:OO)", "é", r"^.{3}$", r"^\w{3,}$", "(?P<n>oo)", "o{2}?",
    "needle|été", r"\t", r"[[:digit:]]", r"[\w.]+\.b", r"^\s*$", "", "x*", "[]a]", "[^]]$", r"\x41|\x{66}oo", r"a|",
    r"\r", r"\D\d", r"\Boo", r"\<bar", r"baz\>", "[a-]", "^", "$", "é$", r"^\W", "(a|b)(c|\\.)b", "a{0}foo",
    "(", "[z-a]", r"\k", "(?=a)", "(?<!b)a", r"(a)\1", "a{", "x{2", "*", "a|*", "(?P<1>a)", "[a", r"\n", ")",
)  # fmt: skip


def text(rnd: random.Random) -> bytes:
    lines = [" ".join(rnd.choice(WORDS) for _ in range(rnd.randint(0, 3))) for _ in range(rnd.randint(0, 8))]
    data = "\n".join(lines).encode() + (b"\n" if rnd.random() < 0.7 else b"")
    odd = rnd.random()
    if odd < 0.05:
        data = b"\xef\xbb\xbf" + data
    elif odd < 0.1:
        data += b"bad \xff\xfe bytes foo\n\xff\n"
    elif odd < 0.15:
        data = b"first\n" + data + b"nul \0 foo\n"
    elif odd < 0.18:
        data = b"\xff\xfe" + data.decode().encode("utf-16-le")
    return data


UNANCHORED = tuple(line for line in IGNORE_LINES if "/" not in line.rstrip("/"))
"""Ripgrep 14 matches anchored lines of the folders above a search wrongly."""


def grow(rnd: random.Random, folder: Path, ignores: tuple[str, ...], depth: int = 0) -> None:
    for name in rnd.sample(NAMES, rnd.randint(2, 6)):
        path = folder / name
        if depth < 3 and rnd.random() < 0.45:
            path.mkdir()
            grow(rnd, path, ignores, depth + 1)
        elif rnd.random() < 0.05:
            path.symlink_to(rnd.choice(NAMES))
        else:
            path.write_bytes(text(rnd))
    for ignore in (".gitignore", ".ignore", ".rgignore"):
        if rnd.random() < 0.3 and not (folder / ignore).exists():
            (folder / ignore).write_text("\n".join(rnd.choices(ignores, k=rnd.randint(1, 4))) + "\n")
    if depth and rnd.random() < 0.05:
        (folder / ".git").mkdir(exist_ok=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a global ignore file of git's."""
    path = tmp_path / "home"
    (path / ".config" / "git").mkdir(parents=True)
    (path / ".config" / "git" / "ignore").write_text("x y\n")
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return path


async def both(search: Search) -> tuple[object, object]:
    assert PROGRAM is not None
    try:
        theirs: object = plain(await search_with_ripgrep(search, PROGRAM, PlainLauncher(), os.environ))
    except RespondToModel:
        theirs = "refused"
    try:
        ours: object = plain(search_in_python(search))
    except RespondToModel as error:
        if "without ripgrep" in str(error):
            pytest.fail(f"the corpus holds only what both can read: {error}")
        ours = "refused"
    return theirs, ours


def plain(found: Found) -> object:
    assert not found.warnings
    lines = sorted((line.path, line.number, line.text, line.matches) for line in found.lines)
    assert found.count == len(found.files)
    return sorted(found.files), lines


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_trees_and_globs(seed: int, below: bool, tmp_path: Path, home: Path) -> None:
    rnd = random.Random(seed)
    ignores = UNANCHORED if below else IGNORE_LINES
    root = tmp_path / "root"
    root.mkdir()
    grow(rnd, root, ignores)
    if rnd.random() < 0.6:
        (root / ".git" / "info").mkdir(parents=True, exist_ok=True)
        (root / ".git" / "info" / "exclude").write_text(rnd.choice(ignores) + "\n")
    folders = [str(path) for path in root.rglob("*") if path.is_dir() and ".git" not in path.parts]
    for place in rnd.sample(folders, min(3, len(folders))) if below else [str(root)]:
        for glob in rnd.sample(GLOBS, 5):
            for hidden in (False, True):
                search = Search(path=place, cwd=str(root), include=glob, hidden=hidden)
                theirs, ours = await both(search)
                assert ours == theirs, search


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_patterns(pattern: str, tmp_path: Path, home: Path) -> None:
    rnd = random.Random(7)
    for number in range(60):
        (tmp_path / f"f{number}").write_bytes(text(rnd))
    for ignore_case in (False, True):
        search = Search(path=str(tmp_path), cwd=str(tmp_path), pattern=pattern, ignore_case=ignore_case)
        theirs, ours = await both(search)
        assert ours == theirs


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_lines_and_their_neighbours(seed: int, tmp_path: Path, home: Path) -> None:
    rnd = random.Random(seed)
    for number in range(20):
        data = text(rnd).replace(b"\0", b"")
        (tmp_path / f"f{number}\n{number}").write_bytes(data + b"long " + b"x" * rnd.choice((10, 400)) + b" foo\n")
    for pattern in ("foo", "^$", "needle|x1", r"\w+_\w+"):
        for before, after in ((0, 0), (1, 2), (3, 0)):
            search = Search(
                path=str(tmp_path), cwd=str(tmp_path), pattern=pattern, lines=True, before=before, after=after
            )
            theirs, ours = await both(search)
            assert ours == theirs
